// What a product may have besides its operands and an epilogue: scales of blocks, a gate, rows by
// index, an output of 8 bits. GemmScale and the enums behind it (src/tessera/spec/gemm_problem.h)
// say what they are.
#pragma once

#include <algorithm>
#include <iterator>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

inline bool has_scales(const GemmSignature& s) {
  return s.scale_a != GemmScale::none || s.scale_b != GemmScale::none;
}
inline bool has_scales(const GemmProblem& p) {
  return p.scale_a != GemmScale::none || p.scale_b != GemmScale::none;
}

// Whether a signature has anything that the functions below look at.
inline bool has_extras(const GemmSignature& s) {
  return has_scales(s) || s.scale_type != GemmScaleType::fp32 || s.gate != GemmGate::none ||
         s.gate_interleaved || s.indexing != GemmIndexing::none || s.quant != NormQuant::none ||
         s.out == DType::fp8 || s.out == DType::bf8;
}

// Which of them does not go with the types or with another; empty when all do.
Verdict extras_fit(const GemmSignature& signature);

// The sentence about sizes, strides and flags that do not fit them; empty when all do.
std::string extras_reason(const GemmProblem& problem);
// Whether extras_reason() has anything to look at.
inline bool has_extras(const GemmProblem& p) {
  const std::int64_t strides[] = {p.stride_scale_a_m,     p.stride_scale_a_k,
                                  p.stride_scale_b_n,     p.stride_scale_b_k,
                                  p.batch_stride_scale_a, p.batch_stride_scale_b};
  const bool has_strides = std::any_of(std::begin(strides), std::end(strides),
                                       [](std::int64_t stride) { return stride != kPacked; });
  return has_strides || has_scales(p) || p.scale_quads || p.gate != GemmGate::none ||
         p.indexing != GemmIndexing::none || p.index_room != 0 || p.quant != NormQuant::none ||
         p.scales_by_column;
}

}  // namespace tessera::gemm
