// Sizes of attention's kernels by MFMA that the device and the host both compute. Plain functions
// on numbers.
#pragma once

namespace tessera::device {

struct MfmaFmhaShape {
  int blocks;          // of 32 queries, that a wave has
  int waves;           // of a workgroup
  int keys;            // of a tile
  int head, head_v;    // the longest ones
  bool copies;         // whether tiles are copied to LDS and not moved by registers
  int bias_bytes = 0;  // of an element; 0: no elementwise bias
  bool bends = false;  // whether scores are more than products times the scale
  bool dropout = false;
};

constexpr int mfma_fmha_threads(const MfmaFmhaShape& s) { return 64 * s.waves; }
constexpr int mfma_fmha_rows(const MfmaFmhaShape& s) { return 32 * s.blocks * s.waves; }

// LDS of a workgroup: the buffers of keys and values, or what the waves stage afterwards.
constexpr int mfma_fmha_lds_bytes(const MfmaFmhaShape& s) {
  const int tiles = s.keys * (s.head + s.head_v) * 2 * (s.copies ? 2 : 1);
  const int staged = s.waves * 32 * s.head_v * 2;
  return tiles > staged ? tiles : staged;
}

// Registers that a lane needs, roughly: scores, weights, queries, sums, tiles under way, biases,
// and the rest.
constexpr int mfma_fmha_registers(const MfmaFmhaShape& s) {
  const int scores = s.blocks * s.keys / 2;
  const int queries = s.blocks * s.head / 4, sums = s.blocks * s.head_v / 2;
  const int under_way =
      s.copies ? 0 : s.keys * (s.head + s.head_v) * 2 / (4 * mfma_fmha_threads(s));
  const int biases = s.bias_bytes > 0 ? scores * s.bias_bytes / 4 + 12 : 0;
  const int bends = s.bends ? 12 : 0, random = s.dropout ? 28 : 0;
  return scores + scores / 2 + queries + sums + under_way + biases + bends + random + 40;
}

// Waves that share a SIMD, for the compiler: as many as registers let run, at most 3. Masks take up
// to 20 registers more than the above.
constexpr int mfma_fmha_waves(const MfmaFmhaShape& s) {
  const int registers = mfma_fmha_registers(s);
  const int least = s.waves / 4;
  const int waves = registers <= 160 ? 3 : registers <= 250 ? 2 : 1;
  return waves / least > 0 ? waves / least * least : least;
}

}  // namespace tessera::device
