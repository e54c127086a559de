// How groups of lists lie in memory, by their own sizes and distances of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/families/gemm/groups.h"

namespace tessera::grouped {

// Gives a group of lists 3 rows, columns and k, and lines that are 4 elements apart.
inline void fill_group(const Operands& operands, std::int64_t group) {
  const auto& o = std::get<GemmOperands>(operands);
  for (const std::int32_t* const sizes : o.group_sizes) {
    const_cast<std::int32_t*>(sizes)[group] = 3;
  }
  for (const std::int32_t* const lds : o.group_lds) {
    if (lds != nullptr) const_cast<std::int32_t*>(lds)[group] = 4;
  }
}

// How an operand of a group of lists lies in memory, by the group's own sizes and distances.
struct Lines {
  std::int64_t lines, length, ld;
};
inline Lines lines_of(const GemmProblem& p, std::string_view operand,
                      const device::GemmArguments& g) {
  if (operand == "a" && a_is_row_major(p.layout)) return {g.m, g.k, g.ld_a};
  if (operand == "a") return {g.k, g.m, g.ld_a};
  if (operand == "b" && b_is_row_major(p.layout)) return {g.k, g.n, g.ld_b};
  if (operand == "b") return {g.n, g.k, g.ld_b};
  if (operand == "c") return {g.m, g.n, g.ld_c};
  if (operand == "out") return {g.m, g.n, g.ld_out};
  const auto i = static_cast<std::size_t>(operand.back() - '0');
  const DShape shape = d_uses(p.epilogue).at(i).shape;
  if (shape == DShape::matrix) return {g.m, g.n, g.ld_d[i]};
  return {1, shape == DShape::along_m ? g.m : g.n, 0};
}
// Its bytes from the first to the last element; 0 where nothing of the group is accessed.
inline std::size_t bytes_of_list(const GemmProblem& p, const Tensor& tensor,
                                 const device::GemmArguments& g) {
  const Lines own = lines_of(p, tensor.name, g);
  if (g.m == 0 || g.n == 0 || own.lines == 0 || own.length == 0) return 0;
  const std::int64_t elements = (own.lines - 1) * own.ld + own.length;
  return static_cast<std::size_t>(elements * size_of(tensor.dtype));
}

}  // namespace tessera::grouped
