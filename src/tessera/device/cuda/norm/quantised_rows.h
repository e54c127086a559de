// Outputs of 8 bits of rows that threads hold in registers, with scales that are given or written.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/row_part.h"
#include "tessera/device/norm.h"

namespace tessera::device {

// H: the HeldRows that computed the rows.
template <class C, class H, int kWidth>
struct QuantisedRows {
  using Out = typename C::Out;
  using Place = typename H::Place;
  static constexpr int kRuns = H::kRuns, kThreads = H::kThreads;
  static constexpr float kLargest = kSame<Out, fp8> ? 448.0F : 57344.0F;

  static __device__ __forceinline__ void write(const NormArguments& g, const Place& p, Out* out,
                                               const float (&y)[kRuns][kWidth]) {
    if constexpr (C::kQuant == NormQuant::block) {
      write_blocks(g, p, out, y);
    } else {
      write_over(g, p, out, y);
    }
  }

  // The rows of a block may have come here by ways of their own.
  static __device__ __forceinline__ void meet_here() {
    if constexpr (C::kWaveN > 1) {
      meet_row<C::kWaveM, C::kWaveN>();
    } else {
      __syncwarp(H::lanes_of_row());
    }
  }
  // NaN does not count.
  static __device__ __forceinline__ float most_of(const float (&y)[kWidth]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) most = fmaxf(most, fabsf(y[i]));
    return most;
  }

  static __device__ __forceinline__ void store_over(Out* to, const float (&y)[kWidth],
                                                    float factor) {
    if constexpr (kWidth == 1) {
      *to = rounded_output<Out>(y[0] * factor);
    } else {
      Neighbours<PairBits<Out>, kWidth / 2> run;
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) {
        run.x[i] = round_output<Out>(y[2 * i] * factor, y[2 * i + 1] * factor);
      }
      *reinterpret_cast<Neighbours<PairBits<Out>, kWidth / 2>*>(to) = run;
    }
  }

  // One scale for the row, or a given one.
  static __device__ __forceinline__ void write_over(const NormArguments& g, const Place& p,
                                                    Out* out, const float (&y)[kRuns][kWidth]) {
    float scale;
    if constexpr (C::kQuant == NormQuant::tensor) {
      scale = *g.out_scale;
    } else {
      float most = 0;
#pragma unroll
      for (int v = 0; v < kRuns; ++v) most = p.has(v) ? fmaxf(most, most_of(y[v])) : most;
      scale =
          quant_scale(H::template of_row<H::Merge::most, 4>(most, [] { meet_here(); }), kLargest);
      if (p.row < g.rows && p.first == 0) g.out_scales[p.row * g.row_of_scales] = scale;
    }
    const float factor = 1.0F / scale;
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      if (p.has(v)) store_over(out + Place::offset(v), y[v], factor);
    }
  }

  // So many neighbouring lanes have runs of one block of columns.
  static constexpr int kRunsOfBlock = kQuantBlock / kWidth;
  static constexpr int kRowLanes = kThreads < 32 ? kThreads : 32;
  static constexpr int kBlockLanes = kRunsOfBlock < kRowLanes ? kRunsOfBlock : kRowLanes;
  static constexpr int kBlocks = (C::kTileN + kQuantBlock - 1) / kQuantBlock;

  static __device__ __forceinline__ void write_blocks(const NormArguments& g, const Place& p,
                                                      Out* out, const float (&y)[kRuns][kWidth]) {
    float most[kRuns];
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      most[v] = p.has(v) ? most_of(y[v]) : 0.0F;
#pragma unroll
      for (int distance = kBlockLanes / 2; distance > 0; distance /= 2) {
        most[v] = fmaxf(most[v], __shfl_xor_sync(H::lanes_of_row(), most[v], distance));
      }
    }
    if constexpr (kBlockLanes < kRunsOfBlock) meet_blocks(p, most);
    float* const scales = g.out_scales + p.row * g.row_of_scales;
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      if (!p.has(v)) continue;
      const int column = p.first + Place::offset(v);
      const float scale = quant_scale(most[v], kLargest);
      if (column % kQuantBlock == 0) scales[column / kQuantBlock * g.block_of_scales] = scale;
      store_over(out + Place::offset(v), y[v], 1.0F / scale);
    }
  }

  // Where lanes of several warps, or several runs of a lane, have a block.
  static __device__ __forceinline__ void meet_blocks(const Place& p, float (&most)[kRuns]) {
    __shared__ u32 blocks[C::kWaveM * C::kWarpRows][kBlocks];
    const unsigned thread = threadIdx.x;
    const unsigned row = C::kWarpRows > 1 ? thread / kThreads : 0;
    u32(&of)[kBlocks] = blocks[threadIdx.y * C::kWarpRows + row];
    for (int b = static_cast<int>(thread % kThreads); b < kBlocks; b += kThreads) of[b] = 0;
    meet_here();
    const int first = static_cast<int>(thread % kThreads) * kWidth;
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {  // floats that are not negative are ordered as integers
      atomicMax(&of[(first + Place::offset(v)) / kQuantBlock], __float_as_uint(most[v]));
    }
    meet_here();
#pragma unroll
    for (int v = 0; v < kRuns; ++v) {
      most[v] = __uint_as_float(of[(first + Place::offset(v)) / kQuantBlock]);
    }
  }
};

}  // namespace tessera::device
