// Finishes accumulators: alpha, beta * C, the chain of epilogue steps, conversion.
//
// Here and in the stores, Arguments is an operation's own struct, and the output is a matrix for
// each batch. Such a struct has, under these names, c, d, out; ld_c, ld_d, ld_out; batch_stride_c,
// batch_stride_d, batch_stride_out; batch, alpha, beta, clamp_lo, clamp_hi, pointer_arrays (a
// constant 0 when the operation has none). rows_of() and columns_of() return the output's sizes.
// The structs differ in layout, because a common struct would have to be copied or have unused
// fields.
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

// The D tensors that a chain reads as its bias and as matrices of m x n.
inline constexpr int kMaxMatrices = 2;
struct DRoles {
  int bias = -1;
  int matrices = 0;
  int matrix[kMaxMatrices] = {};
  bool others = false;  // scales, a second bias, a third matrix
};
template <class C>
constexpr DRoles d_roles() {
  DRoles roles;
  if constexpr (C::kNumSteps > 0) {
    int used = 0;
    for (const Step step : C::kSteps) {
      const int end = takes_all_d(step) ? C::kNumD : used + (takes_one_d(step) ? 1 : 0);
      for (; used < end; ++used) {
        const bool is_matrix =
            step != Step::bias && step != Step::row_scale && step != Step::col_scale;
        if (is_matrix && roles.matrices < kMaxMatrices) {
          roles.matrix[roles.matrices++] = used;
        } else if (step == Step::bias && roles.bias < 0) {
          roles.bias = used;
        } else {
          roles.others = true;
        }
      }
    }
  }
  return roles;
}

// The place of two neighbours in an output row. `count` is how many of the two exist, 0 when the
// row does not exist. C, D and out are accessed only where elements exist. `column` must be even.
struct Place {
  i64 row, column;
  int count;
};

struct Values {
  float x, y;
};
// Used instead of a Place: two elements of the bias and of matrices that were read before.
template <class D>
struct Given {
  PairBits<D> bias;
  PairBits<D> matrices[kMaxMatrices];
};
struct Whole {
  u32 x, y;
};

// Finishes pairs of accumulators of one batch. Make one for each thread and batch, because the
// constructor checks alignments.
template <class C, class Arguments>
class Finish {
 public:
  using Acc = typename C::Acc;
  using Out = typename C::Out;
  using D = typename C::D;

  __device__ __forceinline__ Finish(const Arguments& arguments, i64 batch) : g(arguments) {
    const bool in_array = g.pointer_arrays != 0;
    out = const_cast<Out*>(matrix_of<Out>(g.out, g.batch_stride_out, batch, in_array));
    c = matrix_of<Out>(g.c, g.batch_stride_c, batch, in_array);
    out_in_pairs = pairs_aligned(out, g.ld_out);
    c_in_pairs = pairs_aligned(c, g.ld_c);
#pragma unroll
    for (int i = 0; i < C::kNumD; ++i) {
      d[i] = matrix_of<D>(g.d[i], g.batch_stride_d[i], batch, in_array);
      d_in_pairs[i] = pairs_aligned(d[i], is_matrix(i) ? g.ld_d[i] : 0);
    }
  }

  // Whether pairs of C, D and out can be read and written as one word. When both elements of a pair
  // exist too, the kWhole forms below need no checks.
  __device__ __forceinline__ bool in_pairs() const {
    bool all = out_in_pairs && (g.beta == 0 || c_in_pairs);
#pragma unroll
    for (int i = 0; i < C::kNumD; ++i) all = all && d_in_pairs[i];
    return all;
  }

  // The three parts of finish(), for callers that process many pairs at a time: alpha; beta * C,
  // which callers leave out when beta is 0; the steps and the rounding.
  static constexpr bool kExact = kSame<Out, int>;  // modulo 2^32
  using Running = typename If<kExact, Whole, Values>::Type;

  __device__ __forceinline__ Running scaled(Acc x, Acc y) const {
    if constexpr (kExact) {
      static_assert(C::kNumSteps == 0, "int32 output takes no epilogue steps");
      const u32 alpha = static_cast<int>(g.alpha);
      return {static_cast<u32>(x) * alpha, static_cast<u32>(y) * alpha};
    } else {
      return {static_cast<float>(x) * g.alpha, static_cast<float>(y) * g.alpha};
    }
  }

  template <bool kWhole = false>
  __device__ __forceinline__ Running with_c(const Place& at, const Running& v) const {
    const Out* from = c + at.row * g.ld_c + at.column;
    const PairBits<Out> pair = load_pair<Out, kWhole>(from, at.count, c_in_pairs);
    if constexpr (kExact) {
      const u32 beta = static_cast<int>(g.beta);
      return {v.x + first_of<int>(pair) * beta, v.y + second_of<int>(pair) * beta};
    } else {
      return {v.x + float_of_bits<Out>(first_of<Out>(pair)) * g.beta,
              v.y + float_of_bits<Out>(second_of<Out>(pair)) * g.beta};
    }
  }

  template <bool kWhole = false, class At>
  __device__ __forceinline__ PairBits<Out> rounded(const At& at, const Running& v) const {
    if constexpr (kExact) {
      return u64{v.y} << 32 | v.x;
    } else {
      const Values done = apply_steps<0, 0, kWhole>(v, at);
      return round_pair<Out>(done.x, done.y);
    }
  }

  // The output's bits for the accumulators x and y of `at`.
  __device__ __forceinline__ PairBits<Out> finish(const Place& at, Acc x, Acc y) const {
    Running v = scaled(x, y);
    if (g.beta != 0) v = with_c(at, v);
    return rounded(at, v);
  }

  // The bias of a column and the next one. Both exist when the bias can be read as words.
  __device__ __forceinline__ PairBits<D> bias_of(int column) const {
    return load_pair<D, true>(d[d_roles<C>().bias] + column, 2, true);
  }

  // Writes the result of finish() to address(), or to a distance from it.
  __device__ __forceinline__ Out* address(const Place& at) const {
    return out + at.row * g.ld_out + at.column;
  }
  template <bool kWhole = false>
  __device__ __forceinline__ void store(Out* to, PairBits<Out> pair, int count) const {
    store_pair<Out, kWhole>(to, pair, count, out_in_pairs);
  }

 private:
  // Whether D tensor `index` has rows of its own. A step takes at most one vector.
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

  template <Step kOp, bool kWhole>
  __device__ __forceinline__ Values load_d(int index, const Given<D>& given) const {
    const bool is_first = index == d_roles<C>().matrix[0];
    const PairBits<D> pair = kOp == Step::bias ? given.bias : given.matrices[is_first ? 0 : 1];
    return {float_of_bits<D>(first_of<D>(pair)), float_of_bits<D>(second_of<D>(pair))};
  }
  template <Step kOp, bool kWhole>
  __device__ __forceinline__ Values load_d(int index, const Place& at) const {
    if constexpr (kOp == Step::row_scale) {
      const float scale = kWhole || at.count > 0 ? to_float(d[index][at.row]) : 0.0F;
      return {scale, scale};
    } else {
      constexpr bool kIsVector = kOp == Step::bias || kOp == Step::col_scale;
      const D* row = d[index] + (kIsVector ? 0 : at.row * g.ld_d[index]);
      const bool whole = d_in_pairs[index];
      const PairBits<D> pair = load_pair<D, kWhole>(row + at.column, at.count, whole);
      return {float_of_bits<D>(first_of<D>(pair)), float_of_bits<D>(second_of<D>(pair))};
    }
  }

  template <Step kOp, bool kWhole, class At>
  __device__ __forceinline__ Values combine(Values v, int index, const At& at) const {
    const Values d = load_d<kOp, kWhole>(index, at);
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

  // Applies the steps from number kStep on, after kUsed D tensors have been used.
  template <int kStep, int kUsed, bool kWhole, class At>
  __device__ __forceinline__ Values apply_steps(Values v, const At& at) const {
    if constexpr (kStep == C::kNumSteps) {
      return v;
    } else {
      constexpr Step kOp = C::kSteps[kStep];
      if constexpr (takes_one_d(kOp)) {
        return apply_steps<kStep + 1, kUsed + 1, kWhole>(combine<kOp, kWhole>(v, kUsed, at), at);
      } else if constexpr (takes_all_d(kOp)) {
#pragma unroll
        for (int i = kUsed; i < C::kNumD; ++i) v = combine<kOp, kWhole>(v, i, at);
        return apply_steps<kStep + 1, C::kNumD, kWhole>(v, at);
      } else {
        return apply_steps<kStep + 1, kUsed, kWhole>({apply<kOp>(v.x), apply<kOp>(v.y)}, at);
      }
    }
  }

  static constexpr int kTensors = C::kNumD > 0 ? C::kNumD : 1;
  const Arguments& g;
  Out* out;  // the batch's output; c and d are the batch's too
  const Out* c;
  const D* d[kTensors];
  bool out_in_pairs, c_in_pairs;
  bool d_in_pairs[kTensors];
};

}  // namespace tessera::device
