// Random contractions, and operands with several sources.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tessera/families/gemm/gemm.h"

namespace tessera::arranged {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}
inline bool one_in(std::mt19937_64& random, int n) { return draw(random, 0, n - 1) == 0; }

// Strides of dimensions that lie in memory in any order, with gaps here and there.
inline void set_strides(std::mt19937_64& random, const std::vector<std::int64_t>& sizes,
                        const std::vector<std::int64_t*>& strides) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!one_in(random, 3)) std::shuffle(order.begin(), order.end(), random);
  std::int64_t span = one_in(random, 4) ? 2 : 1;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    *strides[*at] = span;
    span *= std::max<std::int64_t>(sizes[*at], 1);
    if (one_in(random, 4)) span += draw(random, 1, 5);
  }
}

inline void add_dims(std::mt19937_64& random, GemmDimKind kind, std::int64_t most, GemmDims& dims) {
  constexpr std::int64_t kMostOfKind = 2;  // so that no operand has more than 6
  for (std::int64_t i = draw(random, 0, kMostOfKind); i > 0; --i) {
    GemmDim& dim = dims.all.at(dims.count++);
    dim.kind = kind;
    dim.size = one_in(random, 6) ? draw(random, 0, 1) : draw(random, 1, most);
  }
}

// The strides of the operand that `member` of a dimension is for.
template <class Has, class Member>
void stride_operand(std::mt19937_64& random, GemmDims& dims, bool may_repeat, const Has& has,
                    const Member& member) {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t*> strides;
  for (std::size_t i = 0; i < dims.count; ++i) {
    GemmDim& dim = dims.all.at(i);
    if (!has(dim.kind)) continue;
    sizes.push_back(dim.size);
    strides.push_back(&member(dim));
  }
  set_strides(random, sizes, strides);
  for (std::int64_t* stride : strides) {
    if (may_repeat && one_in(random, 8)) *stride = 0;
  }
}

// With up to two dimensions of each kind of at most `most` elements.
inline void contract(std::mt19937_64& random, std::int64_t most, GemmProblem& p) {
  using enum GemmDimKind;
  GemmDims& dims = p.dims;
  add_dims(random, g, 3, dims);
  add_dims(random, m, most, dims);
  add_dims(random, n, most, dims);
  add_dims(random, k, most, dims);
  if (dims.count == 0) dims.all.at(dims.count++) = {.size = 3, .kind = m};
  const auto product = [&](GemmDimKind kind) {
    std::int64_t size = 1;
    for (const GemmDim& dim : dims) size *= dim.kind == kind ? dim.size : 1;
    return size;
  };
  p.batch = product(g), p.m = product(m), p.n = product(n), p.k = product(k);
  const auto of_out = [](GemmDimKind kind) { return kind != k; };
  stride_operand(
      random, dims, true, [](GemmDimKind kind) { return kind != n; },
      [](GemmDim& dim) -> std::int64_t& { return dim.a; });
  stride_operand(
      random, dims, true, [](GemmDimKind kind) { return kind != m; },
      [](GemmDim& dim) -> std::int64_t& { return dim.b; });
  stride_operand(random, dims, false, of_out,
                 [](GemmDim& dim) -> std::int64_t& { return dim.out; });
  if (p.beta != 0 && one_in(random, 2)) {
    stride_operand(random, dims, true, of_out, [](GemmDim& dim) -> std::int64_t& { return dim.c; });
  }
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (one_in(random, 2)) continue;
    stride_operand(random, dims, true, of_out,
                   [i](GemmDim& dim) -> std::int64_t& { return dim.d.at(i); });
  }
}

// Up to four sources of A and of B; those of a plain product lie at strides of their own.
inline void merge(std::mt19937_64& random, GemmProblem& p) {
  const auto side = [&](DType type, GemmMerge& merge, std::int64_t& sources) {
    if (size_of(type) == 1) return;
    merge = static_cast<GemmMerge>(draw(random, 0, 2));
    if (merge != GemmMerge::none) sources = draw(random, 2, kMaxSources);
  };
  side(p.a, p.merge_a, p.sources_a);
  side(p.b, p.merge_b, p.sources_b);
  if (p.dims.count != 0) return;
  const GemmProblem dense = with_strides(p);
  const auto strides = [&](std::int64_t sources, auto& lds, auto& batches, std::int64_t ld,
                           std::int64_t batch) {
    for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(sources); ++i) {
      if (one_in(random, 3)) lds.at(i) = one_in(random, 2) ? 0 : ld + draw(random, 0, 5);
      if (one_in(random, 3)) batches.at(i) = one_in(random, 2) ? 0 : 2 * batch;
    }
  };
  strides(p.sources_a, p.ld_more_a, p.batch_stride_more_a, dense.ld_a, dense.batch_stride_a);
  strides(p.sources_b, p.ld_more_b, p.batch_stride_more_b, dense.ld_b, dense.batch_stride_b);
}

// A problem of the signature; is arranged in almost any case, and valid in all.
inline GemmProblem problem_of(std::mt19937_64& random, const GemmSignature& signature,
                              std::int64_t most) {
  GemmSignature plain = signature;
  plain.arranged = false;
  GemmProblem p =
      gemm::problem_of(plain, draw(random, 0, most), draw(random, 1, most), draw(random, 0, most));
  const bool is_exact = p.out == DType::int32;
  p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
  p.alpha = is_exact ? 2.0F : p.a == DType::int8 ? 0x1p-9F : 0.75F;
  if (one_in(random, 2)) p.beta = is_exact ? 3.0F : -0.5F;
  const bool merges = one_in(random, 3) && size_of(p.a) != 1;
  if (!merges || one_in(random, 2)) {
    contract(random, one_in(random, 3) ? 20 : 7, p);
  } else {
    p.batch = draw(random, 1, 3);
  }
  if (merges) merge(random, p);
  if (!is_arranged(p)) p.merge_a = GemmMerge::add, p.sources_a = 2;
  return p;
}

}  // namespace tessera::arranged
