// The softmax of a flash kernel whose weights are multiplied in e4m3. Threads have the elements
// that flash_rows.h says.
//
// e4m3 spans 17 powers of 2. Weights are 2^(score - reference), all in powers of 2. A tile's first
// block sets the reference so that the largest weight would be 2^7, and then scales by a power of 2
// so that no thread's sum of a row passes 128. Later blocks use the reference as it is: the
// thread's sum of the block, which is needed anyway, bounds each weight, and a sum of at most 448
// says that none is too large for e4m3.
#pragma once

#include "tessera/device/cuda/fmha/flash_rows.h"

namespace tessera::device {

inline constexpr float kFlash8Most = 448;       // the largest number of e4m3
inline constexpr float kFlash8Shift = 7;        // the largest weight of a new reference is 2^7
inline constexpr float kFlash8Low = -1e30F;     // the reference of a row that has seen no key
inline constexpr float kFlash8Huge = 0x1p126F;  // weights that are larger are made again

// The rows: their reference, and this thread's part of their sum of weights.
struct Flash8Rows {
  float reference[2], total[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      reference[x] = kFlash8Low;
      total[x] = 0;
    }
  }
  __device__ __forceinline__ void add(const float (&block)[2]) {
    total[0] += block[0];
    total[1] += block[1];
  }
};

// The largest of a row's elements, in all four threads that have them.
template <int kCount>
__device__ __forceinline__ float most_of(const float (&all)[kCount], int x) {
  float u = fmaxf(all[2 * x], all[2 * x + 1]);
  float v = fmaxf(all[2 * x + 4], all[2 * x + 5]);
#pragma unroll
  for (int i = 8; i < kCount; i += 8) {
    u = fmaxf(fmaxf(u, all[i + 2 * x]), all[i + 2 * x + 1]);
    v = fmaxf(fmaxf(v, all[i + 2 * x + 4]), all[i + 2 * x + 5]);
  }
  return most_of_row(fmaxf(u, v));
}

// Moves references up to the maxima of scores in powers of 2. `factor`: of what was added up
// before.
template <int kCount>
__device__ __forceinline__ void refer8(const float (&scores)[kCount], Flash8Rows& rows,
                                       float (&factor)[2]) {
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float to = fmaxf(rows.reference[x], most_of(scores, x) - kFlash8Shift);
    factor[x] = exp2_fast(rows.reference[x] - to);
    rows.reference[x] = to;
    rows.total[x] *= factor[x];
  }
}

// Makes weights of scores. `block`: this thread's sums of them.
template <int kCount>
__device__ __forceinline__ void weigh8(float (&scores)[kCount], float unit, const Flash8Rows& rows,
                                       float (&block)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int x = i / 2 % 2;
    scores[i] = exp2_fast(scores[i] * unit - rows.reference[x]);
    if (i % 2 == 0) continue;
    const float pair = scores[i - 1] + scores[i];
    block[x] = i < 4 ? pair : block[x] + pair;
  }
}

// Scales the weights of a block by powers of 2, so that no thread's sum of a row passes 128: blocks
// with up to 3.5 times that suit the references then.
template <int kCount>
__device__ __forceinline__ void level8(float (&weights)[kCount], Flash8Rows& rows,
                                       float (&block)[2], float (&factor)[2]) {
  constexpr int kExponent = 127 + 6;  // of floats below 128
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const int most = __float_as_int(most_of_row(block[x])) >> 23;
    const int down = max(0, most - kExponent);
    const float by = __int_as_float((127 - down) << 23);
    block[x] *= by;
    rows.reference[x] += static_cast<float>(down);
    rows.total[x] *= by;
    factor[x] *= by;
#pragma unroll
    for (int i = 2 * x; i < kCount; i += 4) {
      weights[i] *= by;
      weights[i + 1] *= by;
    }
  }
}

// Weights of a steady block are there, only too large. A new maximum becomes 2^7 exactly: e4m3
// would round it otherwise, and it is most of what the row adds up to.
template <int kCount>
__device__ __forceinline__ void shrink8(float (&weights)[kCount], Flash8Rows& rows,
                                        float (&block)[2], float (&factor)[2]) {
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float most = most_of(weights, x);
    const float down = most > 0x1p7F ? __log2f(most) - kFlash8Shift : 0.0F;
    factor[x] = exp2_fast(-down);
    rows.reference[x] += down;
    rows.total[x] *= factor[x];
    block[x] *= factor[x];
#pragma unroll
    for (int i = 2 * x; i < kCount; i += 4) {
      weights[i] *= factor[x];
      weights[i + 1] *= factor[x];
    }
  }
}

// Four weights in e4m3, the first in the lowest byte.
__device__ __forceinline__ u32 pack8(float w, float x, float y, float z) {
  u32 word;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(word)
      : "f"(w), "f"(x), "f"(y), "f"(z));
  return word;
}

}  // namespace tessera::device
