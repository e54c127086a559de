// The description of a blocked GEMM's kernel for the driver code.
#pragma once

#include "tessera/device/cpu/block.h"
#include "tessera/device/cpu/epilogue.h"
#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/pack.h"

namespace tessera::device {

// The sizes of a kernel, and the functions that depend on them or on the output. Shapes with the
// same operands share one driver.
template <class T>
struct PackedShape {
  i64 rows, columns;           // of a register block
  i64 tile_m, tile_n, tile_k;  // the cache block: rows, columns, k
  int scaled_k;                // elements of k whose sums are scaled together; 0: none are
  int wave_m, wave_n, wave_k;  // most threads over m, n and k; 0: the caller's limit
  bool packs_a, packs_b;       // whether it is packed into panels; otherwise it is read in place
  bool asks_ahead;             // register blocks ask for what the next panel of B is packed of
  ElementSizes sizes;
  bool sums_are_output;  // when alpha is 1 and beta is 0
  void (*multiply)(const BlockTask& t, i64 rows, int columns);
  void (*multiply_converting)(const BlockTask& t);  // a whole block into the output; may be null
  void (*pack_a)(const PanelSource<typename T::A>& s, u32* panel);
  void (*pack_b)(const PanelSource<typename T::B>& s, u32* panel);
  Finish<GemmArguments> finish;
};

// The words of k that a register block takes at a time. Panels hold whole multiples of them.
template <class Math>
inline constexpr int kWordsAtOnce = 1;

// The most sums of a register block: one vector in each of 32 registers.
template <class Math>
inline constexpr int kMostSums = 32 * kLanes;

// What a configuration gives, for kernels of the blocked GEMM; the rest is the kernel's.
template <class C, class Types>
constexpr PackedShape<Types> configured_shape() {
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kTileM % C::kWarpTileM == 0, "tile_m must be a multiple of warp_tile_m");
  static_assert(C::kTileN % C::kWarpTileN == 0, "tile_n must be a multiple of warp_tile_n");
  static_assert(C::kNumD >= 0 && C::kNumD <= 4, "at most 4 D tensors");
  PackedShape<Types> s{};
  s.rows = C::kWarpTileM, s.columns = C::kWarpTileN;
  s.tile_m = C::kTileM, s.tile_n = C::kTileN, s.tile_k = C::kTileK;
  s.wave_m = C::kWaveM, s.wave_n = C::kWaveN, s.wave_k = C::kWaveK;
  s.packs_a = C::kPackA, s.packs_b = C::kPackB;
  s.sizes = sizes_of<C>();
  s.sums_are_output = sums_are_output<C>();
  s.finish = finish_rectangle<C>;
  return s;
}

}  // namespace tessera::device
