// Finishes accumulators, four neighbours of a row at a time: alpha, beta * C, the chain of epilogue
// steps, conversion. The rules stand in cuda/epilogue.h, which also says what Arguments has.
#pragma once

#include "tessera/device/hip/math.h"

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

// The place of four neighbours in an output row, of which `count` exist; none may.
struct Place {
  i64 row, column;
  int count;
};

// Make one for each batch, because the constructor checks alignments.
template <class C, class Arguments>
class Finish {
 public:
  using Acc = typename C::Acc;
  using Out = typename C::Out;
  using D = typename C::D;
  static constexpr bool kExact = kSame<Out, int>;  // modulo 2^32
  static_assert(!kExact || C::kNumSteps == 0, "int32 output takes no epilogue steps");

  __device__ __forceinline__ Finish(const Arguments& arguments, i64 batch) : g(arguments) {
    const bool in_array = g.pointer_arrays != 0;
    out = const_cast<Out*>(matrix_of<Out>(g.out, g.batch_stride_out, batch, in_array));
    out_in_quads = quads_aligned(out, g.ld_out);
    c = matrix_of<Out>(g.c, g.batch_stride_c, batch, in_array);
    c_in_quads = quads_aligned(c, g.ld_c);
#pragma unroll
    for (int i = 0; i < C::kNumD; ++i) {
      d[i] = matrix_of<D>(g.d[i], g.batch_stride_d[i], batch, in_array);
      d_in_quads[i] = quads_aligned(d[i], (kMatrices >> i & 1) != 0 ? g.ld_d[i] : 0);
    }
  }

  // Stores the output for the sums of `at`.
  __device__ __forceinline__ void store(const Place& at, const Vec<Acc, 4>& sums) const {
    if (at.count <= 0) return;
    store_quad<Out>(out + at.row * g.ld_out + at.column, finish(at, sums), at.count, out_in_quads);
  }

  // What the epilogue makes of the sums of `at`, before it is rounded.
  __device__ __forceinline__ Float4 result(const Place& at, const Vec<Acc, 4>& sums) const {
    Float4 v;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = static_cast<float>(sums[i]) * g.alpha;
    if (g.beta != 0) {
      const Out* const from = c + at.row * g.ld_c + at.column;
      v += floats_of<Out>(load_quad<Out>(from, at.count, c_in_quads)) * g.beta;
    }
    return apply_steps<0, 0>(v, at);
  }

 private:
  __device__ __forceinline__ Quad<Out> finish(const Place& at, const Vec<Acc, 4>& sums) const {
    if constexpr (kExact) {
      const Out* const from = c + at.row * g.ld_c + at.column;
      Quad<Out> v;
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = static_cast<u32>(sums[i]) * static_cast<u32>(int(g.alpha));
      if (g.beta != 0) {
        const Quad<Out> old = load_quad<Out>(from, at.count, c_in_quads);
        v += old * static_cast<u32>(int(g.beta));
      }
      return v;
    } else {
      return round_quad<Out>(result(at, sums));
    }
  }

  // The D tensors that have rows of their own, a bit for each. A step takes at most one vector.
  static constexpr u32 matrices() {
    u32 all = 15;
    if constexpr (C::kNumSteps > 0) {
      int used = 0;
      for (const Step step : C::kSteps) {
        if (!takes_one_d(step)) continue;
        if (step != Step::add && step != Step::multiply) all &= ~(1U << used);
        ++used;
      }
    }
    return all;
  }
  static constexpr u32 kMatrices = matrices();

  template <Step kOp>
  __device__ __forceinline__ Float4 load_d(int index, const Place& at) const {
    if constexpr (kOp == Step::row_scale) {
      return Float4(to_float(d[index][at.row]));
    } else {
      constexpr bool kIsVector = kOp == Step::bias || kOp == Step::col_scale;
      const D* row = d[index] + (kIsVector ? 0 : at.row * g.ld_d[index]);
      return floats_of<D>(load_quad<D>(row + at.column, at.count, d_in_quads[index]));
    }
  }
  template <Step kOp>
  __device__ __forceinline__ Float4 combine(const Float4& v, int index, const Place& at) const {
    const Float4 other = load_d<kOp>(index, at);
    if constexpr (multiplies(kOp)) return v * other;
    return v + other;
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

  // Applies the steps from number kStep on, after kUsed D tensors have been used.
  template <int kStep, int kUsed>
  __device__ __forceinline__ Float4 apply_steps(Float4 v, const Place& at) const {
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
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = apply<kOp>(v[i]);
        return apply_steps<kStep + 1, kUsed>(v, at);
      }
    }
  }

  static constexpr int kTensors = C::kNumD > 0 ? C::kNumD : 1;
  const Arguments& g;
  Out* out;  // the batch's output; c and d are the batch's too
  const Out* c;
  const D* d[kTensors];
  bool out_in_quads, c_in_quads;
  bool d_in_quads[kTensors];
};

}  // namespace tessera::device
