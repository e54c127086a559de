// What a product may have besides its operands and an epilogue: scales of blocks, a gate, rows by
// index, an output of 8 bits. GemmScale and the enums behind it (src/tessera/spec/problem.h) say
// what they are.
#pragma once

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

inline bool has_scales(const GemmSignature& s) {
  return s.scale_a != GemmScale::none || s.scale_b != GemmScale::none;
}
inline bool has_scales(const GemmProblem& p) {
  return p.scale_a != GemmScale::none || p.scale_b != GemmScale::none;
}

// Which of them does not go with the types or with another; empty when all do.
Verdict extras_fit(const GemmSignature& signature);

// The sentence about sizes, strides and flags that do not fit them; empty when all do.
std::string extras_reason(const GemmProblem& problem);

}  // namespace tessera::gemm
