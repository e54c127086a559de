// Rows that are no whole vectors, without gaps between them: those of a block, or its part of one,
// lie side by side. They come to shared memory and leave it by whole vectors, wherever rows begin.
#pragma once

#include "tessera/device/cuda/norm/held_rows.h"

namespace tessera::device {

template <class C, class Math>
struct StagedRows {
  using In = typename C::In;
  using Held = HeldRows<C, Math, 1>;

  struct Range {
    i64 begin;  // elements from the matrix's first one
    int count;
  };
  static constexpr int kLine = 16 / static_cast<int>(sizeof(In));
  static constexpr int kBlockThreads = C::kWaveM * C::kWaveN * 32;
  static constexpr int kLastBarrier = 15;
  static constexpr bool kHasBarrier = C::kWaveN == 1 || C::kWaveM <= kLastBarrier;

  static __device__ __forceinline__ Range range_of(const NormArguments& g) {
    const i64 block = static_cast<i64>(blockIdx.z) * (gridDim.x / C::kSplits) +
                      blockIdx.x / static_cast<unsigned>(C::kSplits);
    const int share = C::kSplits > 1 ? Held::columns_of_block(g) : static_cast<int>(g.columns);
    const int part = C::kSplits > 1 ? static_cast<int>(blockIdx.x % C::kSplits) * share : 0;
    const i64 first = block * (C::kWaveM * C::kWarpRows);
    const i64 left = g.rows - first;
    const int rows = left < C::kWaveM * C::kWarpRows ? static_cast<int>(left > 0 ? left : 0)
                                                     : C::kWaveM * C::kWarpRows;
    const int columns = static_cast<int>(g.columns) - part;
    const int held = columns > share ? share : columns;
    return {first * g.columns + part, held > 0 ? rows * held : 0};
  }

  // Calls line(i) for each vector that lies in the range as a whole, and one(i) for each element
  // beside them; i counts from the first vector that the range touches.
  template <class Line, class One>
  static __device__ __forceinline__ void each_line(const Range& r, Line line, One one) {
    const int ahead = static_cast<int>(r.begin % kLine), end = ahead + r.count;
    const int first = (ahead + kLine - 1) / kLine * kLine, last = end / kLine * kLine;
    const int thread = static_cast<int>(threadIdx.y * (C::kWaveN * 32) + threadIdx.x);
    for (int i = first + thread * kLine; i < last; i += kBlockThreads * kLine) line(i);
    const int head = first < end ? first : end;
    if (ahead + thread < head) one(ahead + thread);
    const int tail = last > head ? last : head;
    if (tail + thread < end) one(tail + thread);
  }

  static __device__ __forceinline__ void bring(const void* matrix, const Range& r, In* shared) {
    const In* const from = static_cast<const In*>(matrix) + r.begin / kLine * kLine;
    each_line(
        r, [&](int i) { copy_line(shared + i, from + i); }, [&](int i) { shared[i] = from[i]; });
  }
  static __device__ __forceinline__ void take(void* matrix, const Range& r, const In* shared) {
    In* const to = static_cast<In*>(matrix) + r.begin / kLine * kLine;
    each_line(
        r,
        [&](int i) {
          *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(shared + i);
        },
        [&](int i) { to[i] = shared[i]; });
  }

  // The result replaces the row, and the sum the residual.
  static __device__ __forceinline__ void run(const NormArguments& g) {
    if constexpr (kSame<In, typename C::Out>) {
      extern __shared__ uint4 staged[];
      In* const rows = reinterpret_cast<In*>(staged);
      In* const more = rows + g.staged_bytes / static_cast<int>(sizeof(In));
      const Range r = range_of(g);
      bring(g.in, r, rows);
      if constexpr (C::kResidual) bring(g.residual, r, more);
      const auto place = Held::place_of(g);
      typename Held::Weights early;
      Held::ask_early(g, place, early);
      wait_for_lines();
      __syncthreads();
      NormArguments h = g;
      const i64 back = r.begin / kLine * kLine;
      h.in = h.out = rows - back;
      h.residual = h.sum = more - back;
      Held::run_with(h, place, early);
      meet_all();
      take(g.out, r, rows);
      if constexpr (C::kResidual) take(g.sum, r, more);
    }
  }

  // Rows of several warps may still wait at barriers of their own, one of which is the barrier of
  // __syncthreads(), and of a cluster of one block.
  static __device__ __forceinline__ void meet_all() {
    if constexpr (C::kWaveM > 1 && C::kWaveN > 1) {
      asm volatile("bar.sync %0, %1;" : : "n"(kLastBarrier), "n"(kBlockThreads) : "memory");
    } else {
      __syncthreads();
    }
  }

  static __device__ __forceinline__ void copy_line(In* to, const In* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
  }
  static __device__ __forceinline__ void wait_for_lines() {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
};

}  // namespace tessera::device
