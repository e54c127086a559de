// What comes before and behind the products of a flash kernel of gradients: delta, lse in powers of
// 2 and sums of dq that are 0; and dq from its sums.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_store.h"
#include "tessera/device/cuda/math.h"

namespace tessera::device {

// Between which sizes lse is renewed. Tensor cores add up products in another order than the plain
// step does: below, that costs more than the rounding of lse; above, fp32 may not hold the weights
// that follow.
inline constexpr float kFarProducts = 0x1p16F, kFurthestProducts = 0x1p28F;

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

  // The product of a query and a key.
  __device__ __forceinline__ float product_of(const T* q, const T* k) const {
    float sum = 0;
#pragma unroll 1
    for (int element = 0; element < g.hdim; element += kVector) {
      u32 x[4], y[4];
      load_global_once(q + element, x);
      load_global_once(k + element, y);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum += float_of_bits<T>(x[i] & 0xffffU) * float_of_bits<T>(y[i] & 0xffffU);
        sum += float_of_bits<T>(x[i] >> 16) * float_of_bits<T>(y[i] >> 16);
      }
    }
    return sum;
  }

  // The largest score of each query in powers of 2, and by what weights that are compared with it
  // are to be multiplied: a warp has a query, and a lane of it every 32nd key. Weights are rounded
  // as the tensor cores' weights are. A query that sees no key has weights of 0.
  __device__ __forceinline__ void renew(float* stats) const {
    const float unit = g.scale * 1.44269504F;
    const int lane = thread % 32;
    const i64 head_kv = head / static_cast<int>(g.heads / g.heads_kv);
    const T* const keys =
        static_cast<const T*>(g.k) + token_offset(g.k_stride, batch, head_kv, s.first_key);
#pragma unroll 1
    for (int i = thread / 32; i < kQueries; i += kFlashPlainThreads / 32) {
      const int row = block * kQueries + i;
      const FmhaKeys seen = keys_of<C::kMasked>(g, s, row);
      const i64 end = row < s.queries ? seen.end : 0;
      const T* const q = token<const T>(g.q, g.q_stride, row);
      float most = minus_infinity(), total = 0;
#pragma unroll 1
      for (i64 key = seen.begin + lane; key < end; key += 32) {
        most = fmaxf(most, product_of(q, keys + key * g.k_stride[kToken]));
      }
      most = most_of_warp(most) * unit;
#pragma unroll 1
      for (i64 key = seen.begin + lane; key < end; key += 32) {
        total += exp2_fast(product_of(q, keys + key * g.k_stride[kToken]) * unit - most);
      }
      total = sum_of_warp(total);
      if (lane != 0) continue;
      const bool sees_none = most == minus_infinity();
      stats[i] = sees_none ? -most : most;
      stats[2 * kQueries + i] = sees_none ? 0.0F : 1.0F / total;
    }
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
    bool far = false;
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
      far = far || is_far(lse, kFarProducts, kFurthestProducts);
      stats[i] = lse == minus_infinity() ? -lse : lse * 1.44269504F;
      stats[kQueries + i] = sum;
    }
    const bool renews = __syncthreads_or(far ? 1 : 0) != 0;
    if (thread < 8) reinterpret_cast<u32*>(stats)[3 * kQueries + thread] = renews ? 1 : 0;
    if (renews) renew(stats);
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
