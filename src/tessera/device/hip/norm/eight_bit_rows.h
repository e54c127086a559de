// Outputs of 8 bits of rows on an AMD GPU, with scales that are given or written.
#pragma once

#include "tessera/device/hip/eight_bits.h"
#pragma clang force_cuda_host_device begin
#include "tessera/device/norm.h"
#pragma clang force_cuda_host_device end
#include "tessera/device/hip/norm/row_part.h"

namespace tessera::device {

// Part: a RowPart of kVectors runs of kVector neighbours, in which the results lie.
template <class C, class Part, int kVectors, int kVector>
struct EightBitRows {
  using Out = typename C::Out;
  static constexpr bool kIsE4m3 = kSame<Out, fp8>;
  static constexpr float kLargest = largest_of<Out>();

  static __device__ __forceinline__ float most_of(const float (&x)[kVector]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) most = __builtin_fmaxf(most, __builtin_fabsf(x[i]));
    return most;
  }
  // The greatest magnitude of this thread's columns. NaN does not count.
  static __device__ __forceinline__ float most_of(const Part& part) {
    float most = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) most = __builtin_fmaxf(most, most_of(part.x[v]));
    return most;
  }

  static __device__ __forceinline__ void store_run(GlobalOut<Out> out, bool aligned,
                                                   const Part& part, int v, float factor) {
    Neighbours<Out, kVector> run = {};
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      run.put(i, round_to_eight_bits < kIsE4m3 ? 4 : 5 > (part.x[v][i] * factor));
    }
    store_neighbours<Out>(out + part.offset(v), aligned, part.left(v), run);
    Part::keep_order();
  }

  // One scale for all. out: where the part's first column goes.
  static __device__ __forceinline__ void store_over(GlobalOut<Out> out, bool aligned,
                                                    const Part& part, float scale) {
    const float factor = 1.0F / scale;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) store_run(out, aligned, part, v, factor);
  }

  // So many neighbouring lanes of a wave have a block of columns. scales: those of the row.
  static constexpr int kBlockLanes = kQuantBlock / kVector;
  static_assert(kBlockLanes <= kLanes, "a block of columns lies in one wave");
  static __device__ __forceinline__ void store_blocks(const NormArguments& g, GlobalOut<Out> out,
                                                      GlobalOut<float> scales, const Part& part) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float most = most_of(part.x[v]);
#pragma unroll
      for (int distance = kBlockLanes / 2; distance > 0; distance /= 2) {
        most = __builtin_fmaxf(most, from_lane(most, lane_of_wave() ^ distance));
      }
      const float scale = quant_scale(most, kLargest);
      const i64 column = part.begin + part.offset(v);
      if (column % kQuantBlock == 0 && part.left(v) > 0) {
        scales[column / kQuantBlock * g.block_of_scales] = scale;
      }
      store_run(out, g.is_aligned != 0, part, v, 1.0F / scale);
    }
  }

  // The columns of a row that the threads have to do with.
  struct Row {
    GlobalOut<Out> out;
    GlobalOut<float> scales;
    i64 begin, end;
    int thread;
    Shared* memory;  // for a float of each wave
  };

  // Calls make(begin, part) for each tile, which leaves results and zeros in the part, then
  // visit(part). A part that holds all is made already.
  template <class Make, class Visit>
  static __device__ __forceinline__ void each_tile(const Row& row, bool is_made, Make make,
                                                   Part& part, Visit visit) {
    if (is_made) return visit(part);
#pragma unroll 1
    for (i64 begin = row.begin; begin < row.end; begin += C::kTileN) {
      make(begin, part);
      visit(part);
    }
  }

  template <int kWaves, class Make>
  static __device__ __forceinline__ void write(const NormArguments& g, const Row& row, bool is_made,
                                               Make make, Part& part) {
    float scale = 1;
    if constexpr (C::kQuant == NormQuant::tensor) scale = *g.out_scale;
    if constexpr (C::kQuant == NormQuant::row) {
      float most = 0;
      each_tile(row, is_made, make, part,
                [&](const Part& p) { most = __builtin_fmaxf(most, most_of(p)); });
      most = merge_over_row<kWaves>(
          most, row.memory,
          [](float x, int distance) { return from_lane(x, lane_of_wave() ^ distance); },
          [](float a, float b) { return __builtin_fmaxf(a, b); });
      scale = quant_scale(most, kLargest);
      if (row.thread == 0) row.scales[0] = scale;
    }
    each_tile(row, is_made, make, part, [&](const Part& p) {
      if constexpr (C::kQuant == NormQuant::block) {
        store_blocks(g, row.out + p.begin, row.scales, p);
      } else {
        store_over(row.out + p.begin, g.is_aligned != 0, p, scale);
      }
    });
  }
};

}  // namespace tessera::device
