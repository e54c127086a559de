// What tests of kernels for groups of unequal sizes share: random groups, and elements of no group,
// which a launch leaves alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tessera/families/gemm/groups.h"

namespace tessera::group_numbers {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// The sizes of some groups: random, empty, or all of the room in one group.
inline std::vector<std::int32_t> sizes(std::mt19937_64& random, std::int64_t groups,
                                       std::int64_t room) {
  std::vector<std::int32_t> sizes(static_cast<std::size_t>(groups), 0);
  if (groups == 0) return sizes;
  const std::int64_t kind = draw(random, 0, 3);
  if (kind == 0) {
    sizes[static_cast<std::size_t>(draw(random, 0, groups - 1))] = static_cast<int>(room);
    return sizes;
  }
  std::int64_t left = kind == 1 ? room : draw(random, 0, room);
  for (std::int32_t& size : sizes) {
    const std::int64_t most = std::min(left, 1 + 2 * room / groups);
    size = static_cast<std::int32_t>(draw(random, 0, 3) == 0 ? 0 : draw(random, 0, most));
    left -= size;
  }
  return sizes;
}

// Rows of no group lie behind the others, or between them.
inline void fill_index(std::mt19937_64& random, const std::vector<std::int32_t>& sizes,
                       std::int64_t rows, std::int32_t* to) {
  std::fill_n(to, rows, -1);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int32_t j = 0; j < sizes[i] && row < rows; ++j) to[row++] = static_cast<int>(i);
    if (draw(random, 0, 3) == 0) ++row;
  }
}

// Writes numbers that fit where the operands have them.
inline void fill(std::mt19937_64& random, const GemmProblem& p, const Operands& operands) {
  const auto& o = std::get<GemmOperands>(operands);
  auto* const to = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
  if (to == nullptr) return;
  const bool along_k = p.grouping == GemmGrouping::along_k;
  std::vector<std::int32_t> all = sizes(random, p.groups, along_k ? p.k : p.m);
  if (p.grouping == GemmGrouping::masked) {
    for (std::int32_t& size : all) size = static_cast<std::int32_t>(draw(random, 0, p.m));
  }
  if (p.grouping == GemmGrouping::indexed) return fill_index(random, all, p.m, to);
  if (p.grouping != GemmGrouping::masked) std::partial_sum(all.begin(), all.end(), all.begin());
  std::copy(all.begin(), all.end(), to);
}

// Which elements of out, all of its matrices one behind the other, belong to a group.
inline std::vector<bool> written(const GemmProblem& p, const GemmOperands& o) {
  const bool has_matrices = gemm::group_matrices(p.grouping).out;
  std::vector<bool> is(static_cast<std::size_t>((has_matrices ? p.groups : 1) * p.m * p.n));
  const device::GroupArguments x = gemm::group_arguments(with_strides(p), o);
  if (x.numbers == nullptr) return is;
  device::for_each_part(x, [&](const device::GroupPart& part) {
    const bool all = p.grouping == GemmGrouping::along_k;
    const std::int64_t first = has_matrices ? part.group * p.m : part.begin;
    const std::int64_t rows = all ? p.m : part.size;
    for (std::int64_t i = first * p.n; i < (first + rows) * p.n; ++i) {
      is[static_cast<std::size_t>(i)] = true;
    }
  });
  return is;
}

// How many elements of no group differ from what they were.
inline std::size_t touched(const GemmProblem& given, const GemmOperands& o,
                           const std::byte* before) {
  const GemmProblem p = with_strides(given);
  const std::vector<bool> is = written(given, o);
  const auto bytes = static_cast<std::size_t>(size_of(p.out));
  std::size_t touched = 0;
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t offset =
        at / (p.m * p.n) * p.batch_stride_out + at / p.n % p.m * p.ld_out + at % p.n;
    const auto* const now = static_cast<const std::byte*>(o.out) + offset * size_of(p.out);
    if (!is[i] && std::memcmp(now, before + offset * size_of(p.out), bytes) != 0) ++touched;
  }
  return touched;
}

}  // namespace tessera::group_numbers
