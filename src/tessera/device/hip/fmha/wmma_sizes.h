// Sizes of attention's kernels by WMMA that the device and the host both compute.
#pragma once

namespace tessera::device {

struct WmmaFmhaShape {
  int waves;         // of a workgroup, 16 queries each
  int keys;          // of a tile
  int head, head_v;  // the longest ones
};

constexpr int wmma_fmha_threads(const WmmaFmhaShape& s) { return 32 * s.waves; }
constexpr int wmma_fmha_lds_bytes(const WmmaFmhaShape& s) {
  return s.keys * (s.head + s.head_v) * 2;
}

// Registers that a lane needs, roughly: scores, weights, queries, sums, tiles under way, and the
// rest. RDNA 3 holds operands twice, so that both halves of a wave have all of a row.
constexpr int wmma_fmha_registers(const WmmaFmhaShape& s) {
  const int scores = s.keys / 2, weights = s.keys / 2, queries = s.head / 2, sums = s.head_v / 2;
  const int under_way = s.keys * (s.head + s.head_v) * 2 / (4 * wmma_fmha_threads(s));
  return scores + weights + queries + sums + under_way + 56;
}

}  // namespace tessera::device
