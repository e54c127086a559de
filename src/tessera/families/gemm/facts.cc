// What the stages that learn, report and exchange data need to know about a GEMM.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/families/draw.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"

namespace tessera::gemm {
namespace {

constexpr std::int64_t kNarrow = 8;  // rows or columns; up to this many, one reading of the wide
                                     // operand bounds the time

std::string shape_class(const GemmProblem& p) {
  const std::int64_t side = std::min(p.m, p.n);
  return side < 32 ? "tiny" : side < 256 ? "small" : side < 4096 ? "medium" : "large";
}

std::string k_class(const GemmProblem& p) {
  return p.k < 512 ? "short" : p.k < 4096 ? "medium" : "long";
}

[[noreturn]] void refuse_word(const std::string& why) { throw Error(ErrorCode::parse_error, why); }

// A size from a row of another program's file. `missing` is the result for a key that is not there;
// when it is 0 the key is required.
std::int64_t size_in(const ProblemWords& words, const std::string& key, std::int64_t missing) {
  const auto found = words.find(key);
  if (found == words.end() && missing > 0) return missing;
  if (found == words.end()) refuse_word(fmt::format("has no '{}'", key));
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  const std::string& text = found->second;
  const char* const end = text.data() + text.size();
  std::int64_t size = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, size);
  if (error == std::errc() && stop == end && size > 0 && size <= kLargest) return size;
  refuse_word(
      fmt::format("'{}' must be a whole number from 1 to 2^40, got {}", key, text.substr(0, 40)));
}

TypeWords types_in(const ProblemWords& words) {
  TypeWords types;
  if (const auto dtype = words.find("dtype"); dtype != words.end()) types.dtype = dtype->second;
  if (const auto layout = words.find("layout"); layout != words.end()) {
    types.layout = layout->second;
  }
  return types;
}

DType type_in(const ProblemWords& words, const std::string& key, DType missing) {
  const auto found = words.find(key);
  if (found == words.end()) return missing;
  try {
    return parse_dtype(found->second);
  } catch (const Error& error) {
    refuse_word(fmt::format("cannot be read: {}: {}", key, error.what()));
  }
}

}  // namespace

// The type of A, and the type of B when it differs, as at the beginning of a kernel's name. Kernels
// for groups, and those with scales, are measured on problems of their own and learned by models of
// their own.
std::string model_key(const Signature& signature) {
  const auto& s = std::get<GemmSignature>(signature);
  std::string key(to_string(s.a));
  if (s.b != s.a) key += fmt::format("_{}", to_string(s.b));
  if (has_groups(s)) key += "_grouped";
  if (has_scales(s)) key += "_scaled";
  return key;
}

std::uint64_t shape_hash(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto word = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  return mix(mix(mix(word(m)) ^ word(n)) ^ word(k));
}

tessera::Facts facts(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  return {.dtype = p.a,
          .types = {{"dtype", std::string(to_string(p.a))},
                    {"layout", std::string(to_string(p.layout))}},
          .sizes = {{"shape", shape_class(p)}, {"k", k_class(p)}},
          .axes = {Axis{"M", p.m}, Axis{"N", p.n}},
          .shape_hash = shape_hash(p.m, p.n, p.k),
          .bandwidth_bound = std::min(p.m, p.n) <= kNarrow};
}

const Instruction* roof(const Problem& problem, const Target& target) {
  const auto& p = std::get<GemmProblem>(problem);
  return find_instruction(target, p.a, p.b, p.acc);
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  GemmProblem p = std::get<GemmProblem>(problem);
  const DType dtype = words.dtype.empty() ? p.a : parse_dtype(words.dtype);
  if (!words.layout.empty()) p.layout = parse_gemm_layout(words.layout);
  if (words.dtype.empty()) return p;
  const GemmProblem types = gemm_problem(dtype, p.layout, 0, 0, 0);
  p.a = types.a;
  p.b = types.b;
  p.acc = types.acc;
  p.out = types.out;
  p.d = types.d;
  // An int32 output takes no epilogue. After an epilogue a network stores floating-point numbers.
  if (p.out == DType::int32 && num_ops(p.epilogue) > 0) p.out = p.d = DType::fp32;
  return p;
}

Problem from_words(const ProblemWords& words) {
  GemmProblem p;
  try {
    p = std::get<GemmProblem>(retyped(p, types_in(words)));
  } catch (const Error& error) {
    refuse_word(fmt::format("cannot be read: {}", error.what()));
  }
  p.m = size_in(words, "m", 0);
  p.n = size_in(words, "n", 0);
  p.k = size_in(words, "k", 0);
  p.batch = size_in(words, "batch", 1);
  const auto preshuffle = words.find("preshuffle");
  p.preshuffled_b = preshuffle != words.end() && preshuffle->second == "true";
  p.b = type_in(words, "dtype_b", p.b);
  p.out = p.d = type_in(words, "dtype_c", p.out);
  return p;
}

}  // namespace tessera::gemm
