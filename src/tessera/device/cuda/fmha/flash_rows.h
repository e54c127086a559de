// The softmax of a flash kernel on wgmma's accumulators. A thread has parts of two rows of scores:
// element i belongs to row i / 2 % 2 and to key i / 4 * 8 + lane % 4 * 2 + i % 2.
#pragma once

#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/cuda/fragments.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/tma.h"

namespace tessera::device {

// How weights are scaled. Only the first block of a tile, blocks with masked keys and repaired ones
// take their maxima. The other blocks use the reference of before: their weights are
// 2^(score - reference - kShift), however large. fp32 sums hold that, and so do weights in bf16;
// the range of fp16 is smaller. has_room() tells from a row's sum before and after a block whether
// the reference was near enough.
template <class T>
struct FlashRange;
template <>
struct FlashRange<bf16> {
  static constexpr float kShift = kFlashShift;
  static __device__ __forceinline__ bool has_room(float, float after) { return after <= 0x1p60F; }
};
template <>
struct FlashRange<fp16> {
  static constexpr float kShift = 0;
  static __device__ __forceinline__ bool has_room(float before, float after) {
    return after - before <= 0x1p14F;
  }
};

inline constexpr float kFlashLag = 8;  // by how much a reference may lag behind, in powers of 2

// The rows: their reference, this thread's part of their sum of weights, and what is subtracted
// from scores in powers of 2.
struct FlashRows {
  float reference[2], total[2], offset[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      reference[x] = minus_infinity();
      total[x] = 0;
      offset[x] = 0;
    }
  }
};

__device__ __forceinline__ float most_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0U, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0U, x, 2));
}
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(~0U, x, 1);
  return x + __shfl_xor_sync(~0U, x, 2);
}

// Hides the keys from `first` on in the upper row, from `second` on in the lower one. Both count
// from the thread's first key.
template <int kCount>
__device__ __forceinline__ void hide(float (&scores)[kCount], int first, int second) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int key = i / 4 * 8 + i % 2;
    if (key >= (i / 2 % 2 == 0 ? first : second)) scores[i] = minus_infinity();
  }
}

// Hides the keys before `first` in the upper row, and before `second` in the lower one.
template <int kCount>
__device__ __forceinline__ void hide_before(float (&scores)[kCount], int first, int second) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int key = i / 4 * 8 + i % 2;
    if (key < (i / 2 % 2 == 0 ? first : second)) scores[i] = minus_infinity();
  }
}

// A bias may make scores that fp32 does not hold in powers of 2, as finfo.min does where it masks
// keys. fp32 numbers as low as that are so far apart that only scores equal to the maximum weigh.
inline constexpr float kLowReference = -0x1p126F;
__device__ __forceinline__ bool is_low(float reference) {
  return reference <= kLowReference && reference != minus_infinity();
}

// Raises the scores of low rows by so much that the reference becomes kLowReference, which is exact
// in powers of 2.
template <int kCount>
__device__ __forceinline__ void raise_low(const FlashRows& rows, float (&scores)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float reference = rows.reference[i / 2 % 2];
    if (is_low(reference)) scores[i] = (scores[i] - reference) + kLowReference;
  }
}

// Moves the references to the maxima where they lag too far behind, and scales the sums; factor:
// by how much. Whether a row of the warp moved. `unit` turns scores into powers of 2. kLow: whether
// references may be low.
template <class T, bool kLow, int kCount>
__device__ __forceinline__ bool refer(float (&scores)[kCount], float unit, FlashRows& rows,
                                      float (&factor)[2]) {
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    float u = fmaxf(scores[2 * x], scores[2 * x + 1]);
    float v = fmaxf(scores[2 * x + 4], scores[2 * x + 5]);
#pragma unroll
    for (int i = 8 + 2 * x; i < kCount; i += 8) {
      u = fmaxf(fmaxf(u, scores[i]), scores[i + 1]);
      v = fmaxf(fmaxf(v, scores[i + 4]), scores[i + 5]);
    }
    const float before = rows.reference[x];
    float most = fmaxf(before, most_of_row(fmaxf(u, v)));
    if ((most - before) * unit <= kFlashLag) most = before;
    const bool low = kLow && is_low(most);
    const float offset = most == minus_infinity() ? 0.0F : (low ? kLowReference : most) * unit;
    const float moved = rows.offset[x] - (offset + FlashRange<T>::kShift);
    factor[x] = before == minus_infinity() || (low && most != before) ? 0.0F : exp2_fast(moved);
    rows.reference[x] = most;
    rows.offset[x] = offset + FlashRange<T>::kShift;
    rows.total[x] *= factor[x];
  }
  if constexpr (kLow) {
    const bool has_low = is_low(rows.reference[0]) || is_low(rows.reference[1]);
    if (__any_sync(~0U, has_low)) raise_low(rows, scores);
  }
  return __any_sync(~0U, factor[0] != 1.0F || factor[1] != 1.0F);
}

// Makes weights of scores and adds them to the sums.
template <int kCount>
__device__ __forceinline__ void weigh(float (&scores)[kCount], float unit, FlashRows& rows) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int x = i / 2 % 2;
    scores[i] = exp2_fast(scores[i] * unit - rows.offset[x]);
    if (i % 2 != 0) rows.total[x] += scores[i - 1] + scores[i];
  }
}

// A matrix whose rows are tokens, in device memory; elements are neighbours.
template <class T>
struct FlashTokens {
  const T* data;
  i64 stride;
  int hdim;
};

// Multiplies the 16 queries of a warp with a block of keys once more, because wgmma's scores are
// gone. fragment(step, words) loads the queries' words for 16 elements.
template <int kHdim, class T, int kCount, class LoadFragment>
__device__ __forceinline__ void multiply_again(const FlashTokens<T>& keys, int lane,
                                               LoadFragment fragment, float (&scores)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) scores[i] = 0;
  const T* const first = keys.data + lane / 4 * keys.stride + lane % 4 * 2;
#pragma unroll 1
  for (int element = 0; element < kHdim; element += 16) {
    u32 words[4];
    fragment(element / 16, words);
    const u32 a[2] = {words[0], words[2]};
    const u32 low[2] = {words[1], words[3]};
    const bool has_first = element < keys.hdim;
    const bool has_second = element + 8 < keys.hdim;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const T* const key = first + i * 2 * keys.stride + element;
      u32 b[2] = {0, 0};
      if (has_first) b[0] = *reinterpret_cast<const u32*>(key);
      if (has_second) b[1] = *reinterpret_cast<const u32*>(key + 8);
      float sums[4] = {scores[i], scores[i + 1], scores[i + 2], scores[i + 3]};
      mma<T>(sums, a, low, b);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] = sums[e];
    }
  }
}

// What lies behind a sequence belongs to another one or to nobody, and 0 times that may be NaN.
// Zeros take its place: whole lines of 128 bytes of each slab, from row `from` on.
template <int kSlabs, int kRows>
__device__ __forceinline__ void clear_rows(u32 slabs, int from, int index, int threads) {
#pragma unroll 1
  for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll 1
    for (int at = from * kLineBytes + index * 16; at < kRows * kLineBytes; at += threads * 16) {
      store_shared(slabs + slab * kRows * kLineBytes + at, 0, 0, 0, 0);
    }
  }
  copy_engine_fence();
}

}  // namespace tessera::device
