// The text of wgmma instructions. src/tessera/device/cuda/wgmma.h declares them; each kernel's
// source defines those that it uses.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/spec/dtype.h"

namespace tessera::tile {

// Where an operand comes from, as in src/tessera/device/cuda/wgmma.h.
enum class WgmmaFrom : std::uint8_t { k_lines, row_lines, registers };

// Everything by which two wgmma instructions differ. The accumulators are int32 for int8 operands,
// otherwise fp32.
struct Wgmma {
  DType p = DType::bf16;
  DType q = DType::bf16;
  int columns = 8;
  WgmmaFrom p_from = WgmmaFrom::k_lines;
  WgmmaFrom q_from = WgmmaFrom::k_lines;

  bool operator==(const Wgmma&) const = default;
};

// The text of the specialisations, one for each different instruction.
std::string wgmma_text(std::span<const Wgmma> instructions);

}  // namespace tessera::tile
