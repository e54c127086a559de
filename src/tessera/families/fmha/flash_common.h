// What the flash kernels of Hopper for attention and for its gradients have in common on the host:
// tensors as the copy engine sees them, the sizes that they take, what they see of the keys, the
// order of heads, and the step. Kernels that split keys count up to the same numbers.
#pragma once

#include <span>
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

// What kernels count up to: tokens, of which they add up a few, and tiles or blocks.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;
inline constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

struct SizeLimit {
  std::string_view name;
  std::int64_t value, least, most;
};
// Which of the sizes a kernel with this tile does not take, or which length of heads the copy
// engine does not; empty where all fit.
std::string limit_reason(const Algorithm& algorithm, const FmhaProblem& problem,
                         std::span<const SizeLimit> limits);
// Why there are keys that the kernels would not see; empty where there are none.
std::string sink_reason(const FmhaProblem& problem);

// Query i sees the keys from i + left on and below i + right. The kernel adds the diagonal of
// sequences that have lengths of their own.
struct SeenKeys {
  int left, right;
};
SeenKeys seen_keys(const FmhaProblem& problem);

// How many of `heads` are a section, whose blocks run side by side. What they read, `bytes` for
// every `sharing` heads, is to stay in L2, and a section has enough work for all blocks.
int section_of(std::int64_t heads, std::int64_t bytes, std::int64_t sharing);

// Blocks that take what there is from a counter, as many as run at a time.
Step flash_step(int items, int consumers, std::int64_t shared_bytes);

}  // namespace tessera::fmha
