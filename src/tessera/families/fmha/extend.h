// Appending to a cache and attending to it in one launch: what differs from attention alone.
// Problems have their strides where nothing else is said.
#pragma once

#include "tessera/families/fmha/append.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

// The two halves, the appending and the attention that follows it, with standard values in fields
// that a half does not have.
FmhaProblem append_part(const FmhaProblem& problem);
FmhaProblem attention_part(const FmhaProblem& problem);
// Where attention reads q, and the strides there.
const void* queries_of(const FmhaProblem& problem, const FmhaOperands& operands);
// And the values, which may be the first elements of the keys.
const void* values_of(const FmhaProblem& problem, const FmhaOperands& operands);
const FmhaStrides& query_strides(const FmhaProblem& problem);
// What the configuration of a kernel that extends has besides; the blocks that append have so many
// warps on a GPU.
std::string extended_config(const KernelSpec& spec, int warps);
// The text of a GPU's kernel whose blocks have so many threads. `attention` is the template that
// attends; kernels that extend append first.
Source attention_on_gpu(const KernelSpec& spec, tile::Template attention, int threads);
// Adds the steps before the one that attends to a launch on a GPU: the one that checks the pages,
// and the one that appends. CPU kernels append in the step that attends.
void add_first_steps(const KernelSpec& spec, const FmhaProblem& problem, int threads,
                     Launch& launch);

// The arguments of a launch, for its attention and, where it appends, for the appending.
template <class Arguments>
void set_arguments(const Arguments& attention, const FmhaProblem& p, const FmhaOperands& o,
                   Launch& launch) {
  if (!extends(p)) return launch.arguments.set(attention);
  launch.arguments.set(device::FmhaExtendArguments<Arguments>{attention, append_arguments(p, o)});
}

}  // namespace tessera::fmha
