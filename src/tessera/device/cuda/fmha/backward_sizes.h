// How the general kernel of attention's gradients divides its shared memory, for host and device.
#pragma once

#include "tessera/device/cuda/fmha/direct_sizes.h"

namespace tessera::device {

// Queries and gradients of outputs, as floats; a block of keys and one of values, in the type in
// which they came; behind them, of each query, the weights of the keys of the block, and the
// gradients of its scores. Rows of keys and values are 16 bytes times an odd number, see
// FmhaDirectSizes.
struct FmhaBackwardSizes {
  int query_row, dout_row, key_row, value_row;  // bytes of a row
  // Where the parts begin; queries begin at 0.
  int dout_block, key_block, value_block, weight_block, gradient_block;
  int bytes;
};

constexpr FmhaBackwardSizes fmha_backward_sizes(int tile_m, int hdim, int hdim_v, int size_of_in) {
  FmhaBackwardSizes s{};
  s.query_row = (hdim + 7) / 8 * 8 * 4;
  s.dout_row = (hdim_v + 7) / 8 * 8 * 4;
  s.key_row = ((hdim * size_of_in + 15) / 16 | 1) * 16;
  s.value_row = ((hdim_v * size_of_in + 15) / 16 | 1) * 16;
  s.dout_block = tile_m * s.query_row;
  s.key_block = s.dout_block + tile_m * s.dout_row;
  s.value_block = s.key_block + kFmhaDirectKeys * s.key_row;
  s.weight_block = s.value_block + kFmhaDirectKeys * s.value_row;
  s.gradient_block = s.weight_block + tile_m * kFmhaDirectKeys * 4;
  s.bytes = s.gradient_block + tile_m * kFmhaDirectKeys * 4;
  return s;
}

}  // namespace tessera::device
