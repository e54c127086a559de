// Tensors of tokens as the copy engine of Hopper sees them, for the flash kernels of attention and
// of its gradients.
#pragma once

#include <string>
#include <string_view>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// Elements of 16 bytes, which the copy engine moves.
std::int64_t tma_elements(DType dtype);

// A part is a sequence, or a page.
struct WindowTokens {
  std::string_view name;
  DType dtype;
  const FmhaStrides& strides;
  std::int64_t heads, tokens, hdim, parts;
  std::string_view part = "sequence";
};

// Why the copy engine cannot read or write the tensor; empty where it can.
std::string window_reason(const WindowTokens& tokens);

// Throws where a tensor does not begin at a multiple of 16 bytes.
void refuse_unaligned(std::string_view name, const void* base);

// A window of `rows` tokens of one head by a swizzled line of elements, or by `elements` in lines
// of their own; `offset` is the map's in the arguments. Throws where the tensor is not aligned.
TensorMap window_of(const WindowTokens& tokens, const void* base, std::size_t offset, int rows,
                    int elements = 0);

}  // namespace tessera::fmha
