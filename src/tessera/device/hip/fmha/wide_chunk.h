// Numbers of 8 bits as operands of 16 bits, exactly.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

// Two neighbours of a word, the lower ones or the upper ones.
template <class From, bool kUpper>
__device__ __forceinline__ Vec<float, 2> two_of(u32 word) {
#if defined(__gfx942__) || defined(__gfx950__)
  if constexpr (kSame<From, fp8>) {
    return __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), kUpper);
  } else {
    return __builtin_amdgcn_cvt_pk_f32_bf8(static_cast<int>(word), kUpper);
  }
#else
  static_assert(sizeof(From) == 0, "the target has no instructions for floats of 8 bits");
  return word;
#endif
}

template <class To>
__device__ __forceinline__ u32 pair_of(const Vec<float, 2>& x) {
  if constexpr (kSame<To, fp16>) {
    return bits<u32>(__builtin_amdgcn_cvt_pkrtz(x[0], x[1]));
  } else {
    return __builtin_amdgcn_perm(bits<u32>(x[1]), bits<u32>(x[0]), 0x07060302U);
  }
}

// Half `half` of a chunk of 16 numbers.
template <class To, class From>
__device__ __forceinline__ Chunk widened_half(const Chunk& from, int half) {
  Chunk to;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[2 * i] = pair_of<To>(two_of<From, false>(from[half * 2 + i]));
    to[2 * i + 1] = pair_of<To>(two_of<From, true>(from[half * 2 + i]));
  }
  return to;
}

}  // namespace tessera::device
