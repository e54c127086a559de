// Row indices for problems with gates, rows by index and outputs of 8 bits, and what a launch on
// them has to leave alone.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tessera/families/gemm/groups.h"
#include "tessera/measure/operands.h"

namespace tessera::outputs {

// Some rows name none; several rows may gather the same one.
inline void fill_index(const GemmProblem& p, const GemmOperands& o, std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  auto* const index = const_cast<std::int32_t*>(o.row_index);
  for (std::int64_t i = 0; i < (index == nullptr ? 0 : p.m); ++i) {
    if (draw(0, 5) == 0) index[i] = -1;
    if (draw(0, 5) == 0 && p.indexing == GemmIndexing::gathered && p.index_room > 0) {
      index[i] = static_cast<std::int32_t>(draw(0, p.index_room - 1));
    }
  }
}

// Which rows of out, all of its matrices one behind the other, are written.
inline std::vector<bool> written(const GemmProblem& p, const GemmOperands& o) {
  const bool has_matrices = gemm::group_matrices(p.grouping).out;
  const std::int64_t room = stored_rows_out(p);
  const std::int64_t count = p.grouping == GemmGrouping::none ? p.batch
                             : has_matrices                   ? p.groups
                                                              : 1;
  std::vector<bool> is(static_cast<std::size_t>(count * room));
  const auto mark = [&](std::int64_t matrix, std::int64_t first, std::int64_t rows) {
    for (std::int64_t i = first; i < first + rows; ++i) {
      const std::int64_t named = p.indexing == GemmIndexing::none ? i : o.row_index[i];
      if (named < 0) continue;
      const std::int64_t row = p.indexing == GemmIndexing::scattered ? named : i;
      is[static_cast<std::size_t>(matrix * room + row)] = true;
    }
  };
  if (p.grouping == GemmGrouping::none) {
    for (std::int64_t i = 0; i < p.batch; ++i) mark(i, 0, p.m);
    return is;
  }
  const device::GroupArguments x = gemm::group_arguments(with_strides(p), o);
  if (x.numbers == nullptr) return is;
  device::for_each_part(x, [&](const device::GroupPart& part) {
    const bool all = p.grouping == GemmGrouping::along_k;
    mark(has_matrices ? part.group : 0, all ? 0 : part.begin, all ? p.m : part.size);
  });
  return is;
}

// The bytes of each operand that is written, and nothing of others.
inline std::vector<std::vector<std::byte>> bytes_of(const measure::OwnedOperands& owned) {
  std::vector<std::vector<std::byte>> all;
  for (const Tensor& tensor : owned.tensors) {
    std::vector<std::byte>& bytes = all.emplace_back();
    const void* const from = owned.family->pointer(owned.operands, tensor.operand);
    if (!tensor.is_written() || tensor.is_report || from == nullptr) continue;
    bytes.resize(tensor.bytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), from, bytes.size());
  }
  return all;
}

// Says which operand has changed in rows that are not written, or in their scales; empty: none.
inline std::string touched(const GemmProblem& p, const measure::OwnedOperands& owned,
                           const std::vector<std::vector<std::byte>>& before) {
  const std::vector<bool> is = written(p, std::get<GemmOperands>(owned.operands));
  for (std::size_t t = 0; t < owned.tensors.size(); ++t) {
    const Tensor& tensor = *(owned.tensors.begin() + static_cast<std::ptrdiff_t>(t));
    if (before[t].empty() || tensor.is_empty()) continue;
    const auto* now =
        static_cast<const std::byte*>(owned.family->pointer(owned.operands, tensor.operand));
    const int size = size_of(tensor.dtype);
    for (std::size_t i = 0; i < is.size(); ++i) {
      for (std::int64_t c = 0; c < (is[i] ? 0 : tensor.sizes[0]); ++c) {
        const std::int64_t at =
            (tensor.row_offset(static_cast<std::int64_t>(i)) + c * tensor.strides[0]) * size;
        if (std::memcmp(now + at, before[t].data() + at, static_cast<std::size_t>(size)) == 0) {
          continue;
        }
        return fmt::format("{} has changed in row {}, which is not written", tensor.name, i);
      }
    }
  }
  return {};
}

}  // namespace tessera::outputs
