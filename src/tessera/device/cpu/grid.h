// How kernels divide a problem: ranges, runs of output elements, rows of a narrow side.
#pragma once

#include "tessera/device/cpu/vector.h"

namespace tessera::device {

struct Range {
  i64 begin, end;
};

// The place of a run of output elements: `count` columns from (row, column) on.
struct Place {
  i64 row, column;
  int count;
};

// Turns raw accumulators (32-bit, `ld` words between rows) into the output of one batch.
template <class Arguments>
using Finish = void (*)(const Arguments& g, const u32* sums, i64 ld, i64 rows, i64 columns,
                        Place at);

inline i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
constexpr i64 blocks_of(i64 size, i64 block) { return (size + block - 1) / block; }

// Part `index` of `parts` of [0, size), cut at multiples of `block`.
inline Range part(i64 size, i64 block, i64 parts, i64 index) {
  const i64 total = blocks_of(size, block);
  const i64 begin = total * index / parts * block;
  const i64 end = total * (index + 1) / parts * block;
  return {smaller(begin, size), smaller(end, size)};
}

// The rows of a blocked GEMM are cut into blocks of about equal size, each of which reads the
// packed columns of B again. A block may exceed the tile by a quarter, because one of a few rows
// would cost nearly as much.
constexpr i64 most_block_rows(i64 tile) { return tile + tile / 4; }
constexpr i64 row_blocks(i64 rows, i64 tile) {
  return rows <= most_block_rows(tile) ? 1 : blocks_of(rows - tile / 4, tile);
}
constexpr i64 block_rows(i64 rows, i64 tile, i64 unit) {
  return blocks_of(blocks_of(rows, row_blocks(rows, tile)), unit) * unit;
}

// Whether a bandwidth-bound kernel packs A and streams B; otherwise it packs B and streams A.
inline bool narrow_is_a(i64 m, i64 n) { return m <= n; }

// For the packed operand: the rows that are multiplied at once, and the number of all rows, some of
// which are zero.
inline i64 rows_at_once(i64 rows) { return rows <= 2 ? rows : rows <= 4 ? 4 : 8; }
inline i64 narrow_rows(i64 rows) {
  return blocks_of(rows, rows_at_once(rows)) * rows_at_once(rows);
}

// How many words are added together when k is strided. More than 8 rows of memory at a time thrash
// L1 when their distance is a power of two; with many sums to load and store, they are faster
// nevertheless.
constexpr int words_at_once(i64 rows, int per_word) {
  const int words = (rows >= 8 ? 16 : 8) / per_word;
  return words < 8 ? words : 8;
}

}  // namespace tessera::device
