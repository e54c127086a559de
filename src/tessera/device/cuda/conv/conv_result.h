// Finishes and stores single sums of a convolution, wherever they lie.
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/cuda/epilogue.h"

namespace tessera::device {

// Strides that are the same number for every batch and D tensor.
template <i64 kStride>
struct SameStrides {
  __device__ __forceinline__ constexpr i64 operator[](int) const { return kStride; }
};

// What an epilogue reads, see epilogue.h. An element is named by its channel, which is its column,
// and by its distance from there in memory, which is its row.
struct ConvResultArguments {
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
struct ConvResultConfig : C {
  template <class T>
  using Stored = typename If<kSame<T, tf32>, float, T>::Type;
  static constexpr bool kForward = C::kDirection == ConvDirection::forward;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  using Gradient = typename If<kWeight, typename C::W, typename C::X>::Type;
  using Out = Stored<typename If<kForward, typename C::Y, Gradient>::Type>;
  using D = Stored<typename C::D>;
};

__device__ __forceinline__ ConvResultArguments conv_result_arguments(const ConvArguments& g) {
  return {g.before,  {g.d[0], g.d[1], g.d[2], g.d[3]}, g.out, g.alpha, g.beta, g.clamp_lo,
          g.clamp_hi};
}

template <class C>
class ConvResult {
  using Config = ConvResultConfig<C>;
  using Out = typename Config::Out;

 public:
  // The results of one group, which begin at the element `offset`.
  __device__ __forceinline__ ConvResult(const ConvResultArguments& arguments, i64 offset)
      : finish(arguments, 0), first(offset) {}

  // `channel` is the channel of y over all groups.
  __device__ __forceinline__ void store(i64 offset, i64 channel, typename C::Acc sum) const {
    const Place at = {first + offset - channel, channel, 1};
    const PairBits<Out> pair = finish.finish(at, sum, 0);
    finish.store(finish.address(at), pair, 1);
  }

  // Two elements side by side. Their channels adjoin, too, unless no vector is added.
  __device__ __forceinline__ void store_pair(i64 offset, i64 channel, typename C::Acc x,
                                             typename C::Acc y) const {
    const Place at = {first + offset - channel, channel, 2};
    const PairBits<Out> pair = finish.finish(at, x, y);
    Out* const to = finish.address(at);
    if constexpr (sizeof(pair) == 4) {
      if (reinterpret_cast<u64>(to) % 4 == 0) {
        *reinterpret_cast<PairBits<Out>*>(to) = pair;
        return;
      }
    }
    finish.store(to, pair, 2);
  }

 private:
  Finish<Config, ConvResultArguments> finish;
  i64 first;
};

}  // namespace tessera::device
