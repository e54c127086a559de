// GEMM where out has a gate, rows by index or 8 bits, in up to three steps: the rows of A that an
// index names are copied one behind the other, a kernel for tiles writes the sums to the workspace,
// and workgroups finish them row by row.
//
// Config has kGate, kGateInterleaved, kIndexing and kQuant in addition to what mfma_gemm.h,
// grouped_gemm.h and scaled_gemm.h describe.
#pragma once

#include "tessera/device/hip/eight_bits.h"
#include "tessera/device/hip/gemm/grouped_gemm.h"
#include "tessera/device/hip/gemm/mfma_scaled_gemm.h"
#pragma clang force_cuda_host_device begin
#include "tessera/device/norm.h"
#pragma clang force_cuda_host_device end

namespace tessera::device {

template <class C>
using OutputsArguments = HipOutputs<ProductArguments<C>>;

// ---- the product ----

// A configuration whose output is the sums.
template <class C>
struct SumsOf : C {
  using Out = typename C::Acc;
  using D = typename C::Acc;
  static constexpr int kNumSteps = 0, kNumD = 0;
};

template <class C>
__device__ __forceinline__ GemmArguments in_workspace(GemmArguments g) {
  const u64 workspace = bits<u64>(fresh_arguments<OutputsArguments<C>>().workspace);
  g.out = reinterpret_cast<void*>(bits<u64>(g.out) + workspace);
  if constexpr (gathers_rows<C>()) {
    g.a = reinterpret_cast<const void*>(bits<u64>(g.a) + workspace);
  }
  return g;
}

// In place of NoGroups and of HipGroups.
template <class C>
struct SumsOfBatches : NoGroups {
  using Arguments = OutputsArguments<C>;
  static __device__ __forceinline__ GemmArguments product(const NoGroups::Part& part) {
    return in_workspace<C>(NoGroups::product(part));
  }
};
template <class C>
struct SumsOfGroups : HipGroups<SumsOf<C>> {
  using Arguments = OutputsArguments<C>;
  static __device__ __forceinline__ GemmArguments product(const GroupPart& part) {
    return in_workspace<C>(HipGroups<SumsOf<C>>::product(part));
  }
};
template <class C>
using SumsGroups = typename If<has_groups<C>(), SumsOfGroups<C>, SumsOfBatches<C>>::Type;

template <class C>
using GeneralSums = GeneralGemm<SumsOf<C>, SumsGroups<C>, ScalesOf<C>>;
template <class C>
using MfmaSums = MfmaGemm<SumsOf<C>, GemmOperands<C>, SumsGroups<C>>;
template <class C>
using ScaledMfmaSums = MfmaGemm<SumsOf<C>, GemmOperands<C>, SumsGroups<C>, ScaledSums>;
#if defined(__gfx950__)
template <class C>
using MxMfmaSums = MfmaGemm<SumsOf<C>, GemmOperands<C>, SumsGroups<C>, MxSums>;
#endif

// ---- gathered rows ----

// A workgroup copies a row of A at a time where k is contiguous, otherwise one k of all rows. A row
// of no index keeps what the workspace holds: its sums are not finished.
template <class C>
struct OutputsGather {
  using A = typename C::A;
  static __device__ __forceinline__ void run(const OutputsArguments<C>&) {
    const auto& x = fresh_arguments<OutputsArguments<C>>();
    const OutputArguments& o = x.outputs;
    const GemmArguments& g = o.groups.gemm;
    const A* const a = static_cast<const A*>(g.a);
    A* const to = reinterpret_cast<A*>(bits<u64>(x.workspace) + offset());
    const int thread = static_cast<int>(__builtin_amdgcn_workitem_id_x());
    const i64 lines = C::kAKContiguous ? g.m : g.k;
#pragma unroll 1
    for (i64 line = __builtin_amdgcn_workgroup_id_x(); line < lines; line += x.line_blocks) {
      A* const own = to + line * x.ld_copy;
      if constexpr (C::kAKContiguous) {
        const i64 from = named_row(o, line);
#pragma unroll 1
        for (i64 k = thread; from >= 0 && k < g.k; k += kHipOutputThreads) {
          own[k] = a[from * g.ld_a + k];
        }
      } else {
#pragma unroll 1
        for (i64 row = thread; row < g.m; row += kHipOutputThreads) {
          const i64 from = named_row(o, row);
          if (from >= 0) own[row] = a[line * g.ld_a + from];
        }
      }
    }
  }

 private:
  // Where the copy lies, as the product is told.
  static __device__ __forceinline__ u64 offset() {
    const auto& base = fresh_arguments<BaseArguments<C>>();
    if constexpr (has_groups<C>()) {
      return bits<u64>(base.groups.gemm.a);
    } else {
      return bits<u64>(base.gemm.a);
    }
  }
};

// ---- rows of sums ----

// A row of the product: its matrix or group, its place in the matrix, and the row of out, C and D
// that it is.
struct OutputRow {
  i64 matrix, row, named;  // named -1: the row is left alone
};

template <class C>
struct OutputRows {
  static constexpr Grouping kGrouping = grouping_of<C>();
  // Whether each group has sums of its own; otherwise groups share the rows.
  static constexpr bool kOwn = kGrouping == Grouping::masked || kGrouping == Grouping::along_k;

  static __device__ __forceinline__ i64 count(const GroupArguments& x) {
    return x.gemm.m * (kGrouping == Grouping::none ? x.gemm.batch : kOwn ? x.groups : 1);
  }
  static __device__ __forceinline__ OutputRow at(const OutputArguments& o, i64 index) {
    const i64 m = o.groups.gemm.m;
    const i64 matrix = index / m, row = index - matrix * m;
    OutputRow found = {matrix, row, row};
    if constexpr (kGrouping != Grouping::none) found.matrix = group_of(o.groups, matrix, row);
    if (found.matrix < 0) found.named = -1;
    if constexpr (C::kIndexing != Indexing::none) {
      const i64 named = found.named < 0 ? -1 : named_row(o, row);
      found.named = named < 0 || C::kIndexing == Indexing::scattered ? named : row;
    }
    return found;
  }

 private:
  // The group that a row belongs to; -1: none.
  static __device__ __forceinline__ i64 group_of(const GroupArguments& x, i64 matrix, i64 row) {
    if constexpr (kGrouping == Grouping::along_k) return matrix;
    if constexpr (kGrouping == Grouping::masked) {
      return row < group_number(x, matrix) ? matrix : -1;
    }
    if constexpr (kGrouping == Grouping::indexed) {
      const i64 group = group_number(x, row);
      return group < x.groups ? group : -1;
    }
    if constexpr (kGrouping == Grouping::contiguous) {
      i64 low = 0, high = x.groups;  // the first group that ends behind the row
#pragma unroll 1
      while (low < high) {
        const i64 middle = low + (high - low) / 2;
        const bool ends = group_number(x, middle) > row;
        (ends ? high : low) = ends ? middle : middle + 1;
      }
      return low < x.groups ? low : -1;
    }
  }
};

// ---- what becomes of a row ----

template <class C>
struct OutputsFinish {
  using Out = typename C::Out;
  using Acc = typename C::Acc;
  using Rows = OutputRows<C>;
  using Sums = Vec<Acc, 4>;
  static constexpr int kThreads = kHipOutputThreads, kWaves = kThreads / kLanes;
  static constexpr int kQuads = 4 * kThreads;          // columns of all threads
  static constexpr int kBlockLanes = kQuantBlock / 4;  // that have a block of columns
  static constexpr bool kGated = C::kGate != Gate::none;
  static_assert(kBlockLanes <= kLanes, "a block of columns lies in one wave");

  static __device__ __forceinline__ void run(const OutputsArguments<C>&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[kWaves * 4];
    const auto& x = fresh_arguments<OutputsArguments<C>>();
    if constexpr (has_groups<C>()) {
      if (has_bad_group(x.outputs.groups)) return;
    }
    const i64 count = Rows::count(x.outputs.groups);
#pragma unroll 1
    for (i64 index = __builtin_amdgcn_workgroup_id_x(); index < count; index += x.row_blocks) {
      const OutputRow row = Rows::at(x.outputs, index);
      if (row.named >= 0) OutputsFinish(x, row, index, (Shared*)memory).finish();
    }
  }

 private:
  __device__ __forceinline__ OutputsFinish(const OutputsArguments<C>& x, const OutputRow& of,
                                           i64 index, Shared* lds)
      : o(x.outputs),
        g(x.outputs.groups.gemm),
        row(of),
        steps(g, of.matrix),
        memory(lds),
        thread(fresh_thread<kThreads>()) {
    sums = reinterpret_cast<Acc*>(bits<u64>(x.workspace) + offset()) + index * g.n;
    in_quads = quads_aligned(sums, 0);
    out = const_cast<Out*>(
              matrix_of<Out>(g.out, g.batch_stride_out, of.matrix, g.pointer_arrays != 0)) +
          of.named * g.ld_out;
    scales = o.out_scales + of.matrix * o.matrix_of_scales + of.named * o.row_of_scales;
  }
  static __device__ __forceinline__ u64 offset() {
    const auto& base = fresh_arguments<BaseArguments<C>>();
    if constexpr (has_groups<C>()) {
      return bits<u64>(base.groups.gemm.out);
    } else {
      return bits<u64>(base.gemm.out);
    }
  }

  __device__ __forceinline__ void finish() const {
    if constexpr (C::kQuant == NormQuant::block) {
      store_blocks();
    } else if constexpr (C::kQuant == NormQuant::row) {
      store_row();
    } else if constexpr (C::kQuant == NormQuant::tensor) {
      const float factor = 1.0F / *o.out_scale;
      each_quad([&](i64 column, int count) __attribute__((always_inline)) {
        store_bytes(column, count, gated(column, count), factor);
      });
    } else {
      each_quad([&](i64 column, int count) __attribute__((always_inline)) {
        if constexpr (kGated) {
          const Quad<Out> quad = round_quad<Out>(gated(column, count));
          store_quad<Out>(out + column, quad, count, quads_aligned(out, 0));
        } else {
          steps.store({row.named, column, count}, load_sums(column, count));
        }
      });
    }
  }

  // Calls visit(column, count) for the columns of out of each thread, of which none may exist.
  template <class Visit>
  __device__ __forceinline__ void each_quad(Visit visit) const {
    const i64 columns = kGated ? g.n / 2 : g.n;
#pragma unroll 1
    for (i64 first = 0; first < columns; first += kQuads) {
      const i64 column = first + 4 * thread;
      visit(column, existing(columns - column));
    }
  }
  static __device__ __forceinline__ int existing(i64 left) {
    return left < 0 ? 0 : left < 4 ? static_cast<int>(left) : 4;
  }

  __device__ __forceinline__ Sums load_sums(i64 column, int count) const {
    return bits<Sums>(load_quad<Acc>(sums + column, count, in_quads));
  }
  // What the epilogue makes of neighbours. Those that begin anywhere are taken one by one.
  __device__ __forceinline__ Float4 results(i64 column, int count) const {
    if (column % 4 == 0) {
      return steps.result({row.named, column, count}, load_sums(column, count));
    }
    Float4 y = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= count) continue;
      y[i] = steps.result({row.named, column + i, 1}, Sums{sums[column + i], 0, 0, 0})[0];
    }
    return y;
  }
  static __device__ __forceinline__ float act(float x) {
    if constexpr (C::kGate == Gate::silu_mul) return silu(x);
    if constexpr (C::kGate == Gate::gelu_mul) return gelu(x);
    return gelu_tanh(x);
  }
  // Neighbours of out before they are rounded.
  __device__ __forceinline__ Float4 gated(i64 column, int count) const {
    if constexpr (!kGated) {
      return results(column, count);
    } else {
      Float4 x, y;
      if constexpr (C::kGateInterleaved) {
        const Float4 low = results(2 * column, existing(2 * count));
        const Float4 high = results(2 * column + 4, existing(2 * count - 4));
        x = Float4{low[0], low[2], high[0], high[2]};
        y = Float4{low[1], low[3], high[1], high[3]};
      } else {
        x = results(column, count);
        y = results(g.n / 2 + column, count);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = act(x[i]) * y[i];
      return x;
    }
  }

  // NaN does not count.
  static __device__ __forceinline__ float most_of(float most, const Float4& y, int count) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      most = __builtin_fmaxf(most, i < count ? __builtin_fabsf(y[i]) : 0.0F);
    }
    return most;
  }
  __device__ __forceinline__ void store_bytes(i64 column, int count, const Float4& y,
                                              float factor) const {
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= u32{rounded<Out>(y[i] * factor).bits} << (8 * i);
    store_quad<Out>(out + column, Quad<Out>(word), count, quads_aligned(out, 0));
  }

  __device__ __forceinline__ void store_blocks() const {
    each_quad([&](i64 column, int count) __attribute__((always_inline)) {
      const Float4 y = gated(column, count);
      const float most = most_of_lanes<kBlockLanes>(most_of(0, y, count));
      const float scale = quant_scale(most, largest_of<Out>());
      if (column % kQuantBlock == 0 && count > 0) {
        scales[column / kQuantBlock * o.block_of_scales] = scale;
      }
      store_bytes(column, count, y, 1.0F / scale);
    });
  }

  // Results wait in the place of sums that the same thread has read.
  static __device__ __forceinline__ i64 waiting(i64 column) {
    return kGated && C::kGateInterleaved ? 2 * column : column;
  }
  __device__ __forceinline__ void store_row() const {
    float* const results_of_row = reinterpret_cast<float*>(sums);
    float most = 0;
    each_quad([&](i64 column, int count) __attribute__((always_inline)) {
      const Float4 y = gated(column, count);
      store_quad<float>(results_of_row + waiting(column), bits<Quad<float>>(y), count, in_quads);
      most = most_of(most, y, count);
    });
    const float scale = quant_scale(most_of_row(most), largest_of<Out>());
    if (thread == 0) *scales = scale;
    each_quad([&](i64 column, int count) __attribute__((always_inline)) {
      const auto y = load_quad<float>(results_of_row + waiting(column), count, in_quads);
      store_bytes(column, count, bits<Float4>(y), 1.0F / scale);
    });
  }
  __device__ __forceinline__ float most_of_row(float most) const {
    most = most_of_lanes(most);
    barrier();  // the row before has been read
    if (thread % kLanes == 0) store_shared(memory + thread / kLanes * 4, most);
    barrier();
#pragma unroll
    for (int i = 0; i < kWaves; ++i)
      most = __builtin_fmaxf(most, load_shared<float>(memory + i * 4));
    return most;
  }

  const OutputArguments& o;
  const GemmArguments& g;
  OutputRow row;
  Finish<C, GemmArguments> steps;
  Shared* memory;
  int thread;
  Acc* sums;
  Out* out;
  float* scales;
  bool in_quads;
};

}  // namespace tessera::device
