// The last step of backward_weight with copied operands: each element of the filters adds up its
// sums, which lie in the workspace where the copy of the filters has it, and finishes them.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/conv_sums.h"
#include "tessera/device/cuda/conv/repack_arguments.h"

namespace tessera::device {

template <class C, int kThreads>
struct FilterSums {
  // A thread adds up every `lanes`-th slice of an element, and the first of its threads adds up
  // what the others found, in their order.
  static __device__ __forceinline__ void add(const CudaRepackArguments& g) {
    __shared__ float found[kThreads];
    const FilterCopy& w = g.filter;
    const int per_block = kThreads / g.lanes;
    const int lane = static_cast<int>(threadIdx.x) / per_block;
    const int index = static_cast<int>(blockIdx.x * per_block + threadIdx.x % per_block);
    const int all = w.groups * w.k * w.taps[0] * w.taps[1] * w.taps[2] * w.c;
    const bool exists = lane < g.lanes && index < all;
    const FilterElement at = filter_element(w, exists ? index : 0);
    float sum = 0;
    if (exists) {
      const float* const from = ConvSums<C>::at(g) + filter_sum(g, at);
      const i64 slice_stride = g.result.batch * g.result.rows * g.pitch;
#pragma unroll 8
      for (int slice = lane; slice < C::kSlices; slice += g.lanes) {
        sum += from[slice * slice_stride];
      }
    }
    found[threadIdx.x] = sum;
    __syncthreads();
    if (!exists || lane != 0) return;
#pragma unroll 1
    for (int i = 1; i < g.lanes; ++i) sum += found[threadIdx.x + i * per_block];
    const ConvMatrix& m = g.result;
    const ConvResult<C> result(
        {m.c, {m.d[0], m.d[1], m.d[2], m.d[3]}, m.out, m.alpha, m.beta, m.clamp_lo, m.clamp_hi}, 0);
    result.store(filter_offset(w, at), 0, sum);
  }
};

}  // namespace tessera::device
