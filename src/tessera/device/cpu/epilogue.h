// Finishes accumulators: alpha, beta * C, the chain of epilogue steps, conversion. Arguments is the
// operation's own struct; the fields that are read here have the same names for every operation.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/math.h"

namespace tessera::device {

enum class Step {
  bias,
  add,
  multiply,
  row_scale,
  col_scale,
  multi_d_add,
  multi_d_multiply,
  relu,
  gelu,
  gelu_tanh,
  silu,
  sigmoid,
  tanh,
  clamp,
  row_bias,  // bias where channels lie along rows
};

constexpr bool takes_one_d(Step s) {
  return s == Step::bias || s == Step::add || s == Step::multiply || s == Step::row_scale ||
         s == Step::col_scale || s == Step::row_bias;
}
constexpr bool takes_all_d(Step s) { return s == Step::multi_d_add || s == Step::multi_d_multiply; }

template <class C, Step kOp, class Arguments>
[[gnu::always_inline]] inline f32v load_d(const Arguments& g, int index, const Place& at) {
  using D = typename C::D;
  const D* d = static_cast<const D*>(g.d[index]);
  if constexpr (kOp == Step::row_scale || kOp == Step::row_bias) {
    return splat(load_float<D>(d + at.row, 1)[0]);
  } else {
    constexpr bool kIsVector = kOp == Step::bias || kOp == Step::col_scale;
    return load_float<D>(d + (kIsVector ? 0 : at.row * g.ld_d[index]) + at.column, at.count);
  }
}

template <class C, int kStep, int kUsed, class Arguments>
[[gnu::always_inline]] inline f32v apply_steps(const Arguments& g, f32v x, const Place& at) {
  if constexpr (kStep == C::kNumSteps) {
    return x;
  } else {
    constexpr Step kOp = C::kSteps[kStep];
    if constexpr (takes_one_d(kOp)) {
      const f32v d = load_d<C, kOp>(g, kUsed, at);
      constexpr bool kAdds = kOp == Step::bias || kOp == Step::add || kOp == Step::row_bias;
      const f32v y = kAdds ? x + d : x * d;
      return apply_steps<C, kStep + 1, kUsed + 1>(g, y, at);
    } else if constexpr (takes_all_d(kOp)) {
      for (int i = kUsed; i < C::kNumD; ++i) {
        const f32v d = load_d<C, kOp>(g, i, at);
        x = kOp == Step::multi_d_multiply ? x * d : x + d;
      }
      return apply_steps<C, kStep + 1, C::kNumD>(g, x, at);
    } else {
      if constexpr (kOp == Step::relu) x = select(x <= f32v{}, f32v{}, x);
      if constexpr (kOp == Step::gelu) x = gelu(x);
      if constexpr (kOp == Step::gelu_tanh) x = gelu_tanh(x);
      if constexpr (kOp == Step::silu) x = silu(x);
      if constexpr (kOp == Step::sigmoid) x = sigmoid(x);
      if constexpr (kOp == Step::tanh) x = tanh(x);
      if constexpr (kOp == Step::clamp) {
        x = select(x < splat(g.clamp_lo), splat(g.clamp_lo), x);
        x = select(x > splat(g.clamp_hi), splat(g.clamp_hi), x);
      }
      return apply_steps<C, kStep + 1, kUsed>(g, x, at);
    }
  }
}

// Turns raw accumulators into output elements at `at`.
template <class C, class Arguments>
[[gnu::always_inline]] inline void finish(const Arguments& g, typename C::Math::Acc acc,
                                          const Place& at) {
  using Out = typename C::Out;
  Out* out = static_cast<Out*>(g.out) + at.row * g.ld_out + at.column;
  const Out* c = static_cast<const Out*>(g.c) + at.row * g.ld_c + at.column;
  if constexpr (__is_same(Out, int)) {  // exact, modulo 2^32
    static_assert(C::kNumSteps == 0, "int32 output takes no epilogue steps");
    i32v x = acc * static_cast<int>(g.alpha);
    if (g.beta != 0) x += load_first<i32v>(c, at.count) * static_cast<int>(g.beta);
    store_first(out, x, at.count);
  } else {
    f32v x;
    if constexpr (__is_same(typename C::Math::Acc, i32v)) {
      x = __builtin_convertvector(acc, f32v) * g.alpha;
    } else {
      x = acc * g.alpha;
    }
    if (g.beta != 0) x += load_float<Out>(c, at.count) * g.beta;
    store_float<Out>(out, apply_steps<C, 0, 0>(g, x, at), at.count);
  }
}

// Whether accumulators are already the output, provided that alpha is 1 and beta is 0.
template <class C>
constexpr bool sums_are_output() {
  using Acc = typename C::Math::Acc;
  constexpr bool kSameType = (__is_same(Acc, f32v) && __is_same(typename C::Out, float)) ||
                             (__is_same(Acc, i32v) && __is_same(typename C::Out, int));
  return kSameType && C::kNumSteps == 0;
}

// Whether accumulators then become the output by a conversion to a 16-bit float alone.
template <class C>
constexpr bool sums_convert() {
  return __is_same(typename C::Math::Acc, f32v) && sizeof(typename C::Out) == 2 &&
         C::kNumSteps == 0;
}

// Finishes a rectangle of raw accumulators (32-bit, `ld` words between rows) into the output of one
// batch. The arguments are copied, because the compiler would otherwise assume that stores to the
// output change them.
template <class C, class Arguments>
[[gnu::noinline]] void finish_rectangle(const Arguments& arguments, const u32* acc, i64 ld,
                                        i64 rows, i64 columns, Place at) {
  using Acc = typename C::Math::Acc;
  const Arguments g = arguments;
  const i64 whole = columns / kLanes * kLanes;
  // One loop for every shape, so that the constants of an epilogue are loaded into registers once.
  i64 i = 0, j = 0;
  for (i64 left = whole / kLanes * rows; left > 0; --left) {
    finish<C>(g, load<Acc>(acc + i * ld + j), {at.row + i, at.column + j, kLanes});
    j += kLanes;
    if (j == whole) {
      j = 0;
      ++i;
    }
  }
  if (whole == columns) return;
  const int count = static_cast<int>(columns - whole);
  for (i = 0; i < rows; ++i) {
    const auto x = load_first<Acc>(acc + i * ld + whole, count);
    finish<C>(g, x, {at.row + i, at.column + whole, count});
  }
}

}  // namespace tessera::device
