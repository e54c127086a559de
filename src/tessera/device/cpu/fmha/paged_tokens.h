// Tokens of one head in the pages of a cache, as pack_keys() and pack_values() read them.
#pragma once

#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// Where the tokens of a block of keys lie in k and in v, in elements from the first one of the
// cache. Pages are looked up once for a block, because packing goes over its tokens many times.
template <int kMost>
struct PagedPlaces {
  i64 keys[kMost], values[kMost];
};

// Of the keys [first, first + count) of a sequence; there is at least one.
template <FmhaCacheLayout kLayout, int kMost>
inline void find_places(const FmhaArguments& g, const FmhaSequence& s, i64 head_kv, i64 first,
                        i64 count, i64 run, PagedPlaces<kMost>& places) {
  FmhaSlot slot = slot_of(g, first);
  i64 page = page_of(g, s, slot.entry);
  for (i64 i = 0; i < count; ++i, ++slot.token) {
    if (slot.token == g.page_size) {
      slot = {slot.entry + 1, 0};
      page = page_of(g, s, slot.entry);
    }
    places.keys[i] = key_token(g, page, head_kv, slot.token);
    places.values[i] = value_token<kLayout>(g, page, head_kv, slot.token, run);
  }
}

template <class T>
struct PagedTokens {
  const T* data;
  const i64* places;
  i64 element;
  [[gnu::always_inline]] f32v load(i64 i, i64 at, int count) const {
    return load_elements(data + places[i] + at * element, element, count);
  }
};

// Keys whose elements lie in runs of 16 bytes.
template <class T>
struct KeysInRuns {
  const FmhaArguments& g;
  const i64* places;
  [[gnu::always_inline]] f32v load(i64 i, i64 at, int count) const {
    constexpr i64 kRun = 16 / static_cast<i64>(sizeof(T));
    const T* const token = static_cast<const T*>(g.k) + places[i];
    T together[kLanes] = {};
    for (int lane = 0; lane < count; ++lane) {
      together[lane] = token[key_element<FmhaCacheLayout::vectorized>(g, at + lane, kRun)];
    }
    return load_lanes(together, kLanes);
  }
};

}  // namespace tessera::device
