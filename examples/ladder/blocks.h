// Blocks for the caches, in steps 6 to 8. docs/ladder/06_blocking.md explains the sizes.
#pragma once

#include <algorithm>

#include "ladder.h"
#include "vectors.h"

namespace ladder {

constexpr int kBlockK = 768;   // a panel of B, 768 x 32 floats, is 96 KiB: L2
constexpr int kBlockM = 96;    // a block of A, 96 x 768 floats, is 288 KiB: L2
constexpr int kBlockN = 1024;  // a block of B, 768 x 1024 floats, is 3 MiB: L3
static_assert(kBlockM % kRows == 0 && kBlockN % kColumns == 0, "blocks consist of whole tiles");

struct Range {
  int begin, end;
  int size() const { return end - begin; }
};

// The packed blocks of a thread. They are kept for the next call: with new memory in each call, a
// product of 96 cubed ran at 34 instead of 92 GFLOP/s.
struct Space {
  std::vector<float> a = std::vector<float>(kBlockM * kBlockK);
  std::vector<float> b = std::vector<float>(kBlockN * kBlockK);
};
inline Space& space() {
  thread_local Space kept;
  return kept;
}

inline int round_up(int length, int tile) { return (length + tile - 1) / tile * tile; }

inline void pack_block_a(const Gemm& g, Range m, Range k, float* packed) {
  for (int i = m.begin; i < m.end; i += kRows, packed += kRows * k.size()) {
    pack_a(g.a + i * g.k + k.begin, g.k, std::min(kRows, m.end - i), k.size(), packed);
  }
}

inline void pack_block_b(const Gemm& g, Range n, Range k, float* packed) {
  for (int j = n.begin; j < n.end; j += kColumns, packed += kColumns * k.size()) {
    pack_b(g.b + k.begin * g.n + j, g.n, std::min(kColumns, n.end - j), k.size(), packed);
  }
}

// Part `index` of `count` of a length, in whole tiles.
inline Range part(int length, int tile, int count, int index) {
  const int tiles = round_up(length, tile) / tile;
  return {std::min(length, tiles * index / count * tile),
          std::min(length, tiles * (index + 1) / count * tile)};
}

}  // namespace ladder
