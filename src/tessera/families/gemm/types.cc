#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

// One row for each pair of operand types. An output type that is not listed would need a conversion
// of its own.
struct TypeRow {
  DType a, b, acc;
  std::array<DType, 4> outs;  // the last type is repeated to fill the array
};

using enum DType;
constexpr std::array kTypes = {
    TypeRow{fp32, fp32, fp32, {fp32, fp32, fp32, fp32}},
    TypeRow{tf32, tf32, fp32, {tf32, fp32, fp32, fp32}},  // stored alike
    TypeRow{fp16, fp16, fp32, {fp16, fp32, fp32, fp32}},
    TypeRow{bf16, bf16, fp32, {bf16, fp32, fp32, fp32}},
    TypeRow{fp8, fp8, fp32, {fp16, bf16, fp32, fp32}},
    TypeRow{fp8, bf8, fp32, {fp16, bf16, fp32, fp32}},
    TypeRow{bf8, fp8, fp32, {fp16, bf16, fp32, fp32}},
    TypeRow{bf8, bf8, fp32, {fp16, bf16, fp32, fp32}},
    TypeRow{int8, int8, int32, {int32, fp32, bf16, int8}},
};

// "fp16", "fp8 or bf8", "fp32, tf32 or fp16"
std::string one_of(std::vector<std::string_view> words) {
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::string text(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string wrong_operand_types(const GemmSignature& s) {
  std::vector<std::string_view> known;
  std::vector<std::string_view> partners;
  for (const TypeRow& row : kTypes) {
    known.push_back(to_string(row.a));
    if (row.a == s.a) partners.push_back(to_string(row.b));
  }
  if (partners.empty()) {
    return fmt::format("a must be {}, got {}", one_of(known), to_string(s.a));
  }
  return fmt::format("b must be {} when a is {}, got {}; convert one of them", one_of(partners),
                     to_string(s.a), to_string(s.b));
}

}  // namespace

Verdict types_fit(const GemmSignature& s) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& candidate) {
    return candidate.a == s.a && candidate.b == s.b;
  });
  if (row == kTypes.end()) return {wrong_operand_types(s)};
  if (s.acc != row->acc) {
    return {fmt::format("acc must be {} for {} operands, got {}", to_string(row->acc),
                        to_string(s.a), to_string(s.acc))};
  }
  if (std::find(row->outs.begin(), row->outs.end(), s.out) == row->outs.end()) {
    std::vector<std::string_view> outs;
    for (const DType out : row->outs) outs.push_back(to_string(out));
    return {fmt::format("out must be {} for {} operands, got {}", one_of(outs), to_string(s.a),
                        to_string(s.out))};
  }
  if (s.d != fp32 && s.d != s.out) {
    return {fmt::format("d must be fp32 or {} like out, got {}", to_string(s.out), to_string(s.d))};
  }
  return {};
}

Verdict epilogue_fits(const GemmSignature& s) {
  if (std::string reason = invalid_reason(s.epilogue); !reason.empty()) return {reason};
  if (s.out == int32 && num_ops(s.epilogue) > 0) {
    return {fmt::format("out=int32 is exact and takes no epilogue, got {}; use out=fp32",
                        to_string(s.epilogue))};
  }
  return {};
}

DType word_type(const GemmSignature& s, int products_per_lane) {
  if (s.a == int8) return int8;
  return products_per_lane == 2 ? bf16 : fp32;
}

const Instruction* find_word_instruction(const GemmSignature& s, int products_per_lane,
                                         const Target& target) {
  // bf16 holds every fp8 and bf8 value, but not every fp16 or fp32 one.
  if (products_per_lane > 1 && (is_fp32(s.a) || s.a == fp16)) return nullptr;
  const DType word = word_type(s, products_per_lane);
  for (const Instruction& instruction : target.instructions) {
    if (instruction.a == word && instruction.b == word && instruction.acc == s.acc &&
        instruction.shape.k == products_per_lane) {
      return &instruction;
    }
  }
  return nullptr;
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
