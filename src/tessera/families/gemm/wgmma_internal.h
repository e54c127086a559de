// The text of wgmma instructions, which src/tessera/device/cuda/wgmma.h leaves to a kernel's
// source.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/spec/dtype.h"

namespace tessera::gemm {

// As in src/tessera/device/cuda/wgmma.h.
enum class WgmmaFrom : std::uint8_t { k_lines, row_lines, registers };

// All in which two instructions differ. The accumulators are int32 for int8 operands, else fp32.
struct Wgmma {
  DType p = DType::bf16;
  DType q = DType::bf16;
  int columns = 8;
  WgmmaFrom p_from = WgmmaFrom::k_lines;
  WgmmaFrom q_from = WgmmaFrom::k_lines;

  bool operator==(const Wgmma&) const = default;
};

// Their specialisations, one for each that differs from those before it.
std::string wgmma_text(std::span<const Wgmma> instructions);

}  // namespace tessera::gemm
