// What the estimates of convolutions on tensor cores have in common.
#pragma once

#include <cmath>

#include "tessera/families/tile/gpu_estimate.h"

namespace tessera::conv {

// The blocks of a kernel whose tiles were counted, and a block's steps along the depth. The order
// matters, because each number depends on earlier ones.
inline void count_steps(const tile::GpuCase& c, tile::GpuKernel& x) {
  x.tiles_k = std::ceil(c.k / x.tile_k);
  x.k_steps = std::ceil(x.tiles_k / x.slices);
  x.block_threads = tile::block_threads(c, x);
  x.accumulators = tile::accumulators(c, x);
  x.resident = tile::resident_blocks(c, x);
  x.blocks = tile::all_blocks(c, x);
  x.step_bytes = tile::step_bytes(x);
  x.step_operand_bytes = tile::step_operand_bytes(x);
  x.step_cycles = tile::step_cycles(c, x);
}

}  // namespace tessera::conv
