// The statistics of a chunk of a row on a CPU, which lies in the first cache as floats.
#pragma once

#include "tessera/device/cpu/rows.h"
#include "tessera/device/cpu/sums.h"
#include "tessera/device/norm.h"

namespace tessera::device {

template <class C>
struct ChunkStatistics {
  using In = typename C::In;
  static constexpr bool kSoftmax = C::kKind == NormKind::softmax;
  // Half a vector of inputs is asked for with each vector; so many of them are a line.
  static constexpr int kOfLine = 128 / (kLanes * static_cast<int>(sizeof(In)));
  static constexpr int kPrefetchEach = kOfLine < 4 ? kOfLine : 4;

  struct alignas(kVectorBytes) Chunk {
    float x[C::kTileN];
  };

  // The inputs of a row, from a column on.
  struct Inputs {
    const In *in, *residual;
    [[gnu::always_inline]] void prefetch(int i) const {
      __builtin_prefetch(in + i);
      if (C::kResidual) __builtin_prefetch(residual + i);
    }
  };

  // What the first look at a chunk tells, four vectors side by side: softmax the maximum, layernorm
  // the sum, rmsnorm the sum of squares.
  struct First {
    f32v of[4];
    First() : of{splat(kNone), splat(kNone), splat(kNone), splat(kNone)} {}
    static constexpr float kNone = kSoftmax ? -__builtin_inff() : 0.0F;
    [[gnu::always_inline]] void add(f32v x, int number) {
      f32v& all = of[number & 3];
      if constexpr (kSoftmax) {
        all = max(x, all);
      } else {
        all = all + (C::kKind == NormKind::layernorm ? x : x * x);
      }
    }
    // The vector of `count` columns that is not whole.
    void add_last(Chunk& chunk, int count) {
      if (count % kLanes == 0) return;
      pad_lanes(chunk.x, count, kNone);
      add(load<f32v>(chunk.x + count / kLanes * kLanes), -1);
    }
    [[gnu::always_inline]] float all() const {
      if constexpr (kSoftmax) {
        return most_of_lanes<kLanes / 2>(max(max(of[0], of[1]), max(of[2], of[3])), AllLanes{});
      } else {
        return sum_of_lanes((of[0] + of[1]) + (of[2] + of[3]));
      }
    }
  };

  // The sum of term(i, x). Memory is slow enough to be busy meanwhile: half of what is read next
  // comes now, half while results are written.
  template <class Term>
  [[gnu::always_inline]] static float sum_beside(const Chunk& chunk, int count, Inputs next,
                                                 Term term) {
    f32v sums[4] = {};
    const auto one = [&](int i, int, int number) __attribute__((always_inline)) {
      if (number >= 0 && number % kPrefetchEach == 0) next.prefetch(i / 2);
      f32v& sum = sums[number & 3];
      sum = sum + term(i, load<f32v>(chunk.x + i));
    };
    for_each_vector(count, one);
    return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }

  // softmax leaves exp(x - maximum) in the chunk.
  static NormStatistics of(Chunk& chunk, int count, const First& first, Inputs next) {
    const float n = static_cast<float>(count);
    const float all = first.all();
    if constexpr (kSoftmax) {
      const float offset = offset_of(all);
      return {n, all, sum_beside(chunk, count, next, [&](int i, f32v v) {
                const f32v y = exp_of_negative(v - offset);
                store(chunk.x + i, y);
                return y;
              })};
    } else if constexpr (C::kKind == NormKind::layernorm) {
      const float mean = all / n;
      pad_lanes(chunk.x, count, mean);
      return {n, mean,
              sum_beside(chunk, count, next, [&](int, f32v v) { return (v - mean) * (v - mean); })};
    } else {
      return {n, 0, all};
    }
  }
};

}  // namespace tessera::device
