#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/types.h"

namespace tessera::gemm {

using enum DType;

Verdict types_fit(const GemmSignature& s) {
  return {tile::types_reason({s.a, s.b, s.acc, s.out, s.d, {}})};
}

Verdict epilogue_fits(const GemmSignature& s) {
  if (std::string reason = invalid_reason(s.epilogue); !reason.empty()) return {reason};
  if (s.out == int32 && num_ops(s.epilogue) > 0) {
    return {fmt::format("out=int32 is exact and takes no epilogue, got {}; use out=fp32",
                        to_string(s.epilogue))};
  }
  return {};
}

const Instruction* find_word_instruction(const GemmSignature& s, int products_per_lane,
                                         const Target& target) {
  return tile::find_word_instruction(s.a, s.acc, products_per_lane, target);
}

Problem plain(const Problem& problem) {
  GemmProblem p = std::get<GemmProblem>(problem);
  p.epilogue = {};
  p.ld_d = {};
  p.batch_stride_d = {};
  return p;
}

// Tensor cores multiply fp16 at the rate of bf16, and int8 at the rate of fp8. Everything else
// depends on the bytes of an element only, except that an output may have another size.
Problem twin(const Problem& problem, const Target& target) {
  GemmProblem p = std::get<GemmProblem>(problem);
  if (target.backend != "cuda") return p;
  if (p.a == DType::int8) {
    p.a = p.b = DType::fp8;
    p.acc = DType::fp32;
    p.out = p.d = DType::fp16;
  }
  if (p.a != DType::fp16) return p;
  for (DType* type : {&p.a, &p.b, &p.out, &p.d}) {
    if (*type == DType::fp16) *type = DType::bf16;
  }
  return p;
}

}  // namespace tessera::gemm
