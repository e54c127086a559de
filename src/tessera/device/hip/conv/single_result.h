// Finishes and stores single sums of a convolution, wherever they lie.
#pragma once

#pragma clang force_cuda_host_device begin
#include "tessera/device/conv.h"
#pragma clang force_cuda_host_device end
#include "tessera/device/hip/epilogue.h"

namespace tessera::device {

// Strides that are the same number for every D tensor.
template <i64 kStride>
struct SameStrides {
  __device__ __forceinline__ constexpr i64 operator[](int) const { return kStride; }
};

// What an epilogue reads, see epilogue.h. An element is named by its channel, which is its column,
// and by its distance from there in memory, which is its row.
struct SingleResultArguments {
  const void* c;
  const void* d[4];
  void* out;
  float alpha, beta, clamp_lo, clamp_hi;
  static constexpr int pointer_arrays = 0;
  static constexpr i64 batch_stride_c = 0, batch_stride_out = 0, ld_c = 1, ld_out = 1;
  static constexpr SameStrides<0> batch_stride_d = {};
  static constexpr SameStrides<1> ld_d = {};
};

// The result's type, and the epilogue's numbers, which for tf32 are fp32.
template <class C>
struct SingleResultConfig : C {
  template <class T>
  using Stored = typename If<kSame<T, tf32>, float, T>::Type;
  static constexpr bool kForward = C::kDirection == ConvDirection::forward;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  using Gradient = typename If<kWeight, typename C::W, typename C::X>::Type;
  using Out = Stored<typename If<kForward, typename C::Y, Gradient>::Type>;
  using D = Stored<typename C::D>;
};

// Stores the element at this distance from the first one; `channel` is the channel of y over all
// groups.
template <class C>
__device__ __forceinline__ void store_result(const ConvArguments& g, i64 offset, i64 channel,
                                             typename C::Acc sum) {
  const SingleResultArguments arguments = {
      g.before, {g.d[0], g.d[1], g.d[2], g.d[3]}, g.out, g.alpha, g.beta, g.clamp_lo, g.clamp_hi};
  const Finish<SingleResultConfig<C>, SingleResultArguments> finish(arguments, 0);
  finish.store({offset - channel, channel, 1}, Vec<typename C::Acc, 4>{sum, 0, 0, 0});
}

}  // namespace tessera::device
