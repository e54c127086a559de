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
  int teams = 0;       // of waves that have different keys, whose keys are in parts; 0: one, whole
  bool pages = false;  // whether keys and values lie in pages
  // Bytes of an element of keys and values, of a query, of a weight, of a result.
  int kv_bytes = 2, in_bytes = 2, weight_bytes = 2, out_bytes = 2;
};
constexpr int mfma_fmha_teams(const MfmaFmhaShape& s) { return s.teams > 0 ? s.teams : 1; }

// The bytes of a head's pages, whose places have 32 bits; what is there or behind reads zeros, also
// with an offset in a token added to it.
inline constexpr unsigned kMostPlace = 0xfffff000U;

// What a workspace begins with, see kHipCounterBytes.
inline constexpr int kMfmaCounters = 1 << 16;
// Floats of a part of the keys of a tile of rows: sums, and behind them powers and sums of weights.
constexpr long long mfma_part_floats(int rows, long long hdim_v) { return rows * (hdim_v + 2); }

constexpr int mfma_fmha_threads(const MfmaFmhaShape& s) { return 64 * s.waves; }
constexpr int mfma_fmha_rows(const MfmaFmhaShape& s) {
  return 32 * s.blocks * (s.waves / mfma_fmha_teams(s));
}

// LDS of a workgroup: the buffers of keys and values, or what the waves stage afterwards. Waves
// with keys in parts stage as much at a time as there is room for.
constexpr int mfma_fmha_lds_bytes(const MfmaFmhaShape& s) {
  const int tiles = s.keys * (s.head + s.head_v) * s.kv_bytes * (s.copies ? 2 : 1);
  // Results of other sizes go to memory without LDS; parts have room for 4 vectors of 4 sums.
  const int staged = s.teams > 0        ? s.waves * 4 * 1024
                     : s.out_bytes != 2 ? 0
                                        : s.waves * 32 * s.head_v * 2;
  return tiles > staged ? tiles : staged;
}

// Registers that a lane needs, roughly: scores, weights, queries, sums, tiles under way, biases,
// and the rest.
constexpr int mfma_fmha_registers(const MfmaFmhaShape& s) {
  const int scores = s.blocks * s.keys / 2 / mfma_fmha_teams(s);
  const int queries = s.blocks * s.head * s.in_bytes / 8, sums = s.blocks * s.head_v / 2;
  // Threads that transpose values of 8 bits have 4 elements of 16 keys at least.
  const int keys_under_way = s.keys * s.head * s.kv_bytes / (4 * mfma_fmha_threads(s));
  const int even = s.keys * s.head_v * s.kv_bytes / (4 * mfma_fmha_threads(s));
  const int values_under_way = s.kv_bytes == 1 && even < 16 ? 16 : even;
  const int under_way = s.copies ? 0 : keys_under_way + values_under_way;
  const int biases = s.bias_bytes > 0 ? scores * s.bias_bytes / 4 + 12 : 0;
  const int bends = s.bends ? 12 : 0, random = s.dropout ? 28 : 0;
  // A head in two tiles has loads of its own for the second one.
  const int second = (s.head & (s.head - 1)) != 0 ? 12 : 0;
  const int parts = s.teams > 0 ? 8 : 0;
  const int places = s.pages ? 20 + 8 * (s.keys / 64) : 0;
  const int weights = scores * s.weight_bytes / 4;
  // What is widened, factors and rows.
  const int widened = s.kv_bytes == 1 ? (s.weight_bytes == 1 ? 16 : 28) : 0;
  return scores + weights + widened + queries + sums + under_way + biases + bends + random +
         places + second + parts + 40;
}

// Waves that share a SIMD, for the compiler: as many as registers let run, at most 3, and with keys
// in parts 2, for which there is LDS. Masks take up to 20 registers more than the above.
constexpr int mfma_fmha_waves(const MfmaFmhaShape& s) {
  const int registers = mfma_fmha_registers(s);
  const int least = s.waves / 4;
  const int waves = registers <= 160 && s.teams == 0 ? 3 : registers <= 250 ? 2 : 1;
  return waves / least > 0 ? waves / least * least : least;
}

}  // namespace tessera::device
