// Contractions and operands with several sources: which operands are arranged as matrices in the
// workspace, and the plain product that is left. docs/decisions/contractions.md says why.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/device/gemm/arrange.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/spec/contraction.h"

namespace tessera::gemm {

static_assert(kMostArrangedRank == device::kArrangedRank);

inline bool is_arranged(const GemmSignature& s) { return s.arranged; }
inline bool is_arranged(const KernelSpec& spec) {
  return std::get<GemmSignature>(spec.signature).arranged;
}

// Numbers of the operands that are sources behind the first, and every operand's name: problem.cc.
inline constexpr std::size_t kOperandMoreA = 28;
inline constexpr std::size_t kOperandMoreB = kOperandMoreA + kMaxSources - 1;
std::string_view operand_name(std::size_t operand);
// The operands of an arranged problem whose strides are filled in.
Tensors arranged_tensors(const GemmProblem& p);

// The sentence about an arranged problem that is not valid; empty when it is.
std::string arranged_reason(const GemmProblem& given);
// The kernel's source with its further entries, and its launch.
Source arranged_source(Source product, const KernelSpec& spec, const Target& target);
Launch bind_arranged(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                     const GemmOperands& operands);

// arranged_reference.cc: the functions of gemm.h for arranged problems.
Reference arranged_reference(const GemmProblem& p, const GemmOperands& o,
                             const ReferenceLimits& limits);
Mismatch arranged_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference);

}  // namespace tessera::gemm
