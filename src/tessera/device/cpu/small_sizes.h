// Sizes of the kernels of short calls that the host also knows.
#pragma once

#include "tessera/device/cpu/grid.h"

namespace tessera::device {

// What a kernel does with B: register blocks of whole vectors of columns; dot products along k;
// rows of B added in their order.
enum class SmallKind { blocks, dots, rows };

inline constexpr int kSmallFewLanes = 8;  // of machines with 16 vector registers; others have 32

// The most rows of a register block of so many vectors of `lanes` lanes. Where columns are
// transposed first, four words of them need registers, too.
constexpr int small_rows(int vectors, bool transposes, int lanes) {
  if (lanes <= kSmallFewLanes) {
    if (transposes) return vectors == 1 ? 6 : 2;
    return vectors == 1 ? 8 : vectors == 2 ? 6 : 4;
  }
  if (transposes) return vectors == 1 ? 12 : 6;
  return vectors == 1 ? 14 : vectors == 2 ? 12 : vectors == 3 ? 9 : 6;
}
// The most vectors of a strip of rows in order.
constexpr int small_strip_vectors(int rows, int lanes) {
  return lanes <= kSmallFewLanes ? 12 / rows : 8;
}
// The most vectors of columns for which strips are faster than rows of B, one by one.
constexpr int small_stripped_vectors(int lanes) { return lanes <= kSmallFewLanes ? 24 : 16; }
inline constexpr int kSmallVectors = 4;    // the most vectors of a register block
inline constexpr int kSmallEndBytes = 16;  // the least bytes of a row that kernels can read whole

// How threads share a problem: batches first, then rows, and columns where rows are few. Where
// columns are shared each row of the output has a line that two threads write, and prefetchers take
// more from the other one.
struct SmallGrid {
  int batch, m, n;
};
inline SmallGrid small_grid(i64 m, i64 n, i64 batch, int threads) {
  constexpr i64 kLeastRows = 4, kLeastColumns = 32;
  const auto most = [](i64 a, i64 b) { return a > b ? a : b; };
  const i64 over_batch = most(1, smaller(threads, batch));
  const i64 each = threads / over_batch;
  const i64 over_m = most(1, smaller(each, m / kLeastRows));
  const i64 over_n = most(1, smaller(each / over_m, n / kLeastColumns));
  return {static_cast<int>(over_batch), static_cast<int>(over_m), static_cast<int>(over_n)};
}

// The columns of a share. Cut at multiples of a register block's; the last share has what is left.
inline Range small_columns(i64 n, int parts, int index) {
  if (parts == 1) return {0, n};
  const Range blocks = part(n / 32, 1, parts, index);
  return {blocks.begin * 32, index == parts - 1 ? n : blocks.end * 32};
}

// The beginning of group `index` of rows, each of at most `most` and as many rows in each as in the
// others.
inline i64 small_group(i64 rows, i64 groups, i64 index) { return rows * index / groups; }

}  // namespace tessera::device
