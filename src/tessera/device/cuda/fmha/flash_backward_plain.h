// What comes before and behind the products of a flash kernel of gradients: delta, lse in powers of
// 2 and sums of dq that are 0; and dq from its sums.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_store.h"
#include "tessera/device/cuda/math.h"

namespace tessera::device {

// A thread of a block that has a block of queries of a head and a sequence.
template <class C>
class FlashBackwardPlain {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  static constexpr int kQueries = Block::kQueries;
  static constexpr int kHdim = Block::kHdim;
  static constexpr int kVector = 8;                              // elements of 16 bytes
  static constexpr int kLanes = kHdim / kVector;                 // that share a token
  static constexpr int kTogether = kFlashPlainThreads / kLanes;  // tokens
  static_assert(kQueries % kTogether == 0, "all threads have equally many tokens");

  const FlashBackwardArguments& a;
  const FmhaArguments& g;
  const int thread = static_cast<int>(threadIdx.x);
  int block, head, batch;
  FmhaSequence s;

  template <class Element>
  __device__ __forceinline__ Element* token(const void* base, const i64 (&stride)[kTokenStrides],
                                            int row) const {
    return static_cast<Element*>(const_cast<void*>(base)) +
           token_offset(stride, batch, head, s.first_query + row);
  }
  static __device__ __forceinline__ int index() { return static_cast<int>(blockIdx.x); }

  // This thread's part of the product of dout and out.
  __device__ __forceinline__ float product(int row, int element) const {
    if (element >= g.hdim_v) return 0;
    u32 x[4], y[4];
    load_global_once(token<T>(a.backward.dout, a.backward.dout_stride, row) + element, x);
    load_global_once(token<T>(g.out, g.out_stride, row) + element, y);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum += float_of_bits<T>(x[i] & 0xffffU) * float_of_bits<T>(y[i] & 0xffffU);
      sum += float_of_bits<T>(x[i] >> 16) * float_of_bits<T>(y[i] >> 16);
    }
    return sum;
  }

 public:
  __device__ __forceinline__ explicit FlashBackwardPlain(const FlashBackwardArguments& arguments)
      : a(arguments), g(arguments.backward.forward) {
    const int pair = static_cast<int>(blockIdx.x) / a.query_blocks;
    block = static_cast<int>(blockIdx.x) - pair * a.query_blocks;
    batch = pair / static_cast<int>(g.heads);
    head = pair - batch * static_cast<int>(g.heads);
    s = sequence_of<C::kLengths>(g, batch);
  }

  // A query that saw no key has an lse of minus infinity, and one behind the last has none: all of
  // their weights become 0.
  __device__ __forceinline__ void prepare() const {
    if (block * kQueries >= s.queries) return;
    float* const stats = Block::stats_of(a, index());
    const i64 lse_batch = C::kLengths == FmhaLengths::packed ? 0 : batch;
#pragma unroll 1
    for (int i = thread / kLanes; i < kQueries; i += kTogether) {
      const int row = block * kQueries + i;
      const bool is_there = row < s.queries;
      float sum = is_there ? product(row, thread % kLanes * kVector) : 0.0F;
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(~0U, sum, distance);
      }
      if (thread % kLanes != 0) continue;
      float lse = minus_infinity();
      if (is_there) lse = g.lse[offset_of_lse(g, lse_batch, head, s.first_query + row)];
      stats[i] = lse == minus_infinity() ? -lse : lse * 1.44269504F;
      stats[kQueries + i] = sum;
    }
    float* const sums = Block::sums_of(a, index());
    const float zeros[4] = {0, 0, 0, 0};
    for (int i = thread * 4; i < 2 * kFlashPartFloats; i += kFlashPlainThreads * 4) {
      store_global(sums + i, zeros);
    }
    if (C::kOrdered && thread < kFlashOwnConsumers) Block::turns_of(a, index())[thread] = 0;
  }

  // A warpgroup has a consumer's part. A thread reads the sums that it would have as a consumer.
  __device__ __forceinline__ void convert() const {
    if (block * kQueries >= s.queries) return;
    constexpr bool kByQueries = kQueries > kWgmmaRows;
    const int part = thread / kGroupThreads, lane = thread % 32;
    const float* const from =
        Block::sums_of(a, index()) + part * kFlashPartFloats + thread % kGroupThreads * 4;
    const int row = block * kQueries + (kByQueries ? part * kWgmmaRows : 0) +
                    thread % kGroupThreads / 32 * 16 + lane / 4;
    const int first = (kByQueries ? 0 : part * kFlashSlab) + lane % 4 * kVector;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 words[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x[4];
        load_global(from + (half * 4 + i) * kGroupThreads * 4, x);
        words[0][i] = round_pair<T>(x[0] * g.scale, x[1] * g.scale);
        words[1][i] = round_pair<T>(x[2] * g.scale, x[3] * g.scale);
      }
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        transpose_quad(words[x], lane);
        const int element = first + half * 32;
        if (row + 8 * x >= s.queries || element >= g.hdim) continue;
        store_global(token<T>(a.backward.dq, a.backward.dq_stride, row + 8 * x) + element,
                     words[x]);
      }
    }
  }
};

}  // namespace tessera::device
