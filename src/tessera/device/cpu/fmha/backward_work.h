// How the gradients of attention are cut into work on a CPU, for kernels and their estimate. The
// numbers follow from the problem alone, so that the bits of a result do not depend on how many
// threads there are.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// Enough items for the threads of most machines.
inline constexpr i64 kBackwardItems = 128;
// Sums of dq that parts may have in memory, all together.
inline constexpr i64 kBackwardFloats = i64{1} << 27;

// `pairs` are key-value heads of all sequences, `blocks` the blocks of the longest one's keys,
// `floats` the sums of dq of a pair. The blocks of a pair are dealt out to so many parts, each of
// which has sums of dq of its own.
constexpr i64 backward_parts(i64 pairs, i64 blocks, i64 floats) {
  if (pairs < 1 || pairs > kBackwardItems / 2) return 1;
  const i64 wanted = kBackwardItems / pairs;
  const i64 affordable = kBackwardFloats / (pairs * (floats < 1 ? 1 : floats));
  i64 parts = wanted < blocks ? wanted : blocks;
  if (affordable < parts) parts = affordable;
  return parts < 1 ? 1 : parts;
}

}  // namespace tessera::device
