// softmax, RMSNorm and LayerNorm of rows on an AMD GPU. A wave has a row, kWaveM of them a
// workgroup; or the kWaveN waves of a workgroup share a row, or a slice of one. They keep up to
// tile_n of its columns in registers between the two passes; what is longer is read again. Rows
// whose squares overflow or vanish are read again, scaled.
#pragma once

#include "tessera/device/hip/math.h"
#pragma clang force_cuda_host_device begin
#include "tessera/device/hip/norm/norm_arguments.h"
#pragma clang force_cuda_host_device end
#include "tessera/device/hip/norm/eight_bit_rows.h"
#include "tessera/device/hip/norm/elementwise_runs.h"
#include "tessera/device/hip/norm/row_part.h"

namespace tessera::device {

struct NormMath {
  static __device__ __forceinline__ float exp(float x) { return exp_fast(x); }
  // The instruction takes subnormal numbers for 0.
  static __device__ __forceinline__ float reciprocal_sqrt(float x) {
    const bool is_small = x < 0x1p-100F;
    const float y = __builtin_amdgcn_rsqf(is_small ? x * 0x1p48F : x);
    return is_small ? y * 0x1p24F : y;
  }
};

template <class C>
class NormKernel {
  using In = typename C::In;
  using Weight = typename C::Weight;
  using Out = typename C::Out;
  static constexpr bool kSoftmax = C::kKind == NormKind::softmax;
  static constexpr bool kElementwise = is_elementwise(C::kKind);
  static constexpr bool kQuantised = C::kQuant != NormQuant::none;
  // Whether the tiles of a row have workgroups of their own.
  static constexpr bool kIsCut = kElementwise && C::kQuant != NormQuant::row;
  static constexpr bool kMayOverflow =
      !kSoftmax && !kElementwise && !kSame<In, fp16>;                // squares, in fp32
  static constexpr int kVector = 16 / static_cast<int>(sizeof(In));  // that a thread moves at once
  static constexpr int kRowThreads = C::kWaveN * kLanes;
  static constexpr int kStride = kRowThreads * kVector;  // that all of a row move at once
  static constexpr int kVectors = C::kTileN / kStride;   // of a thread, in registers
  static_assert(C::kTileN % kStride == 0 && kVectors > 0,
                "tile_n must be a multiple of 16 bytes for each thread of a row");
  static_assert(C::kWaveM == 1 || C::kWaveN == 1, "a workgroup has one barrier for one row");

  using Part = RowPart<kRowThreads, kVectors, kVector>;
  using Eight = EightBitRows<C, Part, kVectors, kVector>;
  static constexpr int kMergeBytes = C::kWaveN * static_cast<int>(sizeof(NormStatistics));

  // The columns of a row that this thread's waves have to do with.
  struct Slice {
    i64 row, begin, end;
  };

  const NormArguments& g;
  const Slice s;
  const int thread;      // of those of the row
  const i64 statistics;  // their offset in the workspace
  Shared* const memory;

  // What the wave has to do with; none of the rows that do not exist.
  __device__ __forceinline__ NormKernel(const HipNormArguments& a, Shared* lds)
      : g(a.norm),
        s(slice_of(a)),
        thread(static_cast<int>(__builtin_amdgcn_workitem_id_x()) % kRowThreads),
        statistics(a.statistics),
        memory(lds) {}

  static __device__ __forceinline__ Slice slice_of(const HipNormArguments& a) {
    const NormArguments& g = a.norm;
    const i64 block = static_cast<i64>(__builtin_amdgcn_workgroup_id_z()) * a.blocks +
                      __builtin_amdgcn_workgroup_id_x();
    const int first = static_cast<int>(__builtin_amdgcn_workitem_id_x()) / kRowThreads;
    const i64 row = block * C::kWaveM + __builtin_amdgcn_readfirstlane(first);
    if (row >= g.rows) return {g.rows, 0, 0};
    if constexpr (kIsCut) {
      const i64 first = static_cast<i64>(__builtin_amdgcn_workgroup_id_y()) * C::kTileN;
      return {row, first, first + C::kTileN < g.columns ? first + C::kTileN : g.columns};
    }
    const i64 vectors = (g.columns + kVector - 1) / kVector;
    const i64 slice = static_cast<i64>(__builtin_amdgcn_workgroup_id_y());
    const i64 begin = vectors * slice / C::kSlices * kVector;
    const i64 end = vectors * (slice + 1) / C::kSlices * kVector;
    return {row, begin, end < g.columns ? end : g.columns};
  }

  // ---- reading ----

  template <class T>
  __device__ __forceinline__ Global<T> from(const void* base, i64 ld, i64 column) const {
    return (Global<T>)base + s.row * ld + column;
  }
  template <class T>
  __device__ __forceinline__ GlobalOut<T> to(void* base, i64 ld, i64 column) const {
    return (GlobalOut<T>)base + s.row * ld + column;
  }
  // What changes no maximum and no sum.
  static __device__ __forceinline__ float padding() { return kSoftmax ? -infinity() : 0.0F; }

  // With a residual the sum is stored, and what was stored is what counts.
  __device__ __forceinline__ void read_part(i64 begin, bool again, Part& part) const {
    const bool aligned = g.is_aligned != 0;
    part.place(begin, s.end, thread);
    Neighbours<In, kVector> runs[kVectors];
    const bool from_sum = C::kResidual && again;
    part.template load<In>(
        from_sum ? from<In>(g.sum, g.ld_sum, begin) : from<In>(g.in, g.ld_in, begin), aligned,
        runs);
    if (C::kResidual && !again) add_residual(aligned, part, runs);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) part.x[v][i] = runs[v].at(i);
    }
    part.pad(padding());
  }
  __device__ __forceinline__ void add_residual(bool aligned, const Part& part,
                                               Neighbours<In, kVector> (&runs)[kVectors]) const {
    Neighbours<In, kVector> more[kVectors];
    part.template load<In>(from<In>(g.residual, g.ld_residual, part.begin), aligned, more);
    const GlobalOut<In> sum = to<In>(g.sum, g.ld_sum, part.begin);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float x[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] = runs[v].at(i) + more[v].at(i);
      runs[v] = round_neighbours<In>(x);
      store_neighbours<In>(sum + part.offset(v), aligned, part.left(v), runs[v]);
    }
  }

  // Calls visit(column, x) for the columns of this thread, which have been read before.
  template <class Visit>
  __device__ __forceinline__ void each_again(Visit visit) const {
    const Global<In> row = C::kResidual ? from<In>(g.sum, g.ld_sum, 0) : from<In>(g.in, g.ld_in, 0);
#pragma unroll 1
    for (i64 run = s.begin + thread * kVector; run < s.end; run += kStride) {
#pragma unroll 1
      for (i64 column = run; column < s.end && column < run + kVector; ++column) {
        visit(column, float_of_bits<In>(((Global<WordBits<In>>)row)[column]));
      }
    }
  }

  // ---- statistics ----

  static __device__ __forceinline__ NormStatistics merged(NormStatistics a, NormStatistics b) {
    return merge<C::kKind, NormMath>(a, b);
  }
  static __device__ __forceinline__ NormStatistics exchanged(NormStatistics x, int distance) {
    const int lane = lane_of_wave() ^ distance;
    return {from_lane(x.count, lane), from_lane(x.first, lane), from_lane(x.second, lane)};
  }

  // The statistics of the elements that this thread read of a part.
  static __device__ __forceinline__ NormStatistics statistics_of(Part& part) {
    if constexpr (C::kKind == NormKind::rmsnorm) {
      return {0, 0, part.sum([](float x) { return x * x; })};
    } else if constexpr (kSoftmax) {
      const float most = part.most();
      const float offset = offset_of(most);
      return {0, most, part.sum([=](float x) { return NormMath::exp(x - offset); })};
    } else {
      const int count = part.count();
      const float n = static_cast<float>(count > 0 ? count : 1);
      const float mean = part.sum([](float x) { return x; }) / n;
      part.pad(mean);
      const float squares = part.sum([=](float x) { return (x - mean) * (x - mean); });
      if (count == 0) return no_statistics<C::kKind>();
      return {n, mean, squares};
    }
  }

  // Reads the slice; `part` is left holding its last tile_n columns.
  __device__ __forceinline__ NormStatistics gather(Part& part) const {
    NormStatistics mine = no_statistics<C::kKind>();
#pragma unroll 1
    for (i64 begin = s.begin; begin < s.end; begin += C::kTileN) {
      read_part(begin, false, part);
      mine = merged(mine, statistics_of(part));
    }
    return merge_over_row<C::kWaveN>(mine, memory, exchanged, merged);
  }

  // The statistics of a slice that gather() has read, times a power of two.
  __device__ __forceinline__ NormStatistics gather_again(float power) const {
    NormStatistics mine = no_statistics<C::kKind>();
    each_again([&](i64, float x) {
      const float y = x * power;
      constexpr bool kHasMean = C::kKind == NormKind::layernorm;
      mine = merged(mine, kHasMean ? NormStatistics{1, y, 0} : NormStatistics{1, 0, y * y});
    });
    return merge_over_row<C::kWaveN>(mine, memory + kMergeBytes, exchanged, merged);
  }

  __device__ __forceinline__ ScaledStatistics rescued(const NormStatistics& all) const {
    if constexpr (kMayOverflow) {
      float power = power_for(all, s.end - s.begin, g.epsilon);
      // Lanes merged in orders of their own.
      power = bits<float>(__builtin_amdgcn_readfirstlane(bits<int>(power)));
      if (power != kUsualRows) return {gather_again(power), power};
    }
    return {all, kUsualRows};
  }

  // ---- slices ----

  // The statistics of the row's slices.
  __device__ __forceinline__ GlobalOut<ScaledStatistics> slices() const {
    const auto data = (GlobalOut<char>)g.workspace + statistics;
    return (GlobalOut<ScaledStatistics>)data + s.row * C::kSlices;
  }

  // The statistics of a row, merged from its slices in their order.
  __device__ __forceinline__ ScaledStatistics gathered() const {
    const auto* const all_slices = (const ScaledStatistics*)slices();
    NormStatistics all = all_slices[0].of;
    bool is_usual = all_slices[0].power == kUsualRows;
#pragma unroll 1
    for (int i = 1; i < C::kSlices; ++i) {
      all = merged(all, all_slices[i].of);
      is_usual = is_usual && all_slices[i].power == kUsualRows;
    }
    if (!kMayOverflow || (is_usual && all.second < infinity())) return {all, kUsualRows};
    return rescaled_slices<C::kKind, NormMath>(all_slices, C::kSlices);
  }

  // ---- writing ----

  template <bool kWhole>
  __device__ __forceinline__ Neighbours<Weight, kVector> weights_of(const void* weights,
                                                                    const Part& part, int v) const {
    const Global<Weight> row = (Global<Weight>)weights + part.begin;
    if constexpr (kWhole) return load_aligned<kVector, Weight>(row + part.offset(v));
    return load_neighbours<kVector, Weight>(row, not_ahead(part.offset(v)), part.width,
                                            g.is_aligned != 0);
  }

  // kWhole: rows are aligned and all runs of the part count.
  template <bool kWhole>
  __device__ __forceinline__ void write_runs(NormFactors f, const Part& part) const {
    const bool aligned = kWhole || g.is_aligned != 0;
    const GlobalOut<Out> out = to<Out>(g.out, g.ld_out, part.begin);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int left = kWhole ? kVector : part.left(v);
      float y[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float x = part.x[v][i] - f.offset;
        y[i] = (kSoftmax ? NormMath::exp(x) : x) * f.factor;
      }
      if constexpr (C::kScale) {
        const auto scale = weights_of<kWhole>(g.scale, part, v);
#pragma unroll
        for (int i = 0; i < kVector; ++i) y[i] *= scale.at(i);
      }
      if constexpr (C::kShift) {
        const auto shift = weights_of<kWhole>(g.shift, part, v);
#pragma unroll
        for (int i = 0; i < kVector; ++i) y[i] += shift.at(i);
      }
      store_neighbours<Out>(out + part.offset(v), aligned, left, round_neighbours<Out>(y));
      if constexpr (!kWhole) Part::keep_order();
    }
  }
  __device__ __forceinline__ void write_part(NormFactors f, const Part& part) const {
    if (g.is_aligned != 0 && part.is_whole()) {
      write_runs<true>(f, part);
    } else {
      write_runs<false>(f, part);
    }
  }

  __device__ __forceinline__ float weight(const void* weights, i64 column) const {
    return float_of_bits<Weight>(((Global<WordBits<Weight>>)weights)[column]);
  }
  __device__ __forceinline__ void write_scaled(const ScaledStatistics& all) const {
    const ScaledFactors f = scaled_factors_of<NormMath>(all, g.columns, g.epsilon);
    const GlobalOut<Out> out = to<Out>(g.out, g.ld_out, 0);
    each_again([&](i64 column, float x) {
      float y = (x * f.power - f.offset) * f.factor;
      if constexpr (C::kScale) y *= weight(g.scale, column);
      if constexpr (C::kShift) y += weight(g.shift, column);
      ((GlobalOut<WordBits<Out>>)out)[column] = static_cast<WordBits<Out>>(round_to<Out>(y));
    });
  }

  // is_held: the part is the whole slice.
  __device__ __forceinline__ void write(const ScaledStatistics& all, bool is_held,
                                        Part& part) const {
    if (kMayOverflow && all.power != kUsualRows) return write_scaled(all);
    const NormFactors f = factors_of<C::kKind, NormMath>(all.of, g.columns, g.epsilon);
    if (is_held) return write_part(f, part);
#pragma unroll 1
    for (i64 begin = s.begin; begin < s.end; begin += C::kTileN) {
      read_part(begin, true, part);
      write_part(f, part);
    }
  }

  // ---- outputs of 8 bits ----

  __device__ __forceinline__ bool is_held() const { return s.end - s.begin <= C::kTileN; }
  // make(begin, part) leaves results and zeros in the part; where it holds all it is made already.
  template <class Make>
  __device__ __forceinline__ void write_eight_bits(Make make, Part& part) const {
    const auto scales = (GlobalOut<float>)g.out_scales + s.row * g.row_of_scales;
    const GlobalOut<Out> out = to<Out>(g.out, g.ld_out, 0);
    Eight::template write<C::kWaveN>(
        g, {out, scales, s.begin, s.end, thread, memory + 2 * kMergeBytes}, is_held(), make, part);
  }

  // What was read becomes the result.
  __device__ __forceinline__ void finish(const ScaledFactors& f, Part& part) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Neighbours<Weight, kVector> scale, shift;
      if constexpr (C::kScale) scale = weights_of<false>(g.scale, part, v);
      if constexpr (C::kShift) shift = weights_of<false>(g.shift, part, v);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        float& x = part.x[v][i];
        x = (x * f.power - f.offset) * f.factor;
        if constexpr (C::kScale) x *= scale.at(i);
        if constexpr (C::kShift) x += shift.at(i);
      }
      Part::keep_order();
    }
    part.pad(0);
  }
  __device__ __forceinline__ void write_quantised(const ScaledStatistics& all, Part& part) const {
    const NormFactors usual = factors_of<C::kKind, NormMath>(all.of, g.columns, g.epsilon);
    ScaledFactors f = {kUsualRows, usual.offset, usual.factor};
    if (kMayOverflow && all.power != kUsualRows) {
      f = scaled_factors_of<NormMath>(all, g.columns, g.epsilon);
    }
    const auto make = [&](i64 begin, Part& p) {
      read_part(begin, true, p);
      finish(f, p);
    };
    if (is_held() && f.power == kUsualRows) {
      finish(f, part);  // of what the first pass left there
    } else if (is_held()) {
      make(s.begin, part);
    }
    write_eight_bits(make, part);
  }

  // ---- gates, and copies ----

  __device__ __forceinline__ void run_elementwise(Part& part) const {
    const auto make = [&](i64 begin, Part& p) {
      p.place(begin, s.end, thread);
      ElementwiseRuns<C, Part, kVectors, kVector>::read(g, from<In>(g.in, g.ld_in, 0), p);
    };
    if (is_held()) make(s.begin, part);
    if constexpr (kQuantised) {
      write_eight_bits(make, part);
    } else {
      write_part({0, 1}, part);
    }
  }

 public:
  // A kernel of one step makes the statistics of a row, then its result. The first of two steps
  // writes the statistics of a slice to the workspace.
  static __device__ __forceinline__ void run(const HipNormArguments&) {
    __shared__ __attribute__((aligned(16))) static u8 lds[3 * kMergeBytes];
    const NormKernel kernel(fresh_arguments<HipNormArguments>(), (Shared*)lds);
    if (kernel.s.row == kernel.g.rows) return;
    Part part;
    if constexpr (kElementwise) {
      kernel.run_elementwise(part);
    } else {
      kernel.run_norm(part);
    }
  }
  __device__ __forceinline__ void run_norm(Part& part) const {
    const ScaledStatistics all = rescued(gather(part));
    if constexpr (C::kSlices > 1) {
      if (thread == 0) *(ScaledStatistics*)(slices() + __builtin_amdgcn_workgroup_id_y()) = all;
    } else if constexpr (kQuantised) {
      write_quantised(all, part);
    } else {
      write(all, g.columns <= C::kTileN, part);
    }
  }

  // The second: the statistics of all slices, in their order, then the slice's result.
  static __device__ __forceinline__ void run_result(const HipNormArguments&) {
    const NormKernel kernel(fresh_arguments<HipNormArguments>(), nullptr);
    if (kernel.s.row == kernel.g.rows) return;
    Part part;
    kernel.write(kernel.gathered(), false, part);
  }
};

}  // namespace tessera::device
