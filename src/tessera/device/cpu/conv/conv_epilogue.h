// What all convolutions of a CPU share: the types of a direction, and the epilogue of a rectangle
// of the result.
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cpu/conv/few_lanes.h"
#include "tessera/device/cpu/epilogue.h"

namespace tessera::device {

template <bool kFirst, class A, class B>
struct Choose {
  using type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using type = B;
};

template <class C>
struct ConvTypes {
  static constexpr bool kForward = C::kDirection == ConvDirection::forward;
  static constexpr bool kWeights = C::kDirection == ConvDirection::backward_weight;
  // The result is a matrix whose rows are pixels (nhwgc) or channels (nchw), or channels of y
  // (filters). So are its factors.
  using Image = typename Choose<kForward, typename C::X, typename C::Y>::type;
  using Row = typename Choose<kWeights, typename C::Y,
                              typename Choose<C::kChannelsLast, Image, typename C::W>::type>::type;
  using Column =
      typename Choose<kWeights, typename C::X,
                      typename Choose<C::kChannelsLast, typename C::W, Image>::type>::type;
  using Out = typename Choose<kForward, typename C::Y,
                              typename Choose<kWeights, typename C::W, typename C::X>::type>::type;
  using Sums = typename Choose<__is_same(typename C::Acc, int), i32v, f32v>::type;
};

// The fields of Config that say which sums are formed.
template <ConvDirection kOfWhat, bool kLast, class TypeX, class TypeW, class TypeY, class TypeAcc>
struct ConvSums {
  using X = TypeX;
  using W = TypeW;
  using Y = TypeY;
  using Acc = TypeAcc;
  static constexpr ConvDirection kDirection = kOfWhat;
  static constexpr bool kChannelsLast = kLast;
};

// The fields of Config that epilogue.h reads. In nchw channels lie along rows.
template <class C>
struct ConvEpilogue {
  using Out = typename ConvTypes<C>::Out;
  using D = typename C::D;
  struct Math {
    using Acc = typename ConvTypes<C>::Sums;
  };
  static constexpr int kNumSteps = C::kNumSteps, kNumD = C::kNumD;
  struct Steps {
    constexpr Step operator[](int i) const {
      if constexpr (kNumSteps == 0) {
        return Step::relu;
      } else {
        const Step step = C::kSteps[i];
        if (!C::kChannelsLast && step == Step::bias) return Step::row_bias;
        if (!C::kChannelsLast && step == Step::col_scale) return Step::row_scale;
        return step;
      }
    }
  };
  static constexpr Steps kSteps{};

  // Whether D tensor `index` has an element for each channel.
  static constexpr bool is_vector(int index) {
    int used = 0;
    for (int i = 0; i < kNumSteps; ++i) {
      const Step step = kSteps[i];
      if (!takes_one_d(step)) continue;
      if (used++ == index) return step != Step::add && step != Step::multiply;
    }
    return false;
  }
};

// A rectangle of the result in memory, in elements from the result's first one.
struct ConvRectangle {
  i64 at;  // of row 0, column 0
  i64 rows, columns, row_stride, column_stride;
  i64 channel;  // of row 0 or column 0, of all groups
};

// Turns raw sums (32-bit, `ld` words between rows) into a rectangle of the result.
using ConvFinish = void (*)(const ConvArguments& g, const ConvRectangle& r, const u32* sums,
                            i64 ld);

// What finish_rectangle() takes.
struct ConvOutput {
  void* out;
  const void* c;
  const void* d[4];
  i64 ld_out, ld_c, ld_d[4];
  float alpha, beta, clamp_lo, clamp_hi;
};

// Columns that are not neighbours go through a buffer; only gradients have such, which take no
// steps.
template <class C>
void finish_apart(ConvOutput o, const ConvRectangle& r, const u32* sums, i64 ld) {
  using Out = typename ConvTypes<C>::Out;
  constexpr int kMost = 64;
  Out result[kMost];
  Out* const out = static_cast<Out*>(o.out);
  const Out* const before = static_cast<const Out*>(o.c);
  o.c = result;
  o.out = result;
  for (i64 i = 0; i < r.rows; ++i) {
    for (i64 j = 0; j < r.columns; j += kMost) {
      const i64 count = smaller(kMost, r.columns - j);
      const i64 at = i * r.row_stride + j * r.column_stride;
      for (i64 x = 0; x < count && o.beta != 0; ++x) result[x] = before[at + x * r.column_stride];
      finish_rectangle<ConvEpilogue<C>>(o, sums + i * ld + j, ld, 1, count, Place{0, 0, 0});
      for (i64 x = 0; x < count; ++x) out[at + x * r.column_stride] = result[x];
    }
  }
}

// Sums that become the result by a conversion alone.
template <class Out>
[[gnu::noinline]] void store_sums(const ConvRectangle& r, const u32* sums, i64 ld, Out* out) {
  for (i64 i = 0; i < r.rows; ++i, sums += ld, out += r.row_stride) {
    i64 j = 0;
    for (; j + kLanes <= r.columns; j += kLanes) {
      store_float(out + j, load<f32v>(sums + j), kLanes);
    }
    if (j == r.columns) continue;
    const int rest = static_cast<int>(r.columns - j);
    const f32v last = load_first<f32v>(sums + j, rest);
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if constexpr (sizeof(Out) == 2) {
      store_few_halves(out + j, narrow_bits(Out{}, last), rest);
      continue;
    }
#endif
    store_float(out + j, last, rest);
  }
}

template <class T>
const T* moved(const void* p, i64 elements) {
  return p == nullptr ? nullptr : static_cast<const T*>(p) + elements;
}

template <class C>
void finish_conv(const ConvArguments& g, const ConvRectangle& r, const u32* sums, i64 ld) {
  using E = ConvEpilogue<C>;
  using Out = typename E::Out;
  using D = typename C::D;
  if constexpr (C::kNumSteps == 0 && __is_same(typename E::Math::Acc, f32v) &&
                !is_int8<Out>::value && !__is_same(Out, int)) {
    if (g.alpha == 1.0F && g.beta == 0.0F && (r.column_stride == 1 || r.columns == 1)) {
      return store_sums(r, sums, ld, static_cast<Out*>(g.out) + r.at);
    }
  }
  ConvOutput o{};
  o.out = static_cast<Out*>(g.out) + r.at;
  o.c = moved<Out>(g.before, r.at);
  o.ld_out = o.ld_c = r.row_stride;
  for (int i = 0; i < C::kNumD; ++i) {
    o.d[i] = static_cast<const D*>(g.d[i]) + (E::is_vector(i) ? r.channel : r.at);
    o.ld_d[i] = r.row_stride;
  }
  o.alpha = g.alpha, o.beta = g.beta, o.clamp_lo = g.clamp_lo, o.clamp_hi = g.clamp_hi;
  if constexpr (!ConvTypes<C>::kForward) {
    if (r.column_stride != 1 && r.columns > 1) return finish_apart<C>(o, r, sums, ld);
  }
  finish_rectangle<E>(o, sums, ld, r.rows, r.columns, Place{0, 0, 0});
}

}  // namespace tessera::device
