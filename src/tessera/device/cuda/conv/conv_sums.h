// For slices of the depth: blocks leave their sums in the workspace, and a second step adds them up
// in their order and finishes them.
#pragma once

#include "tessera/device/cuda/conv/conv_arguments.h"
#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/ptx.h"
#include "tessera/device/cuda/tma_store.h"

namespace tessera::device {

// The sums are matrices of rows `pitch` apart, a multiple of 4: [slice][batch][row][column].
template <class C, int kThreads>
struct ConvSums {
  static __device__ __forceinline__ float* at(const CudaConvArguments& g) {
    return reinterpret_cast<float*>(static_cast<char*>(g.workspace) + g.partial_sums);
  }

  // The sums of one consumer warpgroup, whose first one belongs to `place`.
  template <int kBlocks, int kCount>
  static __device__ __forceinline__ void put(const CudaConvArguments& g,
                                             const float (&sums)[kBlocks][kCount],
                                             const StorePlace& place, int slice, int thread) {
    const i64 matrix = i64{slice} * g.result.batch + place.batch;
    const int first_row = place.row + thread / 32 * 16 + thread % 32 / 4;
    const int first_column = place.column + thread % 4 * 2;
    float* const to = at(g) + (matrix * g.result.rows + first_row) * g.pitch + first_column;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        const int row = block * kWgmmaRows + i % 2 * 8;
        const int column = i / 2 * 8;
        if (first_row + row < g.result.rows && first_column + column < g.pitch) {
          *reinterpret_cast<float2*>(to + i64{row} * g.pitch + column) =
              make_float2(sums[block][i * 2], sums[block][i * 2 + 1]);
        }
      }
    }
  }

  // A thread adds up 4 neighbours of every `lanes`-th slice, and the first thread of a lane's
  // column adds up what these found.
  static __device__ __forceinline__ void add(const CudaConvArguments& g) {
    __shared__ float4 found[kThreads];
    const ConvMatrix& result = g.result;
    const int per_block = kThreads / g.lanes;
    const int lane = static_cast<int>(threadIdx.x) / per_block;
    const int vectors = g.pitch / 4;  // of a row
    const i64 index = i64{blockIdx.x} * per_block + threadIdx.x % per_block;
    const i64 rows = result.batch * result.rows;
    const bool exists = lane < g.lanes && index < rows * vectors;
    float4 sum = make_float4(0, 0, 0, 0);
    if (exists) {
      const auto* const from = reinterpret_cast<const float4*>(at(g)) + index;
#pragma unroll 8
      for (int slice = lane; slice < C::kSlices; slice += g.lanes) {
        add_to(sum, from[slice * rows * vectors]);
      }
    }
    found[threadIdx.x] = sum;
    __syncthreads();
    if (!exists || lane != 0) return;
#pragma unroll 1
    for (int i = 1; i < g.lanes; ++i) add_to(sum, found[threadIdx.x + i * per_block]);
    const i64 row = index / vectors;
    const i64 batch = row / result.rows;
    const i64 column = (index - row * vectors) * 4;
    const Finish<C, ConvMatrix> finish(result, batch);
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const i64 left = result.columns - column - i;
      const int count = left < 0 ? 0 : left < 2 ? static_cast<int>(left) : 2;
      const Place place = {row - batch * result.rows, column + i, count};
      const auto done = finish.finish(place, x[i], x[i + 1]);
      finish.store(finish.address(place), done, count);
    }
  }
  static __device__ __forceinline__ void add_to(float4& sum, const float4& x) {
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
  }
};

}  // namespace tessera::device
