// A kernel of the blocked GEMM, as the code that drives it sees it.
#pragma once

#include "tessera/device/cpu/block.h"
#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/pack.h"

namespace tessera::device {

// Sizes, and functions on what depends on them or on the output. Shapes of the same operands share
// one driver.
template <class T>
struct PackedShape {
  i64 rows, columns;           // of a register block
  i64 tile_m, tile_n, tile_k;  // of a block of the output in cache, and of k
  int wave_m, wave_n, wave_k;  // most threads over m, n and k; 0: the caller's limit
  bool packs_a, packs_b;       // into panels; else read in place
  ElementSizes sizes;
  bool sums_are_output;  // when nothing is to scale or to add
  void (*multiply)(const BlockTask& t, i64 rows, int columns);
  void (*multiply_converting)(const BlockTask& t);  // a whole block into the output; may be null
  void (*pack_a)(const PanelSource<typename T::A>& s, u32* panel);
  void (*pack_b)(const PanelSource<typename T::B>& s, u32* panel);
  Finish<GemmArguments> finish;
};

// No register block has more sums: a vector in each register of the largest register files.
inline constexpr int kMostSums = 32 * kLanes;

}  // namespace tessera::device
