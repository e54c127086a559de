// Parts of the keys of attention on a CPU: how many an item has, and how their sums are merged.
#pragma once

#include "tessera/device/cpu/fmha/flash_parts.h"
#include "tessera/device/cpu/rows.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// Blocks of rows, into how many parts the keys of each are cut at most, and keys of a part at
// least.
struct FlashWork {
  i64 items, parts, least;
};

inline FlashWork flash_work(const FlashCut& cut) {
  return {cut.items, flash_parts(cut), flash_least_keys(cut)};
}

// Parts of an item whose rows see these keys.
inline i64 own_parts(const FlashWork& work, const FmhaKeys& keys) {
  return flash_own_parts(work.parts, keys.sink + keys.end - keys.begin, work.least);
}

// A row's sums, its largest score and the sum of its weights.
struct FlashRow {
  float *sums, *most, *total;
};

// Adds the sums of a row's parts to the first part's sums. The parts are `step` floats apart.
inline void merge_row(const FlashRow& row, i64 width, i64 parts, i64 step) {
  float most = *row.most;
  for (i64 p = 1; p < parts; ++p) {
    if (row.most[p * step] > most) most = row.most[p * step];
  }
  const float offset = most == -__builtin_inff() ? 0.0F : most;
  float total = 0;
  for (i64 p = 0; p < parts; ++p) {
    const float factor = exp_of_negative(splat(row.most[p * step] - offset))[0];
    total += row.total[p * step] * factor;
    for (i64 i = 0; i < width; i += kLanes) {
      const f32v before = p == 0 ? f32v{} : load<f32v>(row.sums + i);
      store(row.sums + i, before + load<f32v>(row.sums + p * step + i) * factor);
    }
  }
  *row.most = most;
  *row.total = total;
}

}  // namespace tessera::device
