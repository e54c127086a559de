// The arguments of attention's kernels, which the reference reads, too.
#pragma once

#include "tessera/device/fmha.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// The problem has its strides.
device::FmhaArguments arguments_of(const FmhaProblem& problem, const FmhaOperands& operands);

void copy_strides(const FmhaStrides& from, device::i64 (&to)[device::kTokenStrides]);

}  // namespace tessera::fmha
