// How the general kernel of attention divides its shared memory, for host and device.
#pragma once

namespace tessera::device {

inline constexpr int kFmhaDirectKeys = 32;  // tile_n: a lane of a warp has one key

// The queries, as floats, and a block of keys and one of values, in the type in which they came;
// behind them the weights of each query for the keys of the block. Rows of 16 bytes times an odd
// number lie in different banks for lanes that read the same element of different rows.
struct FmhaDirectSizes {
  int query_row, key_row, value_row;         // bytes of a row
  int key_block, value_block, weight_block;  // where the parts begin; queries begin at 0
  int bytes;
};

constexpr FmhaDirectSizes fmha_direct_sizes(int tile_m, int hdim, int hdim_v, int size_of_kv) {
  const int query_row = (hdim + 7) / 8 * 8 * 4;
  const int key_row = ((hdim * size_of_kv + 15) / 16 | 1) * 16;
  const int value_row = (hdim_v + 63) / 64 * 64 * size_of_kv;
  const int key_block = tile_m * query_row;
  const int value_block = key_block + kFmhaDirectKeys * key_row;
  const int weight_block = value_block + kFmhaDirectKeys * value_row;
  return {query_row,
          key_row,
          value_row,
          key_block,
          value_block,
          weight_block,
          weight_block + tile_m * kFmhaDirectKeys * 4};
}

// The shared memory that a launch must give each block.
constexpr int fmha_direct_shared_bytes(int tile_m, int hdim, int hdim_v, int size_of_kv) {
  return fmha_direct_sizes(tile_m, hdim, hdim_v, size_of_kv).bytes;
}

}  // namespace tessera::device
