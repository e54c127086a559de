// The family of normalisations over rows: softmax, RMSNorm and LayerNorm. See README.md.
#pragma once

#include "tessera/families/family.h"

namespace tessera::norm {

const Family& family();

// See Family::abi. What it counts: device/norm.h, the entries.
inline constexpr int kAbi = 2;
inline constexpr int kWarp = 32;  // threads of a GPU that step together

// problem.cc: the table, and what it says of problems
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
double elements(const NormProblem& problem);
double bytes(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const NormSignature& signature);

// kernels.cc
int registers_needed(const Algorithm& algorithm);
Verdict is_legal(const KernelSpec& spec, const Target& target);
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target);
std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes);
std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most);
std::span<const DerivedField> derived();
std::vector<KernelSpec> candidates(const Problem& problem, const Target& target);
std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target);
KernelSpec general(const Problem& problem, const Target& target);

// emit.cc
Source emit(const KernelSpec& spec, const Target& target);
Launch bind(const KernelSpec& spec, const Problem& problem, const Operands& operands);

// estimate.cc
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);

// reference.cc
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

}  // namespace tessera::norm
