// Appending new keys and values to a cache: the problem's tensors, its kernels, their text, launch
// and times. The family's functions call these where the kind is append. Problems have their
// strides where nothing else is said.
#pragma once

#include <string>
#include <vector>

#include "tessera/device/fmha_append.h"
#include "tessera/families/draw.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

inline bool appends(const FmhaProblem& p) { return p.kind == FmhaKind::append; }
inline bool appends(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature).kind == FmhaKind::append;
}

// append_validate.cc; the problem is as it was given
void validate_append(const FmhaProblem& given);
// Throws where attention itself is asked for with a field that only append has.
void refuse_append_fields(const FmhaProblem& given);
// Why no kernel appends with such a signature, or attends with what only append has; empty: some
// do.
std::string append_signature_reason(const FmhaSignature& signature);

// append.cc
// Positions from here on are not written: they are behind the cache's room or the tables' rows.
std::int64_t end_of_positions(const FmhaProblem& problem);
device::FmhaAppendArguments append_arguments(const FmhaProblem& problem,
                                             const FmhaOperands& operands);
double append_flops(const FmhaProblem& problem);
double append_bytes(const FmhaProblem& problem);
std::vector<FmhaSignature> append_signatures();
std::vector<Algorithm> append_algorithms(const Target& target);
std::string append_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                           const Target& target);
Source emit_append(const KernelSpec& spec, const Target& target);
void bind_append(const KernelSpec& spec, const FmhaProblem& problem, const FmhaOperands& operands,
                 Launch& launch);
Estimate estimate_append(const KernelSpec& spec, const FmhaProblem& problem, const Target& target,
                         int threads);

// append_draw.cc
void draw_append(Draw& draw, FmhaProblem& problem);
std::vector<Problem> append_samples(const KernelSpec& spec);

// append_reference.cc
Reference append_reference(const Problem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits);
Mismatch verify_append(const Problem& problem, const FmhaOperands& operands);

}  // namespace tessera::fmha
