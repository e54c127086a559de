// Sizes of the blocked GEMM that its estimate also uses.
#pragma once

namespace tessera::device {

inline constexpr long long kPartialBytes = 8 << 20;  // the most bytes of a thread's partial sums
inline constexpr int kGrainWords = 16;  // the least part of k that is worth a thread, in words

// Rows are cut into blocks of about equal size, each of which reads the packed columns of B again.
// A block may exceed the tile by a quarter, because one of a few rows would cost nearly as much.
constexpr long long most_block_rows(long long tile) { return tile + tile / 4; }
constexpr long long row_blocks(long long rows, long long tile) {
  return rows <= most_block_rows(tile) ? 1 : (rows - tile / 4 + tile - 1) / tile;
}
constexpr long long block_rows(long long rows, long long tile, long long unit) {
  const long long count = row_blocks(rows, tile);
  return ((rows + count - 1) / count + unit - 1) / unit * unit;
}

}  // namespace tessera::device
