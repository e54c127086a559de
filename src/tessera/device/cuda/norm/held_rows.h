// Rows that threads keep in registers: softmax, RMSNorm and LayerNorm read each element once. Lanes
// of a warp, a block's warps or a cluster's blocks share a row. A row is computed again from memory
// where its squares overflow or vanish.
#pragma once

#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/norm/quantised_rows.h"
#include "tessera/device/cuda/ptx.h"
#include "tessera/device/cuda/row_part.h"
#include "tessera/device/norm.h"

namespace tessera::device {

// kWidth neighbours are moved at once: 16 bytes, or one element where columns or addresses are no
// multiples of that. Each run is therefore whole or absent.
template <class C, class Math, int kWidth>
struct HeldRows {
  using In = typename C::In;
  using Weight = typename C::Weight;
  using Out = typename C::Out;
  static constexpr bool kSoftmax = C::kKind == NormKind::softmax;
  static constexpr bool kHasMean = C::kKind == NormKind::layernorm;
  static constexpr bool kMayOverflow = !kSoftmax && !kSame<In, fp16>;
  static constexpr bool kIsCut = is_elementwise(C::kKind) && C::kQuant != NormQuant::row;
  static constexpr int kThreads = C::kWaveN * 32 / C::kWarpRows;  // of a row, in one block
  static constexpr int kStride = kThreads * kWidth;
  static constexpr int kRuns = C::kTileN / kStride;
  static_assert(C::kTileN % kStride == 0 && kRuns > 0, "each thread holds whole runs");
  // Weights are asked for together with the row where that takes few registers.
  static constexpr int kWeightBytes =
      (C::kScale + C::kShift) * kRuns * kWidth * static_cast<int>(sizeof(Weight));
  static constexpr int kMostEarly = kWidth > 1 ? 32 : 8 * static_cast<int>(sizeof(Weight));
  static constexpr bool kAsksEarly = kWeightBytes > 0 && kWeightBytes <= kMostEarly;
  static constexpr bool kQuantised = C::kQuant != NormQuant::none;
  static constexpr int kMeetings = kQuantised ? 5 : kMayOverflow ? 4 : 2;  // of a row, at most

  struct Place {
    i64 row;
    int first;  // column of this thread
    int bound;  // where its block's columns end; in a cluster from `first` on, to save a register
    __device__ __forceinline__ static int offset(int run) { return run * kStride; }
    __device__ __forceinline__ bool has(int run) const {
      return (C::kSplits > 1 ? 0 : first) + offset(run) < bound;
    }
  };
  struct Weights {
    Neighbours<Weight, kWidth> scale[kRuns], shift[kRuns];
  };

  // The blocks of a cluster have equal shares of a row, in whole vectors or blocks of one scale.
  static __device__ __forceinline__ int columns_of_block(const NormArguments& g) {
    constexpr int kUnit =
        C::kQuant == NormQuant::block ? kQuantBlock : 16 / static_cast<int>(sizeof(In));
    const int units = (static_cast<int>(g.columns) + kUnit - 1) / kUnit;
    return (units + C::kSplits - 1) / C::kSplits * kUnit;
  }

  static __device__ __forceinline__ Place place_of(const NormArguments& g) {
    const i64 block = static_cast<i64>(blockIdx.z) * (gridDim.x / C::kSplits) +
                      blockIdx.x / static_cast<unsigned>(C::kSplits);
    const unsigned thread = threadIdx.x;
    const i64 row = (block * C::kWaveM + threadIdx.y) * C::kWarpRows +
                    (C::kWarpRows > 1 ? thread / kThreads : 0);
    const int columns = row < g.rows ? static_cast<int>(g.columns) : 0;
    const int ahead = static_cast<int>(thread % kThreads) * kWidth;
    if constexpr (C::kSplits > 1) {
      const int share = columns_of_block(g);
      const int begin = static_cast<int>(blockIdx.x % C::kSplits) * share;
      const int left = columns - begin < share ? columns - begin : share;
      return {row, begin + ahead, left - ahead};
    }
    return {row, (kIsCut ? static_cast<int>(blockIdx.y) * C::kTileN : 0) + ahead, columns};
  }

  template <class T>
  static __device__ __forceinline__ T* at(const void* base, const Place& p, i64 ld) {
    return static_cast<T*>(const_cast<void*>(base)) + p.row * ld + p.first;
  }

  template <class T>
  static __device__ __forceinline__ void load(const T* from, const Place& p,
                                              Neighbours<T, kWidth> (&runs)[kRuns]) {
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      if (p.has(v)) runs[v] = load_run<kWidth>(from + Place::offset(v), true, kWidth);
    }
  }

  template <class T>
  static __device__ __forceinline__ void store(T* to, const float (&x)[kWidth]) {
    if constexpr (kWidth == 1) {
      *to = rounded<T>(x[0]);
    } else {
      store_floats(to, true, kWidth, x);
    }
  }

  // With a residual the sum is stored, and what was stored is what counts.
  static __device__ __forceinline__ void read(const NormArguments& g, const Place& p,
                                              float (&x)[kRuns][kWidth]) {
    Neighbours<In, kWidth> runs[kRuns];
    load(at<In>(g.in, p, g.ld_in), p, runs);
    if constexpr (C::kResidual) {
      Neighbours<In, kWidth> more[kRuns];
      load(at<In>(g.residual, p, g.ld_residual), p, more);
      In* const sum = at<In>(g.sum, p, g.ld_sum);
#pragma unroll
      for (int v = 0; v < kRuns; ++v) {
        if (!p.has(v)) continue;
        float y[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          y[i] = to_float(runs[v].x[i]) + to_float(more[v].x[i]);
          runs[v].x[i] = rounded<In>(y[i]);
        }
        store(sum + Place::offset(v), y);
      }
    }
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        x[v][i] = p.has(v) ? to_float(runs[v].x[i]) : kSoftmax ? -infinity() : 0.0F;
      }
    }
  }

  template <bool kUsed>
  static __device__ __forceinline__ Neighbours<Weight, kWidth> weights_at(const void* weights,
                                                                          const Place& p, int run) {
    if constexpr (!kUsed) return {};
    const Weight* const from = static_cast<const Weight*>(weights) + p.first + Place::offset(run);
    if constexpr (kWidth == 1) {
      return {{*from}};
    } else {
      return load_constants<kWidth>(from, true, kWidth);
    }
  }

  // ---- what the threads of a row have together ----

  enum class Merge { sum, most };
  template <Merge kMerge>
  static __device__ __forceinline__ float merged(float a, float b) {
    return kMerge == Merge::sum ? a + b : fmaxf(a, b);
  }

  static __device__ __forceinline__ unsigned lanes_of_row() {
    constexpr int kLanes = kThreads < 32 ? kThreads : 32;
    const unsigned lane = threadIdx.x % 32;
    return kLanes == 32 ? ~0U : ((1U << (kLanes % 32)) - 1U) << (lane / kLanes * kLanes);
  }

  // Each meeting of a row has shared memory of its own, so that none waits for readers of another.
  template <Merge kMerge, int kMeeting, class Meet>
  static __device__ __forceinline__ float of_row(float mine, Meet meet) {
    constexpr int kLanes = kThreads < 32 ? kThreads : 32;
    const unsigned lane = threadIdx.x % 32;
    const unsigned mask = lanes_of_row();
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      mine = merged<kMerge>(mine, __shfl_xor_sync(mask, mine, distance));
    }
    if constexpr (C::kWaveN > 1) {
      __shared__ float warps[kMeetings][C::kWaveM][C::kWaveN];
      float(&of)[C::kWaveN] = warps[kMeeting][threadIdx.y];
      if (lane == 0) of[threadIdx.x / 32] = mine;
      meet();
      mine = of[0];
#pragma unroll
      for (int w = 1; w < C::kWaveN; ++w) mine = merged<kMerge>(mine, of[w]);
    }
    if constexpr (C::kSplits > 1) return of_cluster<kMerge, kMeeting>(mine);
    return mine;
  }

  template <Merge kMerge, int kMeeting>
  static __device__ __forceinline__ float of_cluster(float mine) {
    __shared__ float blocks[kMeetings];
    if (threadIdx.x == 0) blocks[kMeeting] = mine;
    cluster_sync();
    const u32 place = shared_address(&blocks[kMeeting]);
    float parts[C::kSplits];
#pragma unroll
    for (int b = 0; b < C::kSplits; ++b) parts[b] = load_remote(in_block(place, b));
    mine = parts[0];
#pragma unroll
    for (int b = 1; b < C::kSplits; ++b) mine = merged<kMerge>(mine, parts[b]);
    return mine;
  }
  static __device__ __forceinline__ float load_remote(u32 address) {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
  }

  // Four sums side by side hide the latency of an addition.
  template <class Term>
  static __device__ __forceinline__ float sum_of(const float (&x)[kRuns][kWidth], Term term) {
    float sums[4] = {};
#pragma unroll
    for (int n = 0; n < kRuns * kWidth; ++n) sums[n % 4] += term(x[n / kWidth][n % kWidth]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // ---- the two passes ----

  // x becomes exp(x - most) or x - mean; returns what to multiply it by, and the statistics.
  struct Result {
    NormStatistics of;
    float factor;
  };
  static __device__ __forceinline__ Result compute(const NormArguments& g, const Place& p,
                                                   float (&x)[kRuns][kWidth]) {
    const auto meet = [] { __syncthreads(); };
    if constexpr (kSoftmax) {
      float most = -infinity();
#pragma unroll
      for (int n = 0; n < kRuns * kWidth; ++n) most = fmaxf(most, x[n / kWidth][n % kWidth]);
      const float offset = offset_of(of_row<Merge::most, 0>(most, meet));
#pragma unroll
      for (int n = 0; n < kRuns * kWidth; ++n) {
        float& value = x[n / kWidth][n % kWidth];
        value = Math::exp(value - offset);
      }
      const float sum = of_row<Merge::sum, 1>(sum_of(x, [](float y) { return y; }), meet);
      return {{}, 1.0F / sum};
    } else {
      NormStatistics all = {};
      if constexpr (kHasMean) {
        const float sum = of_row<Merge::sum, 0>(sum_of(x, [](float y) { return y; }), meet);
        all.first = sum / static_cast<float>(g.columns);
#pragma unroll
        for (int v = 0; v < kRuns; ++v) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) x[v][i] = p.has(v) ? x[v][i] - all.first : 0.0F;
        }
      }
      all.second = of_row<Merge::sum, 1>(sum_of(x, [](float y) { return y * y; }), meet);
      return {all, Math::reciprocal_sqrt(all.second / static_cast<float>(g.columns) + g.epsilon)};
    }
  }

  static __device__ __forceinline__ void write(const NormArguments& g, const Place& p, float factor,
                                               const Weights& early, float (&x)[kRuns][kWidth]) {
    Out* const out = at<Out>(g.out, p, g.ld_out);
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      if (!p.has(v)) continue;
      const auto scale = kAsksEarly ? early.scale[v] : weights_at<C::kScale>(g.scale, p, v);
      const auto shift = kAsksEarly ? early.shift[v] : weights_at<C::kShift>(g.shift, p, v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        x[v][i] *= factor;
        if (C::kScale) x[v][i] *= to_float(scale.x[i]);
        if (C::kShift) x[v][i] += to_float(shift.x[i]);
      }
      if constexpr (!kQuantised) store(out + Place::offset(v), x[v]);
    }
    if constexpr (kQuantised) QuantisedRows<C, HeldRows, kWidth>::write(g, p, out, x);
  }

  // ---- rows whose squares overflow or vanish ----

  // Calls visit(offset, x) for the columns of this thread, as they lie in memory.
  template <class Visit>
  static __device__ __forceinline__ void each_again(const NormArguments& g, const Place& p,
                                                    Visit visit) {
    const In* const row = C::kResidual ? at<In>(g.sum, p, g.ld_sum) : at<In>(g.in, p, g.ld_in);
#pragma unroll 1
    for (int v = 0; v < kRuns && p.has(v); ++v) {
#pragma unroll 1
      for (int i = Place::offset(v); i < Place::offset(v) + kWidth; ++i) visit(i, to_float(row[i]));
    }
  }

  // The row's results are stored, or with quant those before the weights are left in y.
  static __device__ void compute_scaled(const NormArguments& g, const Place& p, float power,
                                        float (&y)[kRuns][kWidth]) {
    const auto meet = [] {
      if constexpr (C::kWaveN > 1) meet_row<C::kWaveM, C::kWaveN>();
    };
    ScaledStatistics all = {{}, power};
    if constexpr (kHasMean) {
      float sum = 0;
      each_again(g, p, [&](int, float x) { sum += x * power; });
      all.of.first = of_row<Merge::sum, 2>(sum, meet) / static_cast<float>(g.columns);
    }
    float squares = 0;
    each_again(g, p, [&](int, float x) {
      const float distance = x * power - all.of.first;
      squares += distance * distance;
    });
    all.of.second = of_row<Merge::sum, 3>(squares, meet);
    const ScaledFactors f = scaled_factors_of<Math>(all, g.columns, g.epsilon);
    if constexpr (kQuantised) {
      load_scaled(g, p, f, y);
    } else {
      store_scaled(g, p, f);
    }
  }
  static __device__ __forceinline__ void load_scaled(const NormArguments& g, const Place& p,
                                                     const ScaledFactors& f,
                                                     float (&y)[kRuns][kWidth]) {
    const In* const row = C::kResidual ? at<In>(g.sum, p, g.ld_sum) : at<In>(g.in, p, g.ld_in);
#pragma unroll
    for (int n = 0; n < kRuns * kWidth; ++n) {
      const int v = n / kWidth;
      if (!p.has(v)) continue;
      const float x = to_float(row[Place::offset(v) + n % kWidth]);
      y[v][n % kWidth] = (x * f.power - f.offset) * f.factor;
    }
  }
  static __device__ __forceinline__ void store_scaled(const NormArguments& g, const Place& p,
                                                      const ScaledFactors& f) {
    Out* const out = at<Out>(g.out, p, g.ld_out);
    each_again(g, p, [&](int i, float x) {
      float y = (x * f.power - f.offset) * f.factor;
      if (C::kScale) y *= to_float(static_cast<const Weight*>(g.scale)[p.first + i]);
      if (C::kShift) y += to_float(static_cast<const Weight*>(g.shift)[p.first + i]);
      out[i] = rounded<Out>(y);
    });
  }

  static __device__ __forceinline__ void ask_early(const NormArguments& g, const Place& p,
                                                   Weights& early) {
    if constexpr (!kAsksEarly) return;
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      if (!p.has(v)) continue;
      early.scale[v] = weights_at<C::kScale>(g.scale, p, v);
      early.shift[v] = weights_at<C::kShift>(g.shift, p, v);
    }
  }

  static __device__ __forceinline__ void run(const NormArguments& g) {
    const Place p = place_of(g);
    Weights early;
    ask_early(g, p, early);
    run_with(g, p, early);
  }
  static __device__ __forceinline__ void run_with(const NormArguments& g, const Place& p,
                                                  const Weights& early) {
    float x[kRuns][kWidth];
    read(g, p, x);
    Result result = compute(g, p, x);
    const float power =
        kMayOverflow && p.row < g.rows ? power_for(result.of, g.columns, g.epsilon) : kUsualRows;
    const bool is_usual = power == kUsualRows;
    if (!is_usual) {
      compute_scaled(g, p, power, x);
      result.factor = 1;
    }
    if (kQuantised || is_usual) write(g, p, result.factor, early, x);
    // A block's shared memory must last until the others have read it.
    if constexpr (C::kSplits > 1) cluster_sync();
  }
};

}  // namespace tessera::device
