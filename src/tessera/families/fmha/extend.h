// Appending to a cache and attending to it in one launch: what differs from attention alone.
// Problems have their strides where nothing else is said.
#pragma once

#include "tessera/families/fmha/append.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

inline bool extends(const FmhaProblem& p) { return p.kind == FmhaKind::extend; }
inline bool extends(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature).kind == FmhaKind::extend;
}

// extend_validate.cc: what attention's own checks leave; `p` is the problem with its strides.
// Why no kernel of such a signature appends and attends; empty: some do.
std::string extend_signature_reason(const FmhaSignature& signature);
void check_extended(const FmhaProblem& given, const FmhaProblem& p);

// extend.cc
// The two halves, the appending and the attention that follows it, with standard values in fields
// that a half does not have.
FmhaProblem append_part(const FmhaProblem& problem);
FmhaProblem attention_part(const FmhaProblem& problem);
// Where attention reads q, and the strides there.
const void* queries_of(const FmhaProblem& problem, const FmhaOperands& operands);
// And the values, which may be the first elements of the keys.
const void* values_of(const FmhaProblem& problem, const FmhaOperands& operands);
const FmhaStrides& query_strides(const FmhaProblem& problem);
// The text of a CPU's kernel, and of a GPU's whose blocks have so many threads. `attention` is the
// template that attends; kernels that extend append first.
Source attention_on_cpu(const KernelSpec& spec, const Target& target, tile::Template attention);
Source attention_on_gpu(const KernelSpec& spec, tile::Template attention, int threads);
// Adds the step that appends to a launch on a GPU. CPU kernels append in the step that attends.
void add_append_step(const KernelSpec& spec, const FmhaProblem& problem, int threads,
                     Launch& launch);

// The arguments of a launch, for its attention and, where it appends, for the appending.
template <class Arguments>
void set_arguments(const Arguments& attention, const FmhaProblem& p, const FmhaOperands& o,
                   Launch& launch) {
  if (!extends(p)) return launch.arguments.set(attention);
  launch.arguments.set(device::FmhaExtendArguments<Arguments>{attention, append_arguments(p, o)});
}

// reference.cc: the rows of attention, and what an element of them costs in multiplications
tile::ComputeRow attention_rows(const FmhaProblem& problem, const FmhaOperands& operands,
                                const ReferenceLimits& limits, const AppendedCopies* appended);
double cost_of_row(const FmhaProblem& problem);

// extend_reference.cc
Reference extend_reference(const FmhaProblem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits);

}  // namespace tessera::fmha
