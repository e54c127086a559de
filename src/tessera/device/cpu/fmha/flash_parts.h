// Into how many parts attention on a CPU cuts the keys where it has few rows, for kernels and their
// estimate. The numbers follow from the problem alone, so that the bits of a result do not depend
// on how many threads there are.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// Fewer keys are not worth a part of their own: its sums are merged in the end.
inline constexpr i64 kFlashLeastKeys = 1024;
// Enough parts of all items together for the threads of any machine.
inline constexpr i64 kFlashParts = 256;

// `items` are blocks of rows of all sequences and heads, `keys` those of the longest sequence.
constexpr i64 flash_parts(i64 items, i64 keys) {
  if (items < 1 || items > kFlashParts / 2 || keys < 2 * kFlashLeastKeys) return 1;
  const i64 wanted = kFlashParts / items;
  const i64 most = keys / kFlashLeastKeys;
  return wanted < most ? wanted : most;
}

// Parts of an item that sees so many keys, at most `parts`.
constexpr i64 flash_own_parts(i64 parts, i64 keys) {
  const i64 most = keys / kFlashLeastKeys;
  return most < 1 ? 1 : most < parts ? most : parts;
}

}  // namespace tessera::device
