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
  // Operands whose k is not contiguous.
  bool transposes_a = false, transposes_b = false;
  int lanes = 64;  // of a wave
  int scales = 0;  // registers of a lane for scales of blocks: mfma_scale_registers()
};

constexpr int mfma_threads(const MfmaShape& s) { return s.lanes * s.wave_m * s.wave_n; }

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

// Registers of one operand: a tile's share under way, and its addresses. A lane that transposes
// takes whole chunks of as many rows as a dword has.
constexpr int mfma_operand_registers(const MfmaShape& s, int rows, int size, bool transposes) {
  const int unit = transposes ? 64 / size : 16;  // bytes
  const int lanes = mfma_threads(s);
  const int units = (rows * s.tile_k * size / unit + lanes - 1) / lanes;
  return units * unit / 4 * (s.prefetch + (transposes ? 1 : 0)) + units * 2;
}

// What scales of blocks take, of which B has one for each column or not, and sums of all blocks.
// Blocks have `depth` elements of k. Where a tile has several along k, clang 22 asks for A's scales
// of all of them together: with 4 registers for each, 1,400 random kernels of gfx950 and 1,400
// of gfx942 spilled none, and with 2 for each some of 64x128 and 128x64 by 8 waves did. An
// instruction that multiplies by scales adds the sums itself, and has chunks that are twice as
// long.
constexpr int mfma_scale_registers(const MfmaShape& s, int depth, bool by_column,
                                   bool by_instruction) {
  const int blocks_m = s.tile_m / s.wave_m / s.side, blocks_n = s.tile_n / s.wave_n / s.side;
  const int sums = s.side * s.side / s.lanes, depths = s.tile_k / depth;
  if (by_instruction) return 6 * (blocks_m + blocks_n);
  return blocks_m * blocks_n * sums + blocks_m * (depths > 1 ? 4 * depths : 1) +
         blocks_n * (by_column ? sums : 1);
}

// Registers that a lane needs, roughly: sums, chunks that are multiplied, operands, and the rest.
constexpr int mfma_registers(const MfmaShape& s) {
  const int blocks_m = s.tile_m / s.wave_m / s.side, blocks_n = s.tile_n / s.wave_n / s.side;
  const int sums = s.tile_m * s.tile_n / mfma_threads(s);
  // Registers of a block's operand: waves of 32 lanes may hold all of it, and twice if it is small.
  const int held = s.lanes != 32 ? 4 : blocks_m + blocks_n <= 4 ? 16 : 8;
  const int rest = s.lanes != 32 ? 40 : 64;
  return sums + (blocks_m + blocks_n) * held + rest + s.scales +
         mfma_operand_registers(s, s.tile_m, s.size_a, s.transposes_a) +
         mfma_operand_registers(s, s.tile_n, s.size_b, s.transposes_b);
}

// Waves that share a SIMD, for the compiler: as many as registers and LDS let run, at most 4. A
// SIMD with waves of 32 lanes has 1536 registers for each lane, of which a wave can name 256.
constexpr int mfma_waves(const MfmaShape& s, int lds_limit) {
  if (s.lanes == 32) return mfma_registers(s) <= 172 ? 8 : 4;
  const int registers = mfma_registers(s);
  const int per_simd = mfma_threads(s) / 256 > 0 ? mfma_threads(s) / 256 : 1;
  const int groups = lds_limit / mfma_lds_bytes(s);
  int waves = registers <= 112 ? 4 : registers <= 224 ? 2 : 1;
  if (waves > groups * per_simd) waves = groups * per_simd;
  return waves < per_simd ? per_simd : waves == 3 ? 2 : waves;
}

}  // namespace tessera::device
