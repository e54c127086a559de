// Rows whose elements lie in the registers of several waves, and what these waves tell each other.
#pragma once

#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/neighbours.h"

namespace tessera::device {

// kVectors runs of kVector neighbours for each of kThreads threads: the columns from `begin` on, of
// which the first `width` count.
template <int kThreads, int kVectors, int kVector>
struct RowPart {
  static constexpr int kWidth = kThreads * kVectors * kVector;
  float x[kVectors][kVector];
  i64 begin;
  int width, thread;

  __device__ __forceinline__ void place(i64 first, i64 end, int thread_of_row) {
    begin = first;
    width = end - first < kWidth ? static_cast<int>(end - first) : kWidth;
    thread = thread_of_row;
  }
  __device__ __forceinline__ bool is_whole() const { return width == kWidth; }
  // Where run v of this thread begins, from `begin` on.
  __device__ __forceinline__ int offset(int v) const {
    return v * (kThreads * kVector) + thread * kVector;
  }
  // How many columns count from there on; none if it is not above zero. The compiler would keep
  // what it compares with them from one use to the next, and run out of scalar registers.
  __device__ __forceinline__ int left(int v) const { return not_ahead(width - offset(v)); }

  // Loads runs of a row: all of them are asked for before the first one is used. Columns that don't
  // count repeat the last one.
  template <class T>
  __device__ __forceinline__ void load(Global<T> row, bool aligned,
                                       Neighbours<T, kVector> (&runs)[kVectors]) const {
    if (aligned && is_whole()) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        runs[v] = load_aligned<kVector, T>(row + offset(v));
      }
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        runs[v] = load_neighbours<kVector, T>(row, not_ahead(offset(v)), width, aligned);
        keep_order();
      }
    }
  }
  // The compiler moves nothing across. What is computed for single elements of all runs at once,
  // such as comparisons and places, would take more registers than there are.
  static __device__ __forceinline__ void keep_order() { __builtin_amdgcn_sched_barrier(0); }
  // Sets the columns that don't count, where there are any.
  __device__ __forceinline__ void pad(float value) {
    if (is_whole()) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int count = left(v);
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[v][i] = i < count ? x[v][i] : value;
      keep_order();
    }
  }
  __device__ __forceinline__ float most() const {
    float all = x[0][0];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) all = __builtin_fmaxf(all, x[v][i]);
    }
    return all;
  }
  // Four sums side by side hide the latency of an addition.
  template <class Term>
  __device__ __forceinline__ float sum(Term term) const {
    float sums[4] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i % 4] += term(x[v][i]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  __device__ __forceinline__ int count() const {
    int all = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int own = width - offset(v);
      all += own < 0 ? 0 : own < kVector ? own : kVector;
    }
    return all;
  }
};

// What merged(a, b) makes of the values of all threads of a row, which is a wave's or a
// workgroup's; every thread gets it. `memory` has room for a value of each wave and is used once.
// Value: floats only, exchanged(value, distance) is another lane's value.
template <int kWaves, class Value, class Exchange, class Merge>
__device__ __forceinline__ Value merge_over_row(Value mine, Shared* memory, Exchange exchanged,
                                                Merge merged) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    mine = merged(mine, exchanged(mine, distance));
  }
  if constexpr (kWaves > 1) {
    const int wave = static_cast<int>(__builtin_amdgcn_workitem_id_x()) / kLanes;
    if (lane_of_wave() == 0) store_shared(memory + wave * sizeof(Value), mine);
    barrier();
    mine = load_shared<Value>(memory);
    for (int w = 1; w < kWaves; ++w) {
      mine = merged(mine, load_shared<Value>(memory + w * sizeof(Value)));
    }
  }
  return mine;
}

}  // namespace tessera::device
