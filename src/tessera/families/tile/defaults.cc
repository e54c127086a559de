#include "tessera/families/tile/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tessera::tile {

std::string stage_of(std::string_view verb, std::string_view entry) {
  if (entry.empty()) return std::string(verb);
  std::string words(entry.substr(1));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

Problem from_words(Op op, const ProblemWords& words, std::span<const std::string_view> keys) {
  std::string line(to_string(op));
  for (const std::string_view key : keys) {
    const auto found = words.find(std::string(key));
    if (found != words.end()) line += fmt::format(" {}={}", key, found->second);
  }
  try {
    return parse_problem(line);
  } catch (const Error& error) {
    throw Error(ErrorCode::parse_error, fmt::format("cannot be read: {}", error.what()));
  }
}

DrawBounds draw_bounds(const Target& target, const Instruction* best, double gpu_bytes) {
  constexpr double kCpuFlops = 0x1p31, kCpuBytes = 0x1p28;
  constexpr double kGpuSeconds = 4.4e-3;  // 2^42 operations of an H200 in bf16
  if (!is_gpu(target)) return {kCpuFlops, kCpuBytes};
  if (best == nullptr) best = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  const double peak = best == nullptr ? 1e12 : peak_of(*best, target, target.units);
  return {kGpuSeconds * peak, gpu_bytes};
}

std::vector<Problem> draw_problems(
    std::size_t count, ProblemSide side,
    const std::function<std::optional<Problem>(std::uint64_t index)>& draw) {
  constexpr std::uint64_t kMostDraws = 1000000;
  std::vector<Problem> problems;
  std::set<std::string> taken;
  for (std::uint64_t i = 0; problems.size() < count && i < kMostDraws; ++i) {
    const std::optional<Problem> problem = draw(i);
    if (!problem) continue;
    const Family& family = family_of(*problem);
    if (side_of(family.facts(*problem).shape_hash) != side) continue;
    if (!taken.insert(to_string(*problem)).second) continue;
    family.validate(*problem);
    problems.push_back(*problem);
  }
  return problems;
}

}  // namespace tessera::tile
