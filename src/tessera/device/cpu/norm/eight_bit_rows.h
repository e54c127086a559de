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
    f32v& most = of[number & 3];
    most = greater_magnitude(v, most);
  }
  [[gnu::always_inline]] f32v each() const { return max(max(of[0], of[1]), max(of[2], of[3])); }
  [[gnu::always_inline]] float all() const { return most_of_lanes<kLanes / 2>(each(), AllLanes{}); }
};

template <class C>
struct EightBitRows {
  using Out = typename C::Out;
  static constexpr float kLargest = EightBits<Out>::kLargest;

  static float scale_of(const Greatest& greatest) { return quant_scale(greatest.all(), kLargest); }

  // Keeps a vector of results in x, whose lanes behind the row count as 0.
  [[gnu::always_inline]] static void keep(float* x, f32v y, int lanes, int number,
                                          Greatest& greatest) {
    store(x, y);
    greatest.add(lanes == kLanes ? y : load_float(x, lanes), number);
  }

  static void store_over(Out* to, const float* x, int count, float factor) {
    RoundedStores<Out> stores;
    for_each_vector(
        count, [&](int i, int lanes, int number) __attribute__((always_inline)) {
          stores.put(to + i, load_float(x + i, lanes) * factor, lanes, number);
        });
  }

  // ---- blocks of columns with a scale of their own ----

  // Where the scale of a column's block lies.
  static float* scales_from(const NormArguments& g, i64 row, i64 column) {
    return g.out_scales + row * g.row_of_scales + column / kQuantBlock * g.block_of_scales;
  }

  // The scales of as many blocks as a vector has lanes, each from a vector of magnitudes.
  static f32v scales_of(u32v (&most)[kLanes]) {
    transpose(most);
    f32v all = bits_as<f32v>(most[0]);
    for (int i = 1; i < kLanes; ++i) all = max(all, bits_as<f32v>(most[i]));
    return select(all < 0x1p-100F, splat(1.0F), all / kLargest);
  }

  // Makes `count` results by result(i, lanes, number) in x, where they stay, and writes them.
  // Scales lie `step` apart.
  template <class Result>
  [[gnu::always_inline]] static void write_blocks(float* scales, i64 step, Out* out, float* x,
                                                  int count, Result result) {
    constexpr int kTogether = kLanes * kQuantBlock;
    for (int from = 0; from < count; from += kTogether) {
      u32v most[kLanes] = {};
      const int end = static_cast<int>(smaller(from + kTogether, count));
      for (int at = from, block = 0; at < end; at += kQuantBlock, ++block) {
        Greatest greatest;
        for_each_vector(
            static_cast<int>(smaller(end - at, kQuantBlock)), [&](int i, int lanes, int number)
                                                                  __attribute__((always_inline)) {
                                                                    keep(x + at + i,
                                                                         result(at + i, lanes,
                                                                                number),
                                                                         lanes, number, greatest);
                                                                  });
        most[block] = bits_as<u32v>(greatest.each());
      }
      alignas(kVectorBytes) float own[kLanes], factors[kLanes];
      const f32v all = scales_of(most);
      store(own, all);
      store(factors, 1.0F / all);
      for (int at = from, block = 0; at < end; at += kQuantBlock, ++block, scales += step) {
        *scales = own[block];
        store_over(out + at, x + at, static_cast<int>(smaller(end - at, kQuantBlock)),
                   factors[block]);
      }
    }
  }
};

}  // namespace tessera::device
