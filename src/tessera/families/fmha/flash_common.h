// What the flash kernels of Hopper for attention and for its gradients have in common on the host:
// the sizes that they take, what they see of the keys, the order of heads, and the step. Kernels
// that split keys count up to the same numbers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

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
