// Numbers for problems with groups of unequal sizes, and what a launch on them has to leave alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
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

// Stores a number as wide as the problem has them.
inline void put_number(const GemmProblem& p, const GemmOperands& o, std::int64_t place,
                       std::int64_t number) {
  auto* const to = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
  const std::int64_t at = p.group_int64 ? 2 * place : place;
  to[at] = static_cast<std::int32_t>(number);
  if (p.group_int64) to[at + 1] = static_cast<std::int32_t>(number >> 32);
}

// Rows of no group lie behind the others, or between them.
inline std::vector<std::int32_t> index_of_rows(const GemmProblem& p,
                                               const std::vector<std::int32_t>& sizes,
                                               std::mt19937_64& random) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(p.m), -1);
  std::size_t row = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int32_t j = 0; j < sizes[i] && row < index.size(); ++j) {
      index[row++] = static_cast<int>(i);
    }
    if (draw(random, 0, 3) == 0) ++row;
  }
  return index;
}

// Sizes up to those of the problem, a quarter of them 0.
inline void fill_sizes(const GemmProblem& p, const GemmOperands& o, std::mt19937_64& random) {
  const std::array<std::int64_t, 3> most = {p.m, p.n, p.k};
  for (std::size_t which = 0; which < most.size(); ++which) {
    auto* const to = const_cast<std::int32_t*>(o.group_sizes.at(which));
    for (std::int64_t i = 0; i < p.groups; ++i) {
      const bool is_empty = which != 1 && draw(random, 0, 3) == 0;
      to[i] = static_cast<std::int32_t>(is_empty ? 0 : draw(random, 0, most.at(which)));
    }
  }
}
// Rows of each group that are as close as its own sizes let them be, or as far as the problem's.
inline void fill_strides(const GemmProblem& p, const GemmOperands& o, std::mt19937_64& random) {
  const std::int64_t most[] = {p.ld_a,    p.ld_b,    p.ld_c,    p.ld_out,
                               p.ld_d[0], p.ld_d[1], p.ld_d[2], p.ld_d[3]};
  for (std::int64_t i = 0; i < p.groups; ++i) {
    const std::int32_t m = o.group_sizes[0][i], n = o.group_sizes[1][i], k = o.group_sizes[2][i];
    for (std::size_t which = 0; which < o.group_lds.size(); ++which) {
      if (o.group_lds.at(which) == nullptr) continue;
      const std::int32_t row = which == 0   ? (a_is_row_major(p.layout) ? k : m)
                               : which == 1 ? (b_is_row_major(p.layout) ? n : k)
                                            : n;
      const_cast<std::int32_t*>(o.group_lds.at(which))[i] =
          static_cast<std::int32_t>(draw(random, row, most[which]));
    }
  }
}

inline void fill_numbers(const GemmProblem& given, const Operands& operands,
                         std::mt19937_64& random) {
  const GemmProblem p = with_strides(given);
  const auto& o = std::get<GemmOperands>(operands);
  if (gemm::is_list(p) && o.group_sizes[0] != nullptr) {
    fill_sizes(p, o, random);
    return fill_strides(p, o, random);
  }
  if (gemm::numbers_of(p, o) == nullptr) return;
  const bool along_k = p.grouping == GemmGrouping::along_k;
  std::vector<std::int32_t> sizes = sizes_of_groups(random, p.groups, along_k ? p.k : p.m);
  if (p.grouping == GemmGrouping::masked) {
    for (std::int32_t& size : sizes) size = static_cast<std::int32_t>(draw(random, 0, p.m));
  }
  if (p.grouping == GemmGrouping::indexed) sizes = index_of_rows(p, sizes, random);
  if (p.grouping == GemmGrouping::contiguous || along_k) {
    std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    put_number(p, o, static_cast<std::int64_t>(i), sizes[i]);
  }
}

// Numbers for 4 groups in rooms of 20 rows and 30 of k, and the first of them that does not fit.
struct BadNumbers {
  std::int32_t place, number, bound;
};
inline BadNumbers fill_bad_numbers(const GemmProblem& p, const Operands& operands) {
  const auto fill = [&](std::initializer_list<std::int32_t> numbers, BadNumbers bad) {
    std::int64_t place = 0;
    for (const std::int32_t number : numbers) {
      put_number(p, std::get<GemmOperands>(operands), place++, number);
    }
    return bad;
  };
  if (p.grouping == GemmGrouping::indexed) return fill({0, 1, 0}, {2, 0, 1});
  if (p.grouping == GemmGrouping::masked) return fill({1, 21, 0, -1}, {1, 21, 20});
  if (gemm::is_list(p)) {
    const_cast<std::int32_t*>(std::get<GemmOperands>(operands).group_sizes[1])[2] = -3;
    const_cast<std::int32_t*>(std::get<GemmOperands>(operands).group_sizes[2])[0] = 31;
    return fill({1, 20, 0, 2}, {4 + 2, -3, 0});
  }
  return fill({3, 2, 5, 6}, {1, 2, 3});
}

// What lies outside of the output; groups with strides of their own write to gaps of the problem's.
inline std::string gaps_intact(const GemmProblem& p, const measure::OwnedOperands& owned) {
  return p.group_strides ? std::string() : measure::gaps_intact(owned);
}

// Where the output of a problem begins, all groups' matrices together.
inline const std::byte* start_of(const Tensor& out, const GemmOperands& o) {
  if (!out.in_array) return static_cast<const std::byte*>(o.out);
  const auto* const pointers = static_cast<const std::byte* const*>(o.out);
  return *std::min_element(pointers, pointers + out.batches);
}
inline std::vector<std::byte> bytes_of_out(const measure::OwnedOperands& owned) {
  for (const Tensor& tensor : owned.tensors) {
    if (tensor.name != "out" || tensor.bytes() == 0) continue;
    std::vector<std::byte> bytes(tensor.bytes());
    std::memcpy(bytes.data(), start_of(tensor, std::get<GemmOperands>(owned.operands)),
                bytes.size());
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
inline std::size_t touched_of_lists(const GemmProblem& p, const measure::OwnedOperands& owned,
                                    const std::vector<std::byte>& before) {
  const auto& o = std::get<GemmOperands>(owned.operands);
  const std::vector<std::byte> now = bytes_of_out(owned);
  std::vector<bool> is(before.size());
  const device::GroupArguments x = gemm::group_arguments(p, o);
  const int size = size_of(p.out);
  const std::byte* start = nullptr;
  for (const Tensor& tensor : owned.tensors) {
    if (tensor.name == "out" && !before.empty()) start = start_of(tensor, o);
  }
  for (std::int64_t group = 0; start != nullptr && group < p.groups; ++group) {
    const device::GemmArguments g = device::product_of_list(x, group);
    for (std::int64_t i = 0; i < g.m * g.n; ++i) {
      const std::int64_t at =
          static_cast<const std::byte*>(g.out) - start + (i / g.n * g.ld_out + i % g.n) * size;
      std::fill_n(is.begin() + at, size, true);
    }
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < is.size(); ++i) count += !is[i] && before[i] != now[i] ? 1 : 0;
  return count;
}
inline std::size_t touched(const GemmProblem& given, const GemmOperands& o,
                           const std::byte* before) {
  const GemmProblem p = with_strides(given);
  const std::vector<bool> is = written(p, o);
  const auto bytes = static_cast<std::size_t>(size_of(p.out));
  std::size_t count = 0;
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t offset =
        at / (p.m * p.n) * p.batch_stride_out + at / p.n % p.m * p.ld_out + at % p.n;
    const auto* const now = static_cast<const std::byte*>(o.out) + offset * size_of(p.out);
    if (!is[i] && std::memcmp(now, before + offset * size_of(p.out), bytes) != 0) ++count;
  }
  return count;
}
inline std::size_t touched(const GemmProblem& given, const measure::OwnedOperands& owned,
                           const std::vector<std::byte>& before) {
  if (gemm::is_list(given)) return touched_of_lists(with_strides(given), owned, before);
  return touched(given, std::get<GemmOperands>(owned.operands), before.data());
}

}  // namespace tessera::grouped
