// A head of a new token into a cache of 8 bits on a GPU: turned, divided by its factor and rounded.
// Where the factor is the token's own, the head is read twice, first for its largest element; the
// second time it comes from L1.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/fmha_append.h"

namespace tessera::device {

// Threads of a row are neighbours in a warp, a power of two of them.
template <class C>
struct FmhaAppendBytes {
  using T = typename C::In;
  using Kv = typename C::Kv;
  using Row = FmhaAppendRowOf<C>;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  using Run = Neighbours<Kv, kVector>;

  const FmhaAppendArguments& g;
  const Row row;
  i64 position;
  int thread, threads;

  // Elements from `element` on, zeros from the `left`-th on.
  __device__ __forceinline__ void load(i64 element, i64 left, float (&x)[kVector]) const {
    const T* const p = row.from + element * row.from_stride;
    const int count = left < kVector ? static_cast<int>(left) : kVector;
    if (row.from_stride == 1) {
      const bool aligned = reinterpret_cast<u64>(p) % 16 == 0;
      return to_floats(load_run<kVector>(p, aligned, count), kVector, 0.0F, x);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = i < count ? to_float(p[i * row.from_stride]) : 0.0F;
  }

  __device__ __forceinline__ float angle(const float* table, i64 pair) const {
    return __ldg(table + position * (g.rotary_dim / 2) + pair);
  }

  // Calls visit(element, left, x) for runs of kVector elements, turned.
  template <class Visit>
  __device__ __forceinline__ void for_each_run(Visit visit) const {
    i64 runs = 0;
    if constexpr (C::kRotary != FmhaRotary::none) {
      runs = append_pieces(C::kRotary, row.turned, row.turned, kVector);
#pragma unroll 1
      for (i64 run = thread; run < runs; run += threads) {
        if constexpr (C::kRotary == FmhaRotary::half) turn_halves(run * kVector, visit);
        if constexpr (C::kRotary == FmhaRotary::interleaved) turn_pairs(run * kVector, visit);
      }
    }
    const i64 skipped = (thread - runs) & (threads - 1);
#pragma unroll 1
    for (i64 i = row.turned + skipped * kVector; i < row.count; i += i64{threads} * kVector) {
      float x[kVector];
      load(i, row.count - i, x);
      visit(i, row.count - i, x);
    }
  }
  template <class Visit>
  __device__ __forceinline__ void turn_halves(i64 i, Visit& visit) const {
    const i64 half = row.turned / 2, left = half - i;
    float x[kVector], y[kVector];
    load(i, left, x);
    load(i + half, left, y);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (j >= left) break;
      const auto both = turned(x[j], y[j], angle(g.cos, i + j), angle(g.sin, i + j));
      x[j] = both.x, y[j] = both.y;
    }
    visit(i, left, x);
    visit(i + half, left, y);
  }
  template <class Visit>
  __device__ __forceinline__ void turn_pairs(i64 i, Visit& visit) const {
    const i64 left = row.turned - i;
    float x[kVector];
    load(i, left, x);
#pragma unroll
    for (int j = 0; j < kVector; j += 2) {
      if (j >= left) break;
      const i64 pair = (i + j) / 2;
      const auto both = turned(x[j], x[j + 1], angle(g.cos, pair), angle(g.sin, pair));
      x[j] = both.x, x[j + 1] = both.y;
    }
    visit(i, left, x);
  }

  // The largest magnitude of the row, in all its threads.
  __device__ __forceinline__ float most_of_row() const {
    float most = 0;
    for_each_run([&](i64, i64, const float(&x)[kVector]) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) most = fmaxf(most, fabsf(x[j]));
    });
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const u32 mask = (threads == 32 ? ~0U : (1U << threads) - 1) << (lane - thread);
#pragma unroll 1
    for (int distance = 1; distance < threads; distance *= 2) {
      most = fmaxf(most, __shfl_xor_sync(mask, most, distance));
    }
    return most;
  }

  __device__ __forceinline__ void store(i64 element, i64 left, const float (&x)[kVector]) const {
    Kv* const p = row.to_element(element);
    Run run;
#pragma unroll
    for (int j = 0; j < kVector; ++j) run.x[j] = rounded_output<Kv>(x[j]);
    const bool is_whole = row.to_stride == 1 && left >= kVector &&
                          reinterpret_cast<u64>(p) % sizeof(Run) == 0 &&
                          (Row::kTo == FmhaCacheLayout::linear || element % kVector == 0);
    if (is_whole) {
      *reinterpret_cast<Run*>(p) = run;
      return;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (j < left) *row.to_element(element + j) = run.x[j];
    }
  }

  __device__ __forceinline__ void move(float* factor) const {
    float by = 1;
    if constexpr (C::kQscale == FmhaQscale::per_token) {
      const float own = most_of_row() / C::kLargest;
      if (thread == 0) *factor = own;
      by = inverse_of_factor(own);
    } else if constexpr (C::kQscale != FmhaQscale::none) {
      by = inverse_of_factor(*factor);
    }
    for_each_run([&](i64 element, i64 left, const float(&x)[kVector]) {
      float y[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) y[j] = x[j] * by;
      store(element, left, y);
    });
  }
};

}  // namespace tessera::device
