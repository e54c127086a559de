// Where keys and values lie: in memory of any strides, or in the pages of a cache.
#pragma once

#include "tessera/device/hip/fmha/words.h"

namespace tessera::device {

// A head of a token in elements. Packed sequences lie one behind the other in one batch.
template <FmhaLengths kLengths>
__device__ __forceinline__ i64 token_place(const i64 (&stride)[kTokenStrides], i64 batch, i64 head,
                                           i64 token) {
  const i64 sequence = kLengths == FmhaLengths::packed ? 0 : batch * stride[kTokenBatch];
  return sequence + head * stride[kTokenHead] + token * stride[kToken];
}

// The head of keys and values that a head of queries reads.
__device__ __forceinline__ int head_of_keys(const FmhaArguments& g, int head) {
  const u32 group = static_cast<u32>(g.heads) / static_cast<u32>(g.heads_kv);
  return static_cast<int>(static_cast<u32>(head) / group);
}

template <class C>
struct KeyPlaces {
  using Kv = typename C::Kv;
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr i64 kRun = 16 / static_cast<i64>(sizeof(Kv));

  const FmhaArguments& g;
  const FmhaSequence& s;
  int batch, head_kv;

  __device__ __forceinline__ const Kv* key(i64 index) const {
    const Kv* const keys = static_cast<const Kv*>(g.k);
    if constexpr (kPaged) {
      const FmhaSlot slot = slot_of(g, index);
      return keys + key_token(g, page_of(g, s, slot.entry), head_kv, slot.token);
    } else {
      return keys + token_place<C::kLengths>(g.k_stride, batch, head_kv, s.first_key + index);
    }
  }
  // An element of a key, from its token's first one on.
  __device__ __forceinline__ i64 element(int index) const {
    return key_element<C::kCacheLayout>(g, index, kRun);
  }
  // Whether four elements from a multiple of four on are neighbours.
  __device__ __forceinline__ bool has_neighbours() const {
    return C::kCacheLayout == FmhaCacheLayout::vectorized || g.k_stride[kTokenElement] == 1;
  }

  // Where a value begins, in elements.
  __device__ __forceinline__ i64 value(i64 index) const {
    if constexpr (kPaged) {
      const FmhaSlot slot = slot_of(g, index);
      return value_token<C::kCacheLayout>(g, page_of(g, s, slot.entry), head_kv, slot.token, kRun);
    } else {
      return token_place<C::kLengths>(g.v_stride, batch, head_kv, s.first_key + index);
    }
  }
};

}  // namespace tessera::device
