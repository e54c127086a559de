// Merging softmax sums over different keys: of the teams of a block through shared memory, and of
// the parts of a tile through device memory.
#pragma once

#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

inline constexpr float kLog2E = 1.44269504F;

// The largest score and the sum of all weights of a row, and four of its sums.
struct SplitSums {
  float most, total;
  float x[4];
};

// What scores are compared with; a row without keys has no largest one.
__device__ __forceinline__ float split_offset(float most) {
  return most == __uint_as_float(0xff800000U) ? 0.0F : most;
}

// What scores are compared with in a block of keys, and what one of them weighs there. fp32 does
// not hold scores below -2.36e38 in powers of 2, and a bias may make such scores: with a bias they
// become powers of 2 when they are differences.
template <FmhaBias kBias>
__device__ __forceinline__ float split_reference(float most) {
  return split_offset(most) * (kBias == FmhaBias::elementwise ? 1.0F : kLog2E);
}
template <FmhaBias kBias>
__device__ __forceinline__ float split_weight(float score, float reference) {
  if constexpr (kBias == FmhaBias::elementwise) return exp2_fast((score - reference) * kLog2E);
  return exp2_fast(score * kLog2E - reference);
}

// The rows of sums of several teams or parts: row r of number i is at sums + i * step + r * pitch,
// its largest score and total at heads + i * head_step + 2 * r.
struct SplitRows {
  const float* sums;
  const float* heads;
  i64 step, pitch, head_step;
};

// Loads from shared memory.
struct SplitNear {
  static __device__ __forceinline__ void head(const float* p, float& most, float& total) {
    most = p[0], total = p[1];
  }
  static __device__ __forceinline__ void sums(const float* p, float (&x)[4]) {
    const float4 four = *reinterpret_cast<const float4*>(p);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  }
};

// Loads what other blocks stored before a fence.
struct SplitFar {
  static __device__ __forceinline__ void head(const float* p, float& most, float& total) {
    load_global(p, most, total);
  }
  static __device__ __forceinline__ void sums(const float* p, float (&x)[4]) { load_global(p, x); }
};

// Adds sums, relative to the offset, to those that are relative to it already.
__device__ __forceinline__ void add_sums(const SplitSums& more, float offset, SplitSums& all) {
  const float factor = exp2_fast((more.most - offset) * kLog2E);
  all.total += more.total * factor;
#pragma unroll
  for (int i = 0; i < 4; ++i) all.x[i] += more.x[i] * factor;
}

// Merges one row's sums from `column` on, in the order of their numbers: the sums number `begin`,
// begin + step, ... below `count`. kAhead of them are loaded at a time: one by one, each would wait
// for L2.
template <class Load, int kAhead>
__device__ __forceinline__ SplitSums merge_sums(const SplitRows& rows, int begin, int step,
                                                int count, int row, int column) {
  const float* const head = rows.heads + 2 * row;
  const float* const sums = rows.sums + row * rows.pitch + column;
  SplitSums all = {__uint_as_float(0xff800000U), 0, {0, 0, 0, 0}};
#pragma unroll 1
  for (int first = begin; first < count; first += kAhead * step) {
    SplitSums one[kAhead];
    float top = all.most;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int number = first + i * step < count ? first + i * step : count - 1;
      Load::head(head + number * rows.head_step, one[i].most, one[i].total);
      Load::sums(sums + number * rows.step, one[i].x);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) top = fmaxf(top, one[i].most);
    const float offset = split_offset(top);
    const SplitSums before = all;
    all = {top, 0, {0, 0, 0, 0}};
    add_sums(before, offset, all);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * step < count) add_sums(one[i], offset, all);
    }
  }
  return all;
}

// In the first of `lanes` neighbours, a power of 2, the sums of all of them. Each of them merges
// its own sums before the neighbour's behind it, so that equal sums give equal bits.
__device__ __forceinline__ void merge_lanes(int lanes, SplitSums& sums) {
#pragma unroll 1
  for (int distance = 1; distance < lanes; distance *= 2) {
    const auto other = [distance](float x) { return __shfl_xor_sync(~0U, x, distance); };
    const SplitSums mine = sums;
    SplitSums more = {other(mine.most), other(mine.total), {}};
#pragma unroll
    for (int i = 0; i < 4; ++i) more.x[i] = other(mine.x[i]);
    sums = {fmaxf(mine.most, more.most), 0, {0, 0, 0, 0}};
    const float offset = split_offset(sums.most);
    add_sums(mine, offset, sums);
    add_sums(more, offset, sums);
  }
}

}  // namespace tessera::device
