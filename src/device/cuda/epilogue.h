// What happens to finished accumulators: alpha, beta * C, the chain of epilogue steps, conversion.
#pragma once

#include "tessera/device/cuda/math.h"

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
};

constexpr bool takes_one_d(Step s) {
  return s == Step::bias || s == Step::add || s == Step::multiply || s == Step::row_scale ||
         s == Step::col_scale;
}
constexpr bool takes_all_d(Step s) { return s == Step::multi_d_add || s == Step::multi_d_multiply; }
constexpr bool multiplies(Step s) {
  return s == Step::multiply || s == Step::row_scale || s == Step::col_scale ||
         s == Step::multi_d_multiply;
}

// Where two neighbours of an output row lie. `count`: how many of them exist, 0 where the row does
// not; C, D and out are touched nowhere else. `column` must be even.
struct Place {
  i64 batch, row, column;
  int count;
};

struct Values {
  float x, y;
};

// Finishes pairs of accumulators. Make one per thread: its constructor looks at alignments.
template <class C>
class Finish {
 public:
  using Acc = typename C::Acc;
  using Out = typename C::Out;
  using D = typename C::D;

  __device__ __forceinline__ explicit Finish(const GemmArguments& arguments) : g(arguments) {
    out_in_pairs = pairs_aligned<Out>(g.out, g.ld_out, g.batch_stride_out);
    c_in_pairs = pairs_aligned<Out>(g.c, g.ld_c, g.batch_stride_c);
#pragma unroll
    for (int i = 0; i < C::kNumD; ++i) {
      const i64 ld = is_matrix(i) ? g.ld_d[i] : 0;
      d_in_pairs[i] = pairs_aligned<D>(g.d[i], ld, g.batch_stride_d[i]);
    }
  }

  // The output's bits for the accumulators x and y of `at`.
  __device__ __forceinline__ PairBits<Out> finish(const Place& at, Acc x, Acc y) const {
    if constexpr (kSame<Out, int>) {  // exact, modulo 2^32
      static_assert(C::kNumSteps == 0, "int32 output takes no epilogue steps");
      const u32 alpha = static_cast<int>(g.alpha);
      u32 first = static_cast<u32>(x) * alpha;
      u32 second = static_cast<u32>(y) * alpha;
      if (g.beta != 0) {
        const u32 beta = static_cast<int>(g.beta);
        const u64 c = load_c(at);
        first += first_of<int>(c) * beta;
        second += second_of<int>(c) * beta;
      }
      return u64{second} << 32 | first;
    } else {
      Values v = {static_cast<float>(x) * g.alpha, static_cast<float>(y) * g.alpha};
      if (g.beta != 0) {
        const PairBits<Out> c = load_c(at);
        v.x += float_of_bits<Out>(first_of<Out>(c)) * g.beta;
        v.y += float_of_bits<Out>(second_of<Out>(c)) * g.beta;
      }
      v = apply_steps<0, 0>(v, at);
      return round_pair<Out>(v.x, v.y);
    }
  }

  // Writes what finish() returned.
  __device__ __forceinline__ void store(const Place& at, PairBits<Out> pair) const {
    Out* out = static_cast<Out*>(g.out) + at.batch * g.batch_stride_out + at.row * g.ld_out;
    store_pair<Out>(out + at.column, pair, at.count, out_in_pairs);
  }

 private:
  // Whether D tensor `index` has rows of its own. Vectors come one to a step.
  static constexpr bool is_matrix(int index) {
    if constexpr (C::kNumSteps > 0) {
      int used = 0;
      for (const Step step : C::kSteps) {
        if (takes_one_d(step) && used++ == index) {
          return step == Step::add || step == Step::multiply;
        }
      }
    }
    return true;
  }

  __device__ __forceinline__ PairBits<Out> load_c(const Place& at) const {
    const Out* c = static_cast<const Out*>(g.c) + at.batch * g.batch_stride_c + at.row * g.ld_c;
    return load_pair<Out>(c + at.column, at.count, c_in_pairs);
  }

  template <Step kOp>
  __device__ __forceinline__ Values load_d(int index, const Place& at) const {
    const D* d = static_cast<const D*>(g.d[index]) + at.batch * g.batch_stride_d[index];
    if constexpr (kOp == Step::row_scale) {
      const float scale = at.count > 0 ? to_float(d[at.row]) : 0.0F;
      return {scale, scale};
    } else {
      constexpr bool kIsVector = kOp == Step::bias || kOp == Step::col_scale;
      const D* row = d + (kIsVector ? 0 : at.row * g.ld_d[index]);
      const bool whole = d_in_pairs[index];
      const PairBits<D> pair = load_pair<D>(row + at.column, at.count, whole);
      return {float_of_bits<D>(first_of<D>(pair)), float_of_bits<D>(second_of<D>(pair))};
    }
  }

  template <Step kOp>
  __device__ __forceinline__ Values combine(Values v, int index, const Place& at) const {
    const Values d = load_d<kOp>(index, at);
    if constexpr (multiplies(kOp)) return {v.x * d.x, v.y * d.y};
    return {v.x + d.x, v.y + d.y};
  }

  template <Step kOp>
  __device__ __forceinline__ float apply(float x) const {
    if constexpr (kOp == Step::relu) return x <= 0 ? 0.0F : x;
    if constexpr (kOp == Step::gelu) return gelu(x);
    if constexpr (kOp == Step::gelu_tanh) return gelu_tanh(x);
    if constexpr (kOp == Step::silu) return silu(x);
    if constexpr (kOp == Step::sigmoid) return sigmoid(x);
    if constexpr (kOp == Step::tanh) return tanh_fast(x);
    if constexpr (kOp == Step::clamp) {
      x = x < g.clamp_lo ? g.clamp_lo : x;
      return x > g.clamp_hi ? g.clamp_hi : x;
    }
  }

  // The steps from number kStep on, when kUsed D tensors have been taken.
  template <int kStep, int kUsed>
  __device__ __forceinline__ Values apply_steps(Values v, const Place& at) const {
    if constexpr (kStep == C::kNumSteps) {
      return v;
    } else {
      constexpr Step kOp = C::kSteps[kStep];
      if constexpr (takes_one_d(kOp)) {
        return apply_steps<kStep + 1, kUsed + 1>(combine<kOp>(v, kUsed, at), at);
      } else if constexpr (takes_all_d(kOp)) {
#pragma unroll
        for (int i = kUsed; i < C::kNumD; ++i) v = combine<kOp>(v, i, at);
        return apply_steps<kStep + 1, C::kNumD>(v, at);
      } else {
        return apply_steps<kStep + 1, kUsed>({apply<kOp>(v.x), apply<kOp>(v.y)}, at);
      }
    }
  }

  const GemmArguments& g;
  bool out_in_pairs, c_in_pairs;
  bool d_in_pairs[C::kNumD > 0 ? C::kNumD : 1];
};

}  // namespace tessera::device
