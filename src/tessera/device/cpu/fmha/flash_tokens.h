// Where the keys and values of a block of attention lie on a CPU, in any layout.
#pragma once

#include "tessera/device/cpu/fmha/flash_few.h"
#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/cpu/fmha/flash_parts.h"
#include "tessera/device/cpu/fmha/flash_runs.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// Rows of one sequence and of one key-value head, or of several with equally many rows each.
struct FlashItem {
  FmhaSequence sequence;
  i64 batch, head_kv, heads, group;  // key-value heads from head_kv on; query heads of each
  i64 first, count;                  // rows
  i64 rows_of_head() const { return count / heads; }
  i64 query_of(i64 row) const { return (first + row % rows_of_head()) / group; }
  i64 head_of(i64 row) const {
    const i64 own = rows_of_head();
    return (head_kv + row / own) * group + (first + row % own) % group;
  }
};

// Keys of a sequence.
struct FlashBlock {
  i64 first, count;
};

inline i64 rounded(i64 count, i64 unit) { return blocks_of(count, unit) * unit; }

// The first keys of a block, up to the last one that these rows of an item see.
template <bool kMasked>
inline FlashBlock part_of_rows(const FmhaArguments& g, const FlashItem& item,
                               const FlashBlock& block, Range rows) {
  if constexpr (!kMasked) return block;
  const FmhaKeys first = keys_of<true>(g, item.sequence, item.query_of(rows.begin));
  const FmhaKeys last = keys_of<true>(g, item.sequence, item.query_of(rows.end - 1));
  const i64 end = first.begin < block.first + block.count ? last.end : last.sink;
  return {block.first, smaller(end - block.first, block.count)};
}

// Keys [begin, end) of the sequence are not seen.
inline void hide(float* scores, const FlashBlock& block, i64 begin, i64 end) {
  const i64 last = smaller(end - block.first, block.count);
  for (i64 j = begin < block.first ? 0 : begin - block.first; j < last; ++j) {
    scores[j] = -__builtin_inff();
  }
}

// Tokens are looked up once for a block, because packing goes over them many times.
template <class T, int kMost>
struct BlockTokens {
  PlacedTokens<T> keys, values;
  i64 count;
  i64 key_places[kMost], value_places[kMost];
};

template <class T, int kMost>
inline void find_in_memory(const FmhaArguments& g, const FlashItem& item, const FlashBlock& block,
                           BlockTokens<T, kMost>& to) {
  const i64 token = item.sequence.first_key + block.first;
  const i64 key = token_offset(g.k_stride, item.batch, item.head_kv, token);
  const i64 value = token_offset(g.v_stride, item.batch, item.head_kv, token);
  for (i64 i = 0; i < block.count; ++i) {
    to.key_places[i] = key + i * g.k_stride[kToken];
    to.value_places[i] = value + i * g.v_stride[kToken];
  }
}

// A block has at least one key.
template <FmhaCacheLayout kLayout, class T, int kMost>
inline void find_in_pages(const FmhaArguments& g, const FlashItem& item, const FlashBlock& block,
                          BlockTokens<T, kMost>& to) {
  FmhaSlot slot = slot_of(g, block.first);
  i64 page = page_of(g, item.sequence, slot.entry);
  for (i64 i = 0; i < block.count; ++i, ++slot.token) {
    if (slot.token == g.page_size) {
      slot = {slot.entry + 1, 0};
      page = page_of(g, item.sequence, slot.entry);
    }
    to.key_places[i] = key_token(g, page, item.head_kv, slot.token);
    to.value_places[i] = value_token<kLayout>(g, page, item.head_kv, slot.token, kRunLength<T>);
  }
}

// `plain` is room for the elements of a block's keys and then of its values, which the layout in
// runs needs.
template <class C, class T, int kMost>
[[gnu::noinline]] void find_tokens(const FmhaArguments& g, const FlashItem& item,
                                   const FlashBlock& block, T* plain, BlockTokens<T, kMost>& to) {
  to.count = block.count;
  to.keys = {static_cast<const T*>(g.k), to.key_places, g.k_stride[kTokenElement]};
  to.values = {static_cast<const T*>(g.v), to.value_places, g.v_stride[kTokenElement]};
  if constexpr (C::kPages == FmhaPages::none) {
    find_in_memory(g, item, block, to);
  } else {
    find_in_pages<C::kCacheLayout>(g, item, block, to);
  }
  if constexpr (C::kCacheLayout == FmhaCacheLayout::vectorized) {
    T* const values = plain + block.count * g.hdim;
    copy_keys_of_runs(to.keys, block.count, g.hdim, kRunLength<T> * g.page_size, plain);
    copy_values_of_runs(to.values, block.count, g.hdim_v, values);
    to.keys = {plain, to.key_places, 1};
    to.values = {values, to.value_places, 1};
    for (i64 i = 0; i < block.count; ++i) {
      to.key_places[i] = i * g.hdim;
      to.value_places[i] = i * g.hdim_v;
    }
  }
}

// Numbers of 8 bits may have a factor for each block of keys, and are always packed.
template <class T>
inline constexpr bool kReadsInPlace = sizeof(T) > 1;

// Whether so many rows of a head are few, and multiplied with keys and values in place.
template <class C>
inline bool reads_in_place(const FmhaArguments& g, i64 rows) {
  if (!kReadsInPlace<typename C::Kv>) return false;
  if (rows > kFlashFewRows || g.hdim % kLanes != 0 || g.hdim_v % kLanes != 0) return false;
  if (C::kCacheLayout == FmhaCacheLayout::vectorized) return true;
  return g.k_stride[kTokenElement] == 1 && g.v_stride[kTokenElement] == 1;
}

// Key-value heads that an item has.
template <class C>
inline i64 flash_heads_of_item(const FmhaArguments& g) {
  return flash_heads_together(g, C::kCacheLayout, static_cast<int>(sizeof(typename C::Kv)),
                              C::kTileM);
}
template <class C>
inline i64 flash_blocks_of_head(const FmhaArguments& g) {
  return blocks_of(g.seqlen_q * (g.heads / g.heads_kv), C::kTileM);
}

// The blocks of a key-value head follow each other, so that its keys and values stay in the
// caches. Under most masks the last queries see the most keys. Every other head therefore begins
// with them: threads take items in turn, and none is to get the long ones of all heads.
template <class C>
inline FlashItem flash_item(const FmhaArguments& g, i64 index) {
  const i64 blocks = flash_blocks_of_head<C>(g);
  const i64 pair = index / blocks, block = index % blocks;
  const i64 together = flash_heads_of_item<C>(g);
  const i64 of_sequence = blocks_of(g.heads_kv, together);
  FlashItem item{};
  item.group = g.heads / g.heads_kv;
  item.batch = pair / of_sequence;
  item.head_kv = pair % of_sequence * together;
  item.heads = smaller(together, g.heads_kv - item.head_kv);
  item.sequence = sequence_of<C::kLengths, C::kPages>(g, item.batch);
  item.first = (pair % 2 == 0 ? blocks - 1 - block : block) * C::kTileM;
  item.count = item.heads * clamped(item.sequence.queries * item.group - item.first, 0, C::kTileM);
  return item;
}

// The tokens of a block in the order in which they are read: its keys, its values, and what is
// asked for after these. Behind keys and values there is room for whole chains.
template <class T, int kMost>
struct TokenList {
  const T* tokens[2 * kMost + kTokensBehind];
  i64 size = 0;
  void add(const PlacedTokens<T>& some, i64 count) {
    for (i64 i = 0; i < count; ++i) tokens[size++] = some.token(i);
  }
  void pad(i64 to) {
    for (; size < to; ++size) tokens[size] = tokens[size - 1];
  }
};

}  // namespace tessera::device
