// softmax, RMSNorm and LayerNorm of rows on a GPU. wave_n warps share a row, or a slice of one, and
// keep up to tile_n of its columns in registers between the two passes (held_rows.h); what is
// longer is read again. Rows whose squares overflow or vanish are read again, scaled.
#pragma once

#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/norm/elementwise_rows.h"
#include "tessera/device/cuda/norm/staged_rows.h"
#include "tessera/device/cuda/row_part.h"
#include "tessera/device/norm.h"

namespace tessera::device {

struct NormMath {
  static __device__ __forceinline__ float exp(float x) { return exp_fast(x); }
  static __device__ __forceinline__ float reciprocal_sqrt(float x) { return rsqrtf(x); }
};

// Rows or slices that need not fit into the registers of the threads that share them.
template <class C>
struct LongRows {
  using In = typename C::In;
  using Weight = typename C::Weight;
  using Out = typename C::Out;
  static constexpr bool kSoftmax = C::kKind == NormKind::softmax;
  static constexpr bool kMayOverflow = !kSoftmax && !kSame<In, fp16>;  // squares, in fp32
  static constexpr int kVector = 16 / static_cast<int>(sizeof(In));  // that a thread moves at once
  static constexpr int kStride = C::kWaveN * 32 * kVector;           // ... and all of a row
  static constexpr int kVectors = C::kTileN / kStride;               // of a thread, in registers
  static_assert(C::kTileN % kStride == 0 && kVectors > 0,
                "tile_n must be a multiple of 16 bytes for each thread of a row");

  // The columns of a row that this thread's group of warps has to do with.
  struct Slice {
    i64 row, begin, end;
  };
  using Part = RowPart<C::kWaveN * 32, kVectors, kVector>;

  static __device__ __forceinline__ NormStatistics merged(NormStatistics a, NormStatistics b) {
    return merge<C::kKind, NormMath>(a, b);
  }
  // What changes no maximum and no sum.
  static __device__ __forceinline__ float padding() { return kSoftmax ? -infinity() : 0.0F; }

  template <class T>
  static __device__ __forceinline__ T* at(const void* base, const Slice& s, i64 ld, i64 column) {
    return static_cast<T*>(const_cast<void*>(base)) + s.row * ld + column;
  }

  // With a residual the sum is stored, and what was stored is what counts.
  static __device__ __forceinline__ void read_part(const NormArguments& g, const Slice& s,
                                                   i64 begin, bool again, Part& part) {
    const bool aligned = g.is_aligned != 0;
    part.place(begin, s.end);
    Neighbours<In, kVector> runs[kVectors];
    In* const sum = at<In>(g.sum, s, g.ld_sum, begin);
    part.load(C::kResidual && again ? sum : at<In>(g.in, s, g.ld_in, begin), aligned, runs);
    if constexpr (C::kResidual) {
      if (!again) {
        Neighbours<In, kVector> more[kVectors];
        part.load(at<In>(g.residual, s, g.ld_residual, begin), aligned, more);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          float x[kVector];
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            x[i] = to_float(runs[v].x[i]) + to_float(more[v].x[i]);
            runs[v].x[i] = rounded<In>(x[i]);
          }
          store_floats(sum + Part::offset(v), aligned, part.left(v), x);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to_floats(runs[v], part.left(v), padding(), part.x[v]);
  }

  // The statistics of the elements that this thread read of a part.
  static __device__ __forceinline__ NormStatistics statistics_of(Part& part) {
    if constexpr (C::kKind == NormKind::rmsnorm) {
      return {0, 0, part.sum([](float x) { return x * x; })};
    } else if constexpr (kSoftmax) {
      float most = -infinity();
      part.each([&](float x, bool) { most = fmaxf(most, x); });
      const float offset = offset_of(most);
      return {0, most, part.sum([=](float x) { return NormMath::exp(x - offset); })};
    } else {
      const int count = part.count();
      if (count == 0) return no_statistics<C::kKind>();
      const float n = static_cast<float>(count);
      const float mean = part.sum([](float x) { return x; }) / n;
      if (count < kVectors * kVector) {
        part.each([&](float& x, bool inside) { x = inside ? x : mean; });
      }
      return {n, mean, part.sum([=](float x) { return (x - mean) * (x - mean); })};
    }
  }

  static __device__ __forceinline__ NormStatistics exchanged(NormStatistics s, int distance) {
    return {__shfl_xor_sync(~0U, s.count, distance), __shfl_xor_sync(~0U, s.first, distance),
            __shfl_xor_sync(~0U, s.second, distance)};
  }

  // Reads the slice, tile_n columns at a time.
  static __device__ __forceinline__ NormStatistics gather(const NormArguments& g, const Slice& s,
                                                          Part& part) {
    NormStatistics mine = no_statistics<C::kKind>();
    for (i64 begin = s.begin; begin < s.end; begin += C::kTileN) {
      read_part(g, s, begin, false, part);
      mine = merged(mine, statistics_of(part));
    }
    return merge_over_row<C::kWaveM, C::kWaveN>(mine, exchanged, merged);
  }

  // Calls visit(column, x) for the columns of this thread, which have been read before.
  template <class Visit>
  static __device__ __forceinline__ void each_again(const NormArguments& g, const Slice& s,
                                                    Visit visit) {
    const In* const row =
        C::kResidual ? at<In>(g.sum, s, g.ld_sum, 0) : at<In>(g.in, s, g.ld_in, 0);
#pragma unroll 1
    for (i64 run = s.begin + threadIdx.x * kVector; run < s.end; run += kStride) {
#pragma unroll 1
      for (i64 column = run; column < s.end && column < run + kVector; ++column) {
        visit(column, to_float(row[column]));
      }
    }
  }

  // The statistics of a slice that gather() has read, times a power of two.
  static __device__ NormStatistics gather_again(const NormArguments& g, const Slice& s,
                                                float power) {
    NormStatistics mine = no_statistics<C::kKind>();
    each_again(g, s, [&](i64, float x) {
      const float y = x * power;
      const bool has_mean = C::kKind == NormKind::layernorm;
      mine = merged(mine, has_mean ? NormStatistics{1, y, 0} : NormStatistics{1, 0, y * y});
    });
    return merge_over_row<C::kWaveM, C::kWaveN>(mine, exchanged, merged, [] {
      if constexpr (C::kWaveN > 1) meet_row<C::kWaveM, C::kWaveN>();
    });
  }

  static __device__ __forceinline__ ScaledStatistics rescued(const NormArguments& g, const Slice& s,
                                                             const NormStatistics& all) {
    if constexpr (kMayOverflow) {
      float power = power_for(all, s.end - s.begin, g.epsilon);
      power = __shfl_sync(~0U, power, 0);  // lanes merged in orders of their own
      if (power != kUsualRows) return {gather_again(g, s, power), power};
    }
    return {all, kUsualRows};
  }

  // The statistics of a row, merged from its slices in their order.
  static __device__ __forceinline__ ScaledStatistics gathered(const ScaledStatistics* slices) {
    NormStatistics all = slices[0].of;
    bool is_usual = slices[0].power == kUsualRows;
    for (int i = 1; i < C::kSlices; ++i) {
      all = merged(all, slices[i].of);
      is_usual = is_usual && slices[i].power == kUsualRows;
    }
    if (!kMayOverflow || (is_usual && all.second < infinity())) return {all, kUsualRows};
    return rescaled_slices<C::kKind, NormMath>(slices, C::kSlices);
  }

  // y = operation(y, weight) of each column, where the weights are used.
  template <bool kUsed, class Operation>
  static __device__ __forceinline__ void apply(const Neighbours<Weight, kVector>& weights,
                                               float (&y)[kVector], Operation operation) {
    if constexpr (kUsed) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) y[i] = operation(y[i], to_float(weights.x[i]));
    }
  }
  template <bool kUsed>
  static __device__ __forceinline__ Neighbours<Weight, kVector> weights_of(const void* weights,
                                                                           i64 column, bool aligned,
                                                                           int left) {
    if constexpr (!kUsed) return {};
    return load_constants<kVector>(static_cast<const Weight*>(weights) + column, aligned, left);
  }

  // kWhole: rows are aligned and all runs of the part count.
  template <bool kWhole>
  static __device__ __forceinline__ void write_runs(const NormArguments& g, const Slice& s,
                                                    NormFactors f, const Part& part) {
    const bool aligned = kWhole || g.is_aligned != 0;
    Out* const out = at<Out>(g.out, s, g.ld_out, part.begin);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int left = kWhole ? kVector : part.left(v);
      if (left <= 0) return;
      const i64 column = part.begin + Part::offset(v);
      const auto scale = weights_of<C::kScale>(g.scale, column, aligned, left);
      const auto shift = weights_of<C::kShift>(g.shift, column, aligned, left);
      float y[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float x = part.x[v][i] - f.offset;
        y[i] = (kSoftmax ? NormMath::exp(x) : x) * f.factor;
      }
      apply<C::kScale>(scale, y, [](float a, float b) { return a * b; });
      apply<C::kShift>(shift, y, [](float a, float b) { return a + b; });
      store_floats(out + Part::offset(v), aligned, left, y);
    }
  }
  static __device__ __forceinline__ void write_part(const NormArguments& g, const Slice& s,
                                                    NormFactors f, const Part& part) {
    if (g.is_aligned != 0 && part.is_whole()) {
      write_runs<true>(g, s, f, part);
    } else {
      write_runs<false>(g, s, f, part);
    }
  }

  static __device__ void write_scaled(const NormArguments& g, const Slice& s,
                                      const ScaledStatistics& all) {
    const ScaledFactors f = scaled_factors_of<NormMath>(all, g.columns, g.epsilon);
    Out* const out = at<Out>(g.out, s, g.ld_out, 0);
    each_again(g, s, [&](i64 column, float x) {
      float y = (x * f.power - f.offset) * f.factor;
      if (C::kScale) y *= to_float(static_cast<const Weight*>(g.scale)[column]);
      if (C::kShift) y += to_float(static_cast<const Weight*>(g.shift)[column]);
      out[column] = rounded<Out>(y);
    });
  }

  static __device__ __forceinline__ void write(const NormArguments& g, const Slice& s,
                                               const ScaledStatistics& all, Part& part) {
    if (kMayOverflow && all.power != kUsualRows) return write_scaled(g, s, all);
    const NormFactors f = factors_of<C::kKind, NormMath>(all.of, g.columns, g.epsilon);
    for (i64 begin = s.begin; begin < s.end; begin += C::kTileN) {
      read_part(g, s, begin, true, part);
      write_part(g, s, f, part);
    }
  }

  // Empty for rows that are none: their threads still meet the others.
  static __device__ __forceinline__ Slice slice_of(const NormArguments& g) {
    const i64 block = static_cast<i64>(blockIdx.z) * gridDim.x + blockIdx.x;
    const i64 row = block * C::kWaveM + threadIdx.y;
    if (row >= g.rows) return {g.rows, 0, 0};
    const i64 vectors = (g.columns + kVector - 1) / kVector;
    const i64 begin = vectors * blockIdx.y / C::kSlices * kVector;
    const i64 end = vectors * (blockIdx.y + 1) / C::kSlices * kVector;
    return {row, begin, end < g.columns ? end : g.columns};
  }

  static __device__ __forceinline__ ScaledStatistics* statistics(const NormArguments& g, i64 row) {
    auto* const data = static_cast<char*>(g.workspace) + kCounterBytes;
    return reinterpret_cast<ScaledStatistics*>(data) + row * C::kSlices;
  }

  // A kernel of one step makes the statistics of a row, then its result. The first of two steps
  // writes the statistics of a slice to the workspace.
  static __device__ __forceinline__ void run(const NormArguments& g) {
    const Slice s = slice_of(g);
    Part part;
    const NormStatistics mine = gather(g, s, part);
    if (s.row == g.rows) return;
    const ScaledStatistics all = rescued(g, s, mine);
    if constexpr (C::kSlices > 1) {
      if (threadIdx.x == 0) statistics(g, s.row)[blockIdx.y] = all;
    } else {
      write(g, s, all, part);
    }
  }

  // The second: the statistics of all slices, in their order, then the slice's result.
  static __device__ __forceinline__ void run_result(const NormArguments& g) {
    const Slice s = slice_of(g);
    if (s.row == g.rows) return;
    Part part;
    write(g, s, gathered(statistics(g, s.row)), part);
  }
};

// One step: run() where the threads of a row can hold it, else run_long(). Two steps for slices:
// run_slice() and run_result().
template <class C>
struct NormKernel {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(typename C::In));

  static __device__ __forceinline__ void run(const NormArguments& g) {
    const bool is_wide = g.is_aligned != 0 && g.columns % kVector == 0;
    if constexpr (is_elementwise(C::kKind)) {
      if (is_wide) return ElementwiseRows<C, NormMath, kVector>::run(g);
      ElementwiseRows<C, NormMath, 1>::run(g);
    } else {
      run_norm(g, is_wide);
    }
  }
  static __device__ __forceinline__ void run_norm(const NormArguments& g, bool is_wide) {
    if (is_wide) {
      HeldRows<C, NormMath, kVector>::run(g);
    } else if (StagedRows<C, NormMath>::kHasBarrier && g.staged_bytes != 0) {
      StagedRows<C, NormMath>::run(g);
    } else {
      HeldRows<C, NormMath, 1>::run(g);
    }
  }
  static __device__ __forceinline__ void run_long(const NormArguments& g) { LongRows<C>::run(g); }
  static __device__ __forceinline__ void run_slice(const NormArguments& g) { LongRows<C>::run(g); }
  static __device__ __forceinline__ void run_result(const NormArguments& g) {
    LongRows<C>::run_result(g);
  }
};

}  // namespace tessera::device
