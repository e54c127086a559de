#include "tessera/families/hipdnn.h"

#include <fmt/format.h>

namespace tessera::hipdnn {
namespace {

std::string list_of(const Formula* first, std::size_t count) {
  std::string json;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) json += ", ";
    json += first[i].json;
  }
  return json;
}

}  // namespace

// Words are names, numbers and references: nothing in them needs a backslash.
Formula text(std::string_view word) { return {fmt::format("\"{}\"", word)}; }
Formula number(std::int64_t value) { return {fmt::format("{}", value)}; }

Formula call(std::string_view op, std::initializer_list<Formula> arguments) {
  return {fmt::format("{{\"{}\": [{}]}}", op, list_of(arguments.begin(), arguments.size()))};
}

Formula all_of(const std::vector<Formula>& conditions) {
  return {fmt::format("{{\"and\": [{}]}}", list_of(conditions.data(), conditions.size()))};
}

std::string_view type_word(DType dtype, const Target& target) {
  const bool fnuz = target.fp8_encoding == Fp8Encoding::fnuz;
  switch (dtype) {
    case DType::fp32:
      return "FLOAT";
    case DType::fp16:
      return "HALF";
    case DType::bf16:
      return "BFLOAT16";
    case DType::fp8:
      return fnuz ? "FP8_E4M3_FNUZ" : "FP8_E4M3";
    case DType::bf8:
      return fnuz ? "FP8_E5M2_FNUZ" : "FP8_E5M2";
    case DType::int8:
      return "INT8";
    case DType::int32:
      return "INT32";
    case DType::tf32:
      break;  // a way to multiply FLOAT, which no graph asks for
  }
  return {};
}

std::string_view to_string(Parameter type) {
  switch (type) {
    case Parameter::pointer:
      return "pointer";
    case Parameter::i64:
      return "i64";
    case Parameter::i32:
      return "i32";
  }
  return {};
}

}  // namespace tessera::hipdnn
