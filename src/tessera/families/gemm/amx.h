// Kernels on the tiles of Intel AMX: the pipeline `amx`.
#pragma once

#include <string_view>

#include "tessera/device/cpu/tile_sizes.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

// The instruction that multiplies tiles of such operands, in the spelling of targets' rows, and the
// features that a machine has besides its tiles; empty when there is none.
struct TileInstruction {
  DType operand;
  std::string_view name, features;
};
const TileInstruction* find_tile_instruction(DType operand);

// The register block: two tiles down, two across, and the k of a row of a tile.
inline Shape3 tile_block(DType operand) {
  return {device::kTileBlock, device::kTileBlock,
          device::kTileWords * 4 / static_cast<int>(size_of(operand))};
}
inline bool is_tile_block(const Shape3& warp_tile) {
  return warp_tile == tile_block(DType::int8) || warp_tile == tile_block(DType::bf16);
}

}  // namespace tessera::gemm
