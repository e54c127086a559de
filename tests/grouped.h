// Numbers for problems with groups of unequal sizes, and what a launch on them has to leave alone.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tessera/families/gemm/groups.h"
#include "tessera/measure/operands.h"

namespace tessera::grouped {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Sizes of groups: random, some of them empty, or all of the room in one group.
inline std::vector<std::int32_t> sizes_of_groups(std::mt19937_64& random, std::int64_t groups,
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
inline void fill_index(const GemmProblem& p, const std::vector<std::int32_t>& sizes,
                       std::mt19937_64& random, std::int32_t* to) {
  std::fill_n(to, p.m, -1);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int32_t j = 0; j < sizes[i] && row < p.m; ++j) to[row++] = static_cast<int>(i);
    if (draw(random, 0, 3) == 0) ++row;
  }
}

inline void fill_numbers(const GemmProblem& p, const Operands& operands, std::mt19937_64& random) {
  const auto& o = std::get<GemmOperands>(operands);
  auto* const to = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
  if (to == nullptr) return;
  const bool along_k = p.grouping == GemmGrouping::along_k;
  std::vector<std::int32_t> sizes = sizes_of_groups(random, p.groups, along_k ? p.k : p.m);
  if (p.grouping == GemmGrouping::masked) {
    for (std::int32_t& size : sizes) size = static_cast<std::int32_t>(draw(random, 0, p.m));
  }
  if (p.grouping == GemmGrouping::indexed) return fill_index(p, sizes, random, to);
  if (p.grouping != GemmGrouping::masked) {
    std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
  }
  std::copy(sizes.begin(), sizes.end(), to);
}

// Numbers for 4 groups in rooms of 20 rows and 30 of k, and the first of them that does not fit.
struct BadNumbers {
  std::int32_t place, number, bound;
};
inline BadNumbers fill_bad_numbers(const GemmProblem& p, const Operands& operands) {
  auto* const to = const_cast<std::int32_t*>(gemm::numbers_of(p, std::get<GemmOperands>(operands)));
  const auto fill = [&](std::initializer_list<std::int32_t> numbers, BadNumbers bad) {
    std::copy(numbers.begin(), numbers.end(), to);
    return bad;
  };
  if (p.grouping == GemmGrouping::indexed) return fill({0, 1, 0}, {2, 0, 1});
  if (p.grouping == GemmGrouping::masked) return fill({1, 21, 0, -1}, {1, 21, 20});
  return fill({3, 2, 5, 6}, {1, 2, 3});
}

inline std::vector<std::byte> bytes_of_out(const measure::OwnedOperands& owned) {
  for (const Tensor& tensor : owned.tensors) {
    if (tensor.name != "out" || tensor.bytes() == 0) continue;
    std::vector<std::byte> bytes(tensor.bytes());
    std::memcpy(bytes.data(), std::get<GemmOperands>(owned.operands).out, bytes.size());
    return bytes;
  }
  return {};
}

// Which elements of out, all of its matrices one behind the other, belong to a group.
inline std::vector<bool> written(const GemmProblem& p, const GemmOperands& o) {
  const bool has_matrices = gemm::group_matrices(p.grouping).out;
  std::vector<bool> is(static_cast<std::size_t>((has_matrices ? p.groups : 1) * p.m * p.n));
  const device::GroupArguments x = gemm::group_arguments(p, o);
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

// How many elements that belong to no group have other bits than before.
inline std::size_t touched(const GemmProblem& given, const Operands& operands,
                           const std::vector<std::byte>& before) {
  const GemmProblem p = with_strides(given);
  const auto& o = std::get<GemmOperands>(operands);
  const std::vector<bool> is = written(p, o);
  const auto bytes = static_cast<std::size_t>(size_of(p.out));
  std::size_t count = 0;
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t offset =
        at / (p.m * p.n) * p.batch_stride_out + at / p.n % p.m * p.ld_out + at % p.n;
    const auto* const now = static_cast<const std::byte*>(o.out) + offset * size_of(p.out);
    const std::byte* const was = before.data() + offset * size_of(p.out);
    if (!is[i] && std::memcmp(now, was, bytes) != 0) ++count;
  }
  return count;
}

}  // namespace tessera::grouped
