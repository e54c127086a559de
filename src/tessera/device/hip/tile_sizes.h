// Sizes that HIP kernels and their legality both compute. Plain functions on numbers, for host and
// device.
#pragma once

namespace tessera::device {

// What one MFMA kernel's tile looks like; `size_a` and `size_b` are bytes of an element.
struct MfmaShape {
  int tile_m, tile_n, tile_k;
  int wave_m, wave_n;  // waves along m and n
  int side;            // rows and columns of one MFMA
  int size_a, size_b;
  int buffers;   // tiles in LDS
  int prefetch;  // tiles under way in registers
};

constexpr int mfma_threads(const MfmaShape& s) { return 64 * s.wave_m * s.wave_n; }

// Blocks of side x side sums that a wave stages in LDS at a time when it stores them: a power of
// two that divides the wave's columns, at most 64 columns.
constexpr int mfma_staged_blocks(const MfmaShape& s) {
  const int blocks = s.tile_n / s.wave_n / s.side;
  int staged = 64 / s.side;
  while (staged > 1 && blocks % staged != 0) staged /= 2;
  return staged;
}

// LDS of a workgroup: the buffers, or what the waves stage afterwards.
constexpr int mfma_lds_bytes(const MfmaShape& s) {
  const int tile = (s.tile_m * s.size_a + s.tile_n * s.size_b) * s.tile_k;
  const int staged = s.wave_m * s.wave_n * s.side * s.side * 4 * mfma_staged_blocks(s);
  return tile * s.buffers > staged ? tile * s.buffers : staged;
}

// Registers that a lane needs, roughly: sums, fragments, tiles under way, addresses.
constexpr int mfma_registers(const MfmaShape& s) {
  const int threads = mfma_threads(s);
  const int blocks_m = s.tile_m / s.wave_m / s.side, blocks_n = s.tile_n / s.wave_n / s.side;
  const int sums = s.tile_m * s.tile_n / threads;
  const int tile = (s.tile_m * s.size_a + s.tile_n * s.size_b) * s.tile_k;
  const int under_way = tile / threads / 4 * s.prefetch;
  const int offsets = tile / threads / 16 * 2;
  return sums + (blocks_m + blocks_n) * 4 + under_way + offsets + 40;
}

// Waves that share a SIMD, for the compiler: as many as registers and LDS let run, at most 4.
constexpr int mfma_waves(const MfmaShape& s, int lds_limit) {
  const int registers = mfma_registers(s);
  const int per_simd = mfma_threads(s) / 256 > 0 ? mfma_threads(s) / 256 : 1;
  const int groups = lds_limit / mfma_lds_bytes(s);
  int waves = registers <= 112 ? 4 : registers <= 224 ? 2 : 1;
  if (waves > groups * per_simd) waves = groups * per_simd;
  return waves < per_simd ? per_simd : waves == 3 ? 2 : waves;
}

}  // namespace tessera::device
