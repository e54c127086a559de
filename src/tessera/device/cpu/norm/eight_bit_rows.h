// What rows with outputs of 8 bits share on a CPU: the greatest magnitude, scales, and stores.
#pragma once

#include "tessera/device/cpu/eight_bits.h"
#include "tessera/device/cpu/sums.h"
#include "tessera/device/norm.h"

namespace tessera::device {

// The greatest magnitude of vectors, NaN left out. Numbers are those of for_each_vector().
struct Greatest {
  f32v of[4] = {};
  [[gnu::always_inline]] void add(f32v v, int number) {
    const f32v magnitude = bits_as<f32v>(bits_as<u32v>(v) & 0x7fffffffU);
    f32v& most = of[number & 3];
    most = magnitude > most ? magnitude : most;
  }
  [[gnu::always_inline]] float all() const {
    const f32v most = max(max(of[0], of[1]), max(of[2], of[3]));
    return most_of_lanes<kLanes / 2>(most, AllLanes{});
  }
};

template <class C>
struct EightBitRows {
  using Out = typename C::Out;
  static constexpr float kLargest = __is_same(Out, fp8) ? 448.0F : 57344.0F;

  static float scale_of(const Greatest& greatest) { return quant_scale(greatest.all(), kLargest); }

  // Where a block's scale lies.
  static float& block_scale(const NormArguments& g, i64 row, i64 column) {
    return g.out_scales[row * g.row_of_scales + column / kQuantBlock * g.block_of_scales];
  }

  // Keeps a vector of results in x, whose lanes behind the row count as 0.
  [[gnu::always_inline]] static void keep(float* x, f32v y, int lanes, int number,
                                          Greatest& greatest) {
    store(x, y);
    greatest.add(lanes == kLanes ? y : load_float(x, lanes), number);
  }

  // A block of columns with a scale of its own. result(i, lanes) makes some lanes of it, which lie
  // in registers where there are registers for all.
  template <class Result>
  [[gnu::always_inline]] static void write_block(float& scale, Out* out, int width, Result result) {
    Greatest greatest;
    if (width == kQuantBlock) {
      constexpr int kVectors = kQuantBlock / kLanes;
      f32v y[kVectors];
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) greatest.add(y[v] = result(v * kLanes, kLanes), v);
      scale = scale_of(greatest);
      const float factor = 1.0F / scale;
#pragma GCC unroll 32
      for (int v = 0; v < kVectors; ++v) store_rounded(out + v * kLanes, y[v] * factor, kLanes);
      return;
    }
    alignas(kVectorBytes) float x[kQuantBlock];
    for_each_vector(width, [&](int i, int lanes, int number) {
      keep(x + i, result(i, lanes), lanes, number, greatest);
    });
    scale = scale_of(greatest);
    store_over(out, x, width, scale);
  }

  static void store_over(Out* to, const float* x, int count, float scale) {
    const float factor = 1.0F / scale;
    for_each_vector(count, [=](int i, int lanes, int) {
      store_rounded(to + i, load_float(x + i, lanes) * factor, lanes);
    });
  }
};

}  // namespace tessera::device
