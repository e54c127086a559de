// What comes before and behind the products of a flash kernel of gradients: delta, lse in powers of
// 2 and sums of dq that are 0; and dq from its sums.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_bends.h"
#include "tessera/device/cuda/fmha/flash_backward_store.h"
#include "tessera/device/cuda/math.h"

namespace tessera::device {

// Between which sizes lse is renewed. Tensor cores add up products in another order than the plain
// step does: below, that costs more than the rounding of lse; above, fp32 may not hold the weights
// that follow.
inline constexpr float kFarProducts = 0x1p16F, kFurthestProducts = 0x1p28F;

// Adds up a part of sums, as `slices` sums that are `apart` floats from each other, and gives its
// rows to store(row, element, words), 8 elements at a time. `thread` is one of a warpgroup; `from`
// is where it would have its first sums as a consumer.
template <class T, class Store>
__device__ __forceinline__ void convert_sums(const float* from, int slices, i64 apart, float by,
                                             int thread, Store store) {
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 words[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const at = from + (half * 4 + i) * kGroupThreads * 4;
      float x[4];
      load_global(at, x);
#pragma unroll 1
      for (int slice = 1; slice < slices; ++slice) {
        float more[4];
        load_global(at + slice * apart, more);
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] += more[e];
      }
      words[0][i] = round_pair<T>(x[0] * by, x[1] * by);
      words[1][i] = round_pair<T>(x[2] * by, x[3] * by);
    }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      transpose_quad(words[x], lane);
      store(row + 8 * x, half * 32 + lane % 4 * 8, words[x]);
    }
  }
}

// A thread of a block that has a block of queries of a head and a sequence.
template <class C>
class FlashBackwardPlain {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  static constexpr int kQueries = Block::kQueries;
  static constexpr int kVector = 8;                              // elements of 16 bytes
  static constexpr int kLanes = Block::kHdimV / kVector;         // that share a token
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

  // The score of a query and a key: in powers of 2 where it is a product.
  __device__ __forceinline__ float score_of(const T* q, const T* keys, int row, i64 key) const {
    const float product = product_of(q, keys + key * g.k_stride[kToken]);
    if constexpr (!Block::kBends) return product * g.scale * 1.44269504F;
    const FlashScorePlace at = {batch,
                                head,
                                row,
                                static_cast<int>(key),
                                static_cast<int>(s.queries),
                                static_cast<int>(s.keys)};
    return flash_capped<C>(g, product).score + flash_added<C>(g, at, 0, 0);
  }

  // The key that a query sees as its number `each`.
  static __device__ __forceinline__ i64 key_of(const FmhaKeys& seen, i64 each) {
    return each < seen.sink ? each : seen.begin + each - seen.sink;
  }

  // The largest score of each query, and by what weights that are compared with it are to be
  // multiplied: a warp has a query, and a lane of it every 32nd key. Weights are rounded as the
  // tensor cores' weights are. A query that sees no key has weights of 0.
  __device__ __forceinline__ void renew(float* stats) const {
    constexpr float kUnit = Block::kBends ? 1.44269504F : 1.0F;  // of scores, in powers of 2
    const int lane = thread % 32;
    const i64 head_kv = head / static_cast<int>(g.heads / g.heads_kv);
    const T* const keys =
        static_cast<const T*>(g.k) + token_offset(g.k_stride, batch, head_kv, s.first_key);
#pragma unroll 1
    for (int i = thread / 32; i < kQueries; i += kFlashPlainThreads / 32) {
      const int row = block * kQueries + i;
      const FmhaKeys seen = keys_of<C::kMasked>(g, s, row);
      const i64 count = row < s.queries ? seen.sink + seen.end - seen.begin : 0;
      const T* const q = token<const T>(g.q, g.q_stride, row);
      float most = minus_infinity(), total = 0;
#pragma unroll 1
      for (i64 each = lane; each < count; each += 32) {
        most = fmaxf(most, score_of(q, keys, row, key_of(seen, each)));
      }
      most = most_of_warp(most);
#pragma unroll 1
      for (i64 each = lane; each < count; each += 32) {
        total += exp2_fast((score_of(q, keys, row, key_of(seen, each)) - most) * kUnit);
      }
      total = sum_of_warp(total);
      if (lane != 0) continue;
      const bool sees_none = most == minus_infinity();
      stats[i] = sees_none ? -most : most;
      stats[2 * kQueries + i] = sees_none ? 0.0F : 1.0F / total;
    }
  }

  // Calls visit(i) for this thread's share of the elements of dbias.
  template <class Visit>
  __device__ __forceinline__ void for_each_bias(Visit visit) const {
    const FmhaBiasSizes sizes = sizes_of_dbias(g, C::kBias);
    const i64 count = sizes.of[0] * sizes.of[1] * sizes.of[2] * sizes.of[3];
    const i64 step = i64{gridDim.x} * kFlashPlainThreads;
    for (i64 i = i64{blockIdx.x} * kFlashPlainThreads + thread; i < count; i += step) visit(i);
  }
  // Pairs of queries and keys that no block computes have gradients of 0, and sums begin with 0.
  __device__ __forceinline__ void clear_dbias() const {
    using Bias = typename FmhaDbias<C>::Type;
    float* const sums = Block::bias_sums_of(a);
    for_each_bias([&](i64 i) {
      if (sums == nullptr) {
        static_cast<Bias*>(a.backward.dbias)[i] = rounded<Bias>(0.0F);
      } else {
        sums[i] = 0;
      }
    });
  }
  __device__ __forceinline__ void convert_dbias() const {
    using Bias = typename FmhaDbias<C>::Type;
    const float* const sums = Block::bias_sums_of(a);
    if (sums == nullptr) return;
    for_each_bias([&](i64 i) { static_cast<Bias*>(a.backward.dbias)[i] = rounded<Bias>(sums[i]); });
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
    if constexpr (C::kDbias) clear_dbias();
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
      if (is_there) {
        const i64 place = offset_of_lse(g, lse_batch, head, s.first_query + row);
        lse = g.lse[place], sum -= dlse_at(a.backward, place);
      }
      far = far || (Block::kBends ? is_far(lse) : is_far(lse, kFarProducts, kFurthestProducts));
      const float compared = Block::kBends ? lse : lse * 1.44269504F;
      stats[i] = lse == minus_infinity() ? -lse : compared;
      stats[kQueries + i] = sum;
    }
    const bool renews = __syncthreads_or(far ? 1 : 0) != 0;
    if (thread < 8) reinterpret_cast<u32*>(stats)[3 * kQueries + thread] = renews ? 1 : 0;
    if (renews) renew(stats);
    float* const sums = Block::sums_of(a, index());
    const float zeros[4] = {0, 0, 0, 0};
    for (int i = thread * 4; i < Block::kParts * kFlashPartFloats; i += kFlashPlainThreads * 4) {
      store_global(sums + i, zeros);
    }
    if (C::kOrdered && thread < kFlashOwnConsumers) Block::turns_of(a, index())[thread] = 0;
  }

  // A warpgroup takes every second part. A thread reads the sums that it would have as a consumer.
  __device__ __forceinline__ void convert() const {
    constexpr bool kByQueries = kQueries > kWgmmaRows;
    if constexpr (C::kDbias) convert_dbias();
    if (block * kQueries >= s.queries) return;
#pragma unroll 1
    for (int part = first_part(); part < Block::kParts; part += kTogetherParts) {
      const float* const from = Block::sums_of(a, index()) + part * kFlashPartFloats;
      const int first = block * kQueries + (kByQueries ? part * kWgmmaRows : 0);
      const int slab = kByQueries ? 0 : part;
      convert_part(from, 1, g.scale, [&](int row, int element, const u32(&words)[4]) {
        const int query = first + row, at = slab * kFlashSlab + element;
        if (query >= s.queries || at >= g.hdim) return;
        store_global(token<T>(a.backward.dq, a.backward.dq_stride, query) + at, words);
      });
    }
  }

 private:
  static constexpr int kTogetherParts = kFlashPlainThreads / kGroupThreads;
  __device__ __forceinline__ int first_part() const { return thread / kGroupThreads; }
  template <class Store>
  __device__ __forceinline__ void convert_part(const float* from, int slices, float by,
                                               Store store) const {
    convert_sums<T>(from + thread % kGroupThreads * 4, slices, Block::kItemFloats, by,
                    thread % kGroupThreads, store);
  }
};

// What follows where several items have the same keys: their sums of dk and dv are added up in the
// order of the slices. A thread of a block that has a block of keys.
template <class C>
struct FlashBackwardMerge {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  static constexpr int kSlabs = Block::kHdim / kFlashSlab, kSlabsV = Block::kHdimV / kFlashSlab;
  static constexpr int kGroups = Block::kKeys / kWgmmaRows;

  static __device__ __forceinline__ void merge(const FlashBackwardArguments& a) {
    const int thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
    const FlashItem item = FlashItems<C>(a).find(index * C::kSlices);
    if (item.number == 0) return;
#pragma unroll 1
    for (int part = thread / kGroupThreads; part < kGroups * (kSlabs + kSlabsV);
         part += kFlashPlainThreads / kGroupThreads) {
      const bool of_values = part >= kGroups * kSlabs;
      const int slabs = of_values ? kSlabsV : kSlabs;
      const int own = of_values ? part - kGroups * kSlabs : part;
      put(a, item, part, {own / slabs * kWgmmaRows, own % slabs * kFlashSlab}, of_values, thread);
    }
  }

 private:
  struct Place {
    int key, element;
  };
  static __device__ __forceinline__ void put(const FlashBackwardArguments& a, const FlashItem& item,
                                             int part, const Place& place, bool of_values,
                                             int thread) {
    const FmhaBackwardArguments& g = a.backward;
    const i64(&stride)[kTokenStrides] = of_values ? g.dv_stride : g.dk_stride;
    const int hdim = static_cast<int>(of_values ? g.forward.hdim_v : g.forward.hdim);
    const int keys = Block::keys_of(a, item);
    T* const to = static_cast<T*>(of_values ? g.dv : g.dk) + item.batch * stride[kTokenBatch] +
                  item.head * stride[kTokenHead] + i64{item.first_key} * stride[kToken];
    const float* const from = Block::slice_of(a, item.number - 1) + part * kFlashPartFloats;
    convert_sums<T>(from + thread % kGroupThreads * 4, C::kSlices, Block::kItemFloats,
                    of_values ? 1.0F : g.forward.scale, thread % kGroupThreads,
                    [&](int row, int element, const u32(&words)[4]) {
                      const int key = item.key + place.key + row, at = place.element + element;
                      if (key >= keys || at >= hdim) return;
                      store_global(to + key * stride[kToken] + at, words);
                    });
  }
};

}  // namespace tessera::device
