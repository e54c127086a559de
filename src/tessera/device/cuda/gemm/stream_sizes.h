// Sizes of stream kernels that host and device agree on. Either A or B has few rows, which are kept
// in shared memory as floats; the many rows of the other operand are read once.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

inline constexpr int kStreamLanes = 32;
inline constexpr int kStreamWordBytes = 16;  // that a lane reads at a time

// The elements of a word.
constexpr int stream_word(int element_bytes) { return kStreamWordBytes / element_bytes; }

// The few rows are kept in blocks of one word for each lane.
constexpr int stream_block(int element_bytes) { return kStreamLanes * stream_word(element_bytes); }

// Bytes of shared memory for `length` elements of each of `few` rows.
constexpr i64 stream_shared_bytes(int few, i64 length, int element_bytes) {
  const i64 block = stream_block(element_bytes);
  return (length + block - 1) / block * block * few * 4;
}

// Registers of a thread that awaits `words` words of each of its warp's rows: the words, the sums,
// and what else was counted in compiled kernels.
constexpr int stream_registers(int few, int warp_rows, int words) {
  return warp_rows * words * 4 + few * warp_rows * 3 / 2 + 80;
}

// The rows of a warp are as many apart as a word has elements, so that all of them begin equally
// far from a multiple of 16 bytes. So many warps, whose rows lie between each other's, share a
// group of neighbouring rows.
struct StreamGroup {
  int rows, warps;
};
constexpr StreamGroup stream_group(int warp_rows, int element_bytes) {
  const int distance = warp_rows > 1 ? stream_word(element_bytes) : 1;
  return {warp_rows * distance, distance};
}

// How many blocks of `warps` warps with rows of their own serve `many` rows.
constexpr i64 stream_tiles(i64 many, int warp_rows, int warps, int element_bytes) {
  const StreamGroup group = stream_group(warp_rows, element_bytes);
  const i64 all = (many + group.rows - 1) / group.rows * group.warps;
  return (all + warps - 1) / warps;
}

}  // namespace tessera::device
