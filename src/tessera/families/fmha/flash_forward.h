// What the two ways of attention on Hopper's tensor cores share on the host: which problems they
// serve, and the launch.
#pragma once

#include <array>
#include <string>

#include "tessera/families/fmha/flash_common.h"

namespace tessera::fmha {

// Whether blocks of keys have factors of their own.
bool has_block_factors(FmhaQscale how);

// Queries, keys, values and outputs as the copy engine sees them.
std::array<WindowTokens, 4> tokens_of(const FmhaProblem& problem);

// Which size such a kernel does not take; empty where it takes all.
std::string size_reason(const Algorithm& algorithm, const FmhaProblem& problem);
// Whether blocks with factors are whole blocks of the kernel's; empty where they are. A block of
// keys of the kernel has one factor, and so do the queries of a consumer.
std::string factors_reason(const Algorithm& algorithm, const FmhaProblem& problem);
// Why the keys would have to be cut; empty where they need not be.
std::string splits_reason(const FmhaProblem& problem);

// A window of `rows` tokens by a line of elements, or by `elements` where that is not 0.
struct ForwardWindow {
  WindowTokens tokens;
  int rows, elements;
};
using ForwardWindows = std::array<ForwardWindow, 4>;  // of queries, keys, values, outputs

// Exponentials that a unit makes in a second.
double exponential_rate(const Target& target);

Launch forward_launch(const KernelSpec& spec, const FmhaProblem& problem,
                      const FmhaOperands& operands, const ForwardWindows& windows,
                      std::int64_t shared_bytes);

}  // namespace tessera::fmha
