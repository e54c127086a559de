// The gradients of attention: the problem's tensors, its kernels, their text, launch and times. The
// family's functions call these where the kind is backward. Problems have their strides where
// nothing else is said.
#pragma once

#include <string>
#include <vector>

#include "tessera/device/fmha_backward.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/objects.h"

namespace tessera::fmha {

inline bool goes_back(const FmhaProblem& p) { return p.kind == FmhaKind::backward; }
inline bool goes_back(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature).kind == FmhaKind::backward;
}

// backward_validate.cc; the problem is as it was given
// Throws where a field is given that another kind has, or that only gradients have.
void refuse_backward_fields(const FmhaProblem& given);
void check_backward(const FmhaProblem& given, const FmhaProblem& problem);
// Why no kernel has such a signature because of its kind; empty: some do.
std::string backward_signature_reason(const FmhaSignature& signature);

// backward.cc
device::FmhaBackwardArguments backward_arguments(const FmhaProblem& problem,
                                                 const FmhaOperands& operands);
double backward_flops(const FmhaProblem& problem);
Source emit_backward(const KernelSpec& spec, const Target& target);
void bind_backward(const KernelSpec& spec, const FmhaProblem& problem, const FmhaOperands& operands,
                   Launch& launch);
Estimate estimate_backward(const KernelSpec& spec, const FmhaProblem& problem, const Target& target,
                           int threads);
// Kernels of gradients, from the kernels of attention.
std::vector<FmhaSignature> backward_signatures(const std::vector<FmhaSignature>& forward);

// emit.cc: what the texts of attention's kernels and of its gradients' kernels share
std::string config_text(const KernelSpec& spec);
std::vector<tile::CpuObject> product_objects(const KernelSpec& spec, const Target& target);

// backward_reference.cc
Reference backward_reference(const Problem& problem, const FmhaOperands& operands,
                             const ReferenceLimits& limits);

}  // namespace tessera::fmha
