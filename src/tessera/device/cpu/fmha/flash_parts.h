// What attention on a CPU does where it has few rows, for kernels and their estimate: which rows
// read keys and values in place, and into how many parts the keys are cut. The numbers follow from
// the problem alone, so that the bits of a result do not depend on how many threads there are.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// At most so many rows of a block are multiplied with keys and values in place. More are faster
// with packed ones: on an AMD EPYC (Zen 3) the two took equally long at about 12 rows.
inline constexpr i64 kFlashFewRows = 8;

// Fewer keys are not worth a part of their own: its sums are merged in the end.
inline constexpr i64 kFlashLeastKeys = 1024;
// Enough parts of all items together for the threads of any machine.
inline constexpr i64 kFlashParts = 256;

// Parts of an item that sees so many keys, at most `parts` of at least `least` keys each.
constexpr i64 flash_own_parts(i64 parts, i64 keys, i64 least) {
  const i64 most = keys / least;
  return most < 1 ? 1 : most < parts ? most : parts;
}

// Keys of a part at least, where `splits` parts were asked for, or none.
constexpr i64 flash_least_keys(i64 splits, i64 block) {
  return splits > 0 ? block : kFlashLeastKeys;
}

// `items` are blocks of rows of all sequences and heads, `keys` those of the longest sequence,
// `block` how many of them go by together. `splits` parts are asked for; 0: as suits the machine.
constexpr i64 flash_parts(i64 items, i64 keys, i64 splits, i64 block) {
  if (splits > 0 && items > 0) return flash_own_parts(splits, keys, block);
  if (items < 1 || items > kFlashParts / 2 || keys < 2 * kFlashLeastKeys) return 1;
  const i64 wanted = kFlashParts / items;
  const i64 most = keys / kFlashLeastKeys;
  return wanted < most ? wanted : most;
}

}  // namespace tessera::device
