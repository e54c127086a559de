// What kernels for short calls can run.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/families/gemm/legality_internal.h"
#include "tessera/families/gemm/small_internal.h"

namespace tessera::gemm {
namespace {

// The vectors that the kernels are written for, and how many of them registers must hold.
constexpr int kFewVectorBytes = 32, kFewRegisters = 16;
constexpr int kManyVectorBytes = 64, kManyRegisters = 32;

int registers_needed(const Target& target) {
  return target.vector_bytes == kFewVectorBytes ? kFewRegisters : kManyRegisters;
}

// The most products of words. Up to here a core takes 0.3 ms, and operands fit into L2; beyond,
// blocked kernels are better and nothing is known of these.
constexpr std::int64_t kMostWordProducts = std::int64_t{1} << 24;
constexpr std::int64_t kMostWords = 4096;  // of k, which is not cut: a row of A stays in L1
constexpr std::int64_t kMostWordsOfB = std::int64_t{1} << 22;  // beyond, memory is what counts
constexpr std::int64_t kMostOutputs = std::int64_t{1} << 19;   // written by panels, not by rows

const Instruction* word_instruction(const Case& c) {
  return find_word_instruction(c.signature, words_in_memory(c.signature.a), c.target);
}

bool shapes_listed(const Case& c) {
  const std::vector<Algorithm>& all = small_shapes(c.signature, c.target);
  return std::any_of(all.begin(), all.end(), [&](const Algorithm& a) {
    return a.tile == c.algorithm.tile && a.warp_tile == c.algorithm.warp_tile;
  });
}
std::string shapes_not_listed(const Case& c) {
  std::vector<std::string> words;
  for (const Algorithm& a : small_shapes(c.signature, c.target)) {
    words.push_back(to_string(a.tile) + "_" + to_string(a.warp_tile));
  }
  return fmt::format("small has these tiles and warp tiles for {} {}: {}, got {}_{}",
                     to_string(c.signature.a), to_string(c.signature.layout), join(words, ", "),
                     to_string(c.algorithm.tile), to_string(c.algorithm.warp_tile));
}

constexpr Rule kSmall[] = {
    {[](const Case& c) {
       const int bytes = c.target.vector_bytes;
       return bytes == kFewVectorBytes || bytes == kManyVectorBytes;
     },
     [](const Case& c) {
       return fmt::format("small is written for vectors of {} or {} bytes, {} has {}",
                          kFewVectorBytes, kManyVectorBytes, c.target.name, c.target.vector_bytes);
     }},
    {[](const Case& c) { return c.target.vector_registers >= registers_needed(c.target); },
     [](const Case& c) {
       return fmt::format("small needs {} registers for vectors of {} bytes, {} has {}",
                          registers_needed(c.target), c.target.vector_bytes, c.target.name,
                          c.target.vector_registers);
     }},
    kUnusedFieldsRule,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w == Shape3{0, 0, 1} || w == Shape3{};
     },
     [](const Case& c) {
       return fmt::format("small runs on one thread or on all: wave must be 1x1x1 or 0x0x1, got {}",
                          to_string(c.algorithm.wave));
     }},
    kNoPreshuffleRule,
    {[](const Case& c) { return a_is_row_major(c.signature.layout); },
     [](const Case& c) {
       return fmt::format("small reads words of A in place, which must be row-major, got layout {}",
                          to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       return words_in_memory(c.signature.a) > 0 && c.signature.a == c.signature.b;
     },
     [](const Case& c) {
       return fmt::format(
           "small multiplies words as they lie in memory: fp32, tf32, bf16 or int8, got {} x {}",
           to_string(c.signature.a), to_string(c.signature.b));
     }},
    {[](const Case& c) { return word_instruction(c) != nullptr; },
     [](const Case& c) {
       const int products = words_in_memory(c.signature.a);
       return fmt::format("{} has no instruction for {} x {} with {} product{} per lane",
                          c.target.name, to_string(c.signature.a), to_string(c.signature.b),
                          products, products == 1 ? "" : "s");
     }},
    {shapes_listed, shapes_not_listed},
};

// One and two rows by rows of fp32 are always faster in order, so that blocks do not serve them.
constexpr std::int64_t kLeastRowsInPlace = 3;

std::string rows_do_not_fit(const Algorithm& a, SmallKind kind, const GemmProblem& p) {
  const int rows = a.warp_tile.m;
  const std::int64_t m = p.m;
  if (kind == SmallKind::blocks) {
    if (m >= kLeastRowsInPlace || !is_fp32(p.a) || !b_is_row_major(p.layout)) return "";
    return fmt::format("small serves m >= {} with blocks of rows of fp32, got m={}",
                       kLeastRowsInPlace, m);
  }
  if (kind == SmallKind::rows && m != rows) {
    return fmt::format("small serves m={} with rows of B in order, got m={}", rows, m);
  }
  if (rows == 3) return m >= 2 ? "" : fmt::format("small serves m >= 2 with 3 rows, got m={}", m);
  if (m % rows == 0) return "";
  return fmt::format("small serves multiples of its {} rows, got m={}", rows, m);
}

}  // namespace

std::span<const Rule> small_rules() { return kSmall; }

Verdict small_supports(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const int lanes = target.vector_bytes / 4;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return {};
  if (p.n < lanes) return {fmt::format("small serves n >= {}, got n={}", lanes, p.n)};
  const std::int64_t bytes = p.k * static_cast<std::int64_t>(size_of(p.a));
  if (bytes < device::kSmallEndBytes) {
    return {fmt::format("small reads at least {} bytes of each row of A, got k={}, which are {}",
                        device::kSmallEndBytes, p.k, bytes)};
  }
  const Algorithm& a = spec.algorithm;
  if (std::string why = rows_do_not_fit(a, small_kind(a, target), p); !why.empty()) return {why};
  if (p.m > kMostOutputs / p.n) {
    return {fmt::format("small serves at most {} elements of output, got m={} n={}", kMostOutputs,
                        p.m, p.n)};
  }
  const std::int64_t words = (bytes + 3) / 4;
  if (words > kMostWords) {
    return {fmt::format("small serves at most {} words of k, got k={}, which are {}", kMostWords,
                        p.k, words)};
  }
  if (words > kMostWordsOfB / p.n) {
    return {fmt::format("small serves at most {} words of B, got n={} by {} words of k",
                        kMostWordsOfB, p.n, words)};
  }
  if (words <= kMostWordProducts / (p.m * p.n)) return {};
  return {fmt::format("small serves at most {} products of words, got m={} n={} and {} words of k",
                      kMostWordProducts, p.m, p.n, words)};
}

}  // namespace tessera::gemm
