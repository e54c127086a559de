// Which types of operands, sums and outputs go together.
#include "tessera/families/tile/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace tessera::tile {
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

std::string wrong_operand_types(const ProductTypes& t) {
  std::vector<std::string_view> known;
  std::vector<std::string_view> partners;
  for (const TypeRow& row : kTypes) {
    known.push_back(to_string(row.a));
    if (row.a == t.a) partners.push_back(to_string(row.b));
  }
  if (partners.empty()) {
    return fmt::format("{} must be {}, got {}", t.names.a, one_of(known), to_string(t.a));
  }
  return fmt::format("{} must be {} when {} is {}, got {}; convert one of them", t.names.b,
                     one_of(partners), t.names.a, to_string(t.a), to_string(t.b));
}

}  // namespace

std::string types_reason(const ProductTypes& t) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& candidate) {
    return candidate.a == t.a && candidate.b == t.b;
  });
  if (row == kTypes.end()) return wrong_operand_types(t);
  if (t.acc != row->acc) {
    return fmt::format("acc must be {} for {} operands, got {}", to_string(row->acc),
                       to_string(t.a), to_string(t.acc));
  }
  if (std::find(row->outs.begin(), row->outs.end(), t.out) == row->outs.end()) {
    std::vector<std::string_view> outs;
    for (const DType out : row->outs) outs.push_back(to_string(out));
    return fmt::format("{} must be {} for {} operands, got {}", t.names.out, one_of(outs),
                       to_string(t.a), to_string(t.out));
  }
  if (t.d == DType::fp32 || t.d == t.out) return {};
  const std::string_view either = t.out == DType::fp32 ? "" : "fp32 or ";
  return fmt::format("{} must be {}{} like {}, got {}", t.names.d, either, to_string(t.out),
                     t.names.out, to_string(t.d));
}

std::string scalars_reason(const Scalars& s) {
  const std::pair<std::string_view, float> factors[] = {{"alpha", s.alpha}, {"beta", s.beta}};
  for (const auto& [name, value] : factors) {
    if (!std::isfinite(value)) return fmt::format("{} must be finite, got {}", name, value);
    const bool whole = std::trunc(value) == value && std::abs(value) <= 0x1p30F;
    if (s.out == DType::int32 && !whole) {
      return fmt::format(
          "{} must be a whole number of at most 2^30 when out is int32, got {}; use out=fp32", name,
          value);
    }
  }
  if (s.clamp_lo <= s.clamp_hi) return {};
  return fmt::format("clamp_lo must not be above clamp_hi, got {} and {}", s.clamp_lo, s.clamp_hi);
}

const Instruction* find_word_instruction(DType operand, DType acc, int products_per_lane,
                                         const Target& target) {
  // bf16 holds every fp8 and bf8 value, but not every fp16 or fp32 one.
  const bool is_wide = operand == fp32 || operand == tf32 || operand == fp16;
  if (products_per_lane > 1 && is_wide) return nullptr;
  const DType word = operand == int8 ? int8 : products_per_lane == 2 ? bf16 : fp32;
  for (const Instruction& instruction : target.instructions) {
    if (instruction.a == word && instruction.b == word && instruction.acc == acc &&
        instruction.shape.m == 1 && instruction.shape.k == products_per_lane) {
      return &instruction;
    }
  }
  return nullptr;
}

}  // namespace tessera::tile
