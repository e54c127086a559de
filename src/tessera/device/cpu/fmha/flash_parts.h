// What attention on a CPU does where it has few rows, for kernels and their estimate: which rows
// read keys and values in place, and into how many parts the keys are cut. The numbers follow from
// the problem alone, so that the bits of a result do not depend on how many threads there are.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// At most so many rows of a block are multiplied with keys and values in place. More are faster
// with packed ones: on an AMD EPYC (Zen 3) the two took equally long at about 12 rows.
inline constexpr i64 kFlashFewRows = 8;

// Heads of which every CPU's vectors are whole.
inline constexpr i64 kFlashWholeElements = 16;

// Whether the heads of a token are neighbours in memory.
inline bool flash_side_by_side(const i64 (&stride)[kTokenStrides]) {
  return stride[kTokenElement] == 1 && 0 < stride[kTokenHead] &&
         stride[kTokenHead] < stride[kToken];
}

// Key-value heads that an item has together, which memory gives at its full rate: all heads of a
// few tokens one behind the other. Elements have `bytes`; `tile` is room for rows.
inline i64 flash_heads_together(const FmhaArguments& g, FmhaCacheLayout layout, int bytes,
                                i64 tile) {
  const i64 rows = g.seqlen_q * (g.heads / g.heads_kv);
  const bool is_few = rows > 0 && rows <= kFlashFewRows && rows <= tile;
  const bool is_whole = g.hdim % kFlashWholeElements == 0 && g.hdim_v % kFlashWholeElements == 0;
  if (!is_few || !is_whole || bytes < 2 || layout != FmhaCacheLayout::linear) return 1;
  if (!flash_side_by_side(g.k_stride) || !flash_side_by_side(g.v_stride)) return 1;
  const i64 most = tile / rows;
  return g.heads_kv < most ? g.heads_kv : most;
}

// Fewer keys are not worth a part of their own: its sums are merged in the end. Several heads read
// so much more for each key.
inline constexpr i64 kFlashLeastKeys = 1024;
inline constexpr i64 kFlashLeastKeysOfAll = 256;
// Enough parts of all items together for the threads of any machine.
inline constexpr i64 kFlashParts = 256;

// The most parts of an item where items do not matter.
inline constexpr i64 kFlashPartsOfEach = 16;

// Parts of an item that sees so many keys, at most `parts` of at least `least` keys each.
constexpr i64 flash_own_parts(i64 parts, i64 keys, i64 least) {
  const i64 most = keys / least;
  return most < 1 ? 1 : most < parts ? most : parts;
}

// What is cut: blocks of rows of all sequences and heads, with so many key-value heads each, the
// keys of the longest sequence, and how many of them go by together. `splits` parts are asked for;
// 0: as suits the machine; below 0: as many as an item's own keys are worth.
struct FlashCut {
  i64 items, heads, keys, splits, block;
};

// Keys of a part at least.
constexpr i64 flash_least_keys(const FlashCut& c) {
  if (c.splits > 0) return c.block;
  if (c.splits < 0) return kFlashLeastKeys;
  const i64 least = kFlashLeastKeys / c.heads;
  return least > kFlashLeastKeysOfAll ? least : kFlashLeastKeysOfAll;
}

constexpr i64 flash_parts(const FlashCut& c) {
  const i64 least = flash_least_keys(c);
  if (c.splits > 0 && c.items > 0) return flash_own_parts(c.splits, c.keys, least);
  if (c.splits < 0 && c.items > 0) return flash_own_parts(kFlashPartsOfEach, c.keys, least);
  if (c.items < 1 || c.items > kFlashParts / 2 || c.keys < 2 * least) return 1;
  const i64 wanted = kFlashParts / c.items;
  const i64 most = c.keys / least;
  return wanted < most ? wanted : most;
}

}  // namespace tessera::device
