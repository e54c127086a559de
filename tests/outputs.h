// Random problems of gates, rows by index and outputs of 8 bits, their operands, and which rows of
// outputs such a launch may write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "grouped.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/measure/operands.h"

namespace tessera::outputs {

using grouped::draw;

// A gate has an even number of columns.
inline GemmProblem problem_of(const GemmSignature& signature, std::int64_t m, std::int64_t n,
                              std::int64_t k, std::mt19937_64& random) {
  const std::int64_t columns = signature.gate == GemmGate::none ? n : n + n % 2;
  GemmProblem p = gemm::problem_of(signature, m, columns, k);
  if (p.grouping != GemmGrouping::none) {
    p.groups = draw(random, 0, 9);
    p.group_int64 = p.grouping != GemmGrouping::lists && draw(random, 0, 1) == 1;
  }
  if (p.grouping == GemmGrouping::none && p.indexing == GemmIndexing::none)
    p.batch = draw(random, 1, 3);
  if (p.indexing != GemmIndexing::none) p.index_room = m + draw(random, p.m > 0 ? 1 : 0, 40);
  if (p.indexing == GemmIndexing::gathered && m > 0) p.index_room = draw(random, 1, 2 * m);
  p.scales_by_column = p.quant == NormQuant::block && draw(random, 0, 1) == 1;
  p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
  p.alpha = p.out == DType::int32 ? 1.0F : p.a == DType::int8 ? 0x1p-9F : 0.75F;
  return p;
}

// Strides that are longer than the sizes, and C.
inline void loosen(GemmProblem& p, std::mt19937_64& random) {
  p = with_strides(p);
  const std::int64_t rows = std::max(p.m, p.index_room) + 1;
  for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += draw(random, 0, 5);
  const std::int64_t longest = std::max({rows, p.n, p.k});
  p.batch_stride_a = longest * p.ld_a, p.batch_stride_b = longest * p.ld_b;
  p.batch_stride_c = rows * p.ld_c + 1, p.batch_stride_out = rows * p.ld_out + 1;
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += draw(random, 0, 5);
    p.batch_stride_d[i] = draw(random, 0, 3) == 0 ? 0 : rows * std::max(p.ld_d[i], p.n);
  }
  if (p.quant == NormQuant::none) p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
}

// Some rows name none; several rows may gather the same one.
inline void fill_index(const GemmProblem& p, const GemmOperands& o, std::mt19937_64& random) {
  auto* const index = const_cast<std::int32_t*>(o.row_index);
  for (std::int64_t i = 0; i < (index == nullptr ? 0 : p.m); ++i) {
    if (draw(random, 0, 5) == 0) index[i] = -1;
    if (draw(random, 0, 5) == 0 && p.indexing == GemmIndexing::gathered && p.index_room > 0) {
      index[i] = static_cast<std::int32_t>(draw(random, 0, p.index_room - 1));
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

// The bytes of rows that are not written have not changed, and neither have those of their
// scales.
inline void expect_left_alone(const GemmProblem& p, const measure::OwnedOperands& owned,
                              const std::vector<std::vector<std::byte>>& before) {
  const std::vector<bool> is = written(p, std::get<GemmOperands>(owned.operands));
  for (std::size_t t = 0; t < owned.tensors.size(); ++t) {
    const Tensor& tensor = *(owned.tensors.begin() + static_cast<std::ptrdiff_t>(t));
    if (before[t].empty() || tensor.is_empty()) continue;
    const auto* now =
        static_cast<const std::byte*>(owned.family->pointer(owned.operands, tensor.operand));
    const int size = size_of(tensor.dtype);
    std::int64_t touched = 0;
    for (std::size_t i = 0; i < is.size(); ++i) {
      for (std::int64_t c = 0; c < (is[i] ? 0 : tensor.sizes[0]); ++c) {
        const std::int64_t at =
            (tensor.row_offset(static_cast<std::int64_t>(i)) + c * tensor.strides[0]) * size;
        touched +=
            std::memcmp(now + at, before[t].data() + at, static_cast<std::size_t>(size)) != 0;
      }
    }
    EXPECT_EQ(touched, 0) << "elements of " << tensor.name << " changed in rows of no index";
  }
}

inline std::vector<std::vector<std::byte>> bytes_of_outputs(const measure::OwnedOperands& owned) {
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

}  // namespace tessera::outputs
