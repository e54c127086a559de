// Which contractions, and which operands with several sources, are valid.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"

namespace tessera::gemm {
namespace {

constexpr std::array<std::string_view, kArrangedOperands> kArrangedNames = {
    "a", "b", "c", "d0", "d1", "d2", "d3", "out"};

std::string alone_reason(const GemmProblem& p) {
  const auto refuse = [](std::string_view field, std::string_view value, std::string_view got) {
    return fmt::format("{} must be {} with dims, merge_a or merge_b, got {}", field, value, got);
  };
  if (p.grouping != GemmGrouping::none) return refuse("grouping", "none", to_string(p.grouping));
  if (p.preshuffled_b) return refuse("preshuffle", "0", "1");
  if (p.pointer_arrays) return refuse("pointer_arrays", "0", "1");
  if (has_scales(p)) {
    return refuse("scale_a", "none",
                  to_string(p.scale_a == GemmScale::none ? p.scale_b : p.scale_a));
  }
  if (p.gate != GemmGate::none) return refuse("gate", "none", to_string(p.gate));
  if (p.indexing != GemmIndexing::none) return refuse("indexing", "none", to_string(p.indexing));
  return p.quant == NormQuant::none ? "" : refuse("quant", "none", to_string(p.quant));
}

// ---- sources ----

struct MergedSide {
  char name;
  GemmMerge merge;
  std::int64_t sources;
  DType type;
  const std::array<std::int64_t, kMaxSources - 1>& lds;
  const std::array<std::int64_t, kMaxSources - 1>& batches;
};

std::string stride_reason(const MergedSide& side, bool is_contraction) {
  for (std::size_t i = 0; i < side.lds.size(); ++i) {
    for (const auto& [key, stride] :
         {std::pair{"ld", side.lds.at(i)}, {"batch_stride", side.batches.at(i)}}) {
      if (stride == kPacked) continue;
      const std::string name = fmt::format("{}_{}{}", key, side.name, i + 1);
      const auto known = side.merge == GemmMerge::none ? 1 : side.sources;
      if (static_cast<std::int64_t>(i) + 1 >= known) {
        return fmt::format("{} must be left out where {} has {} source{}, got {}", name, side.name,
                           known, known == 1 ? "" : "s", stride);
      }
      if (is_contraction) {
        return fmt::format(
            "{} must be left out with dims, whose strides hold for all sources, got {}", name,
            stride);
      }
      if (stride < 0) return fmt::format("{} must be at least 0, got {}", name, stride);
    }
  }
  return {};
}

std::string side_reason(const MergedSide& side, bool is_contraction) {
  if (side.merge == GemmMerge::none && side.sources != 1) {
    return fmt::format("sources_{0} must be 1 with merge_{0}=none, got {1}", side.name,
                       side.sources);
  }
  if (side.merge != GemmMerge::none && (side.sources < 2 || side.sources > kMaxSources)) {
    return fmt::format("sources_{} must be 2 to {} with merge_{}={}, got {}", side.name,
                       kMaxSources, side.name, to_string(side.merge), side.sources);
  }
  const bool is_wide = is_fp32(side.type) || side.type == DType::fp16 || side.type == DType::bf16;
  if (side.merge != GemmMerge::none && !is_wide) {
    return fmt::format("merge_{} takes sources of fp32, tf32, fp16 and bf16, got {}", side.name,
                       to_string(side.type));
  }
  return stride_reason(side, is_contraction);
}

// ---- dimensions ----

std::string left_out_reason(const GemmProblem& given) {
  const std::pair<std::string_view, std::int64_t> strides[] = {
      {"ld_a", given.ld_a},
      {"ld_b", given.ld_b},
      {"ld_c", given.ld_c},
      {"ld_out", given.ld_out},
      {"batch_stride_a", given.batch_stride_a},
      {"batch_stride_b", given.batch_stride_b},
      {"batch_stride_c", given.batch_stride_c},
      {"batch_stride_out", given.batch_stride_out}};
  for (const auto& [name, stride] : strides) {
    if (stride == kPacked) continue;
    return fmt::format("{} must be left out with dims, which say all strides, got {}", name,
                       stride);
  }
  for (std::size_t i = 0; i < kMaxD; ++i) {
    for (const auto& [key, stride] :
         {std::pair{"ld_d", given.ld_d.at(i)}, {"batch_stride_d", given.batch_stride_d.at(i)}}) {
      if (stride == kPacked) continue;
      return fmt::format("{}{} must be left out with dims, which say all strides, got {}", key, i,
                         stride);
    }
  }
  return {};
}

std::string dim_reason(const GemmDim& dim, std::size_t index) {
  if (dim.size < 0) {
    return fmt::format("the size of dims[{}] must be at least 0, got {}", index, dim.size);
  }
  const auto reason = [&](std::string_view name, std::int64_t stride) {
    return fmt::format("the stride of {} in dims[{}] must be at least 0, got {}", name, index,
                       stride);
  };
  if (dim.a < 0) return reason("a", dim.a);
  if (dim.b < 0) return reason("b", dim.b);
  if (dim.out < 0) return reason("out", dim.out);
  if (dim.c < 0 && dim.c != kPacked) return reason("c", dim.c);
  for (std::size_t i = 0; i < kMaxD; ++i) {
    const std::int64_t d = dim.d.at(i);
    if (d < 0 && d != kPacked) return reason(fmt::format("d{}", i), d);
  }
  return {};
}

std::string sizes_reason(const GemmProblem& p) {
  constexpr std::pair<GemmDimKind, std::string_view> kSizes[] = {{GemmDimKind::g, "batch"},
                                                                 {GemmDimKind::m, "m"},
                                                                 {GemmDimKind::n, "n"},
                                                                 {GemmDimKind::k, "k"}};
  for (const auto& [kind, name] : kSizes) {
    std::int64_t product = 1;
    for (const GemmDim& dim : p.dims) {
      if (dim.kind != kind) continue;
      if (__builtin_mul_overflow(product, dim.size, &product)) {
        return fmt::format("the sizes of dims of kind {} must have a product below 2^63",
                           to_string(kind));
      }
    }
    const std::int64_t got = kind == GemmDimKind::g   ? p.batch
                             : kind == GemmDimKind::m ? p.m
                             : kind == GemmDimKind::n ? p.n
                                                      : p.k;
    if (product == got) continue;
    return fmt::format("{} must be {}, the product of the sizes of dims of kind {}, got {}", name,
                       product, to_string(kind), got);
  }
  return {};
}

std::string dims_reason(const GemmProblem& given) {
  if (std::string why = left_out_reason(given); !why.empty()) return why;
  for (std::size_t i = 0; i < given.dims.count; ++i) {
    if (std::string why = dim_reason(given.dims.all.at(i), i); !why.empty()) return why;
    if (i == 0 || given.dims.all.at(i - 1).kind <= given.dims.all.at(i).kind) continue;
    return fmt::format("dims come in the order g, m, n, k, got {} behind {}",
                       to_string(given.dims.all.at(i).kind),
                       to_string(given.dims.all.at(i - 1).kind));
  }
  return sizes_reason(given);
}

std::string ranks_reason(const GemmProblem& p, const DenseProduct& dense) {
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const auto operand = static_cast<Arranged>(i);
    if (!dense.of(operand).is_used) continue;
    const std::size_t rank = whole_view_of(p, dense, operand).rank;
    if (rank <= kMostArrangedRank) continue;
    return fmt::format("{} must have at most {} dimensions of more than one element, got {}",
                       kArrangedNames.at(i), kMostArrangedRank, rank);
  }
  return {};
}

// Each stride must reach past all that smaller ones span.
std::string overlap_reason(const GemmProblem& p, const DenseProduct& dense) {
  const ArrangedView out = view_of(p, dense, Arranged::out);
  if (out.elements == 0) return {};
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t i = 0; i < out.rank; ++i) dims.emplace_back(out.strides.at(i), out.sizes.at(i));
  std::sort(dims.begin(), dims.end());
  std::int64_t span = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < span) {
      return fmt::format(
          "results would overlap: the stride of out over {} elements must be at least {}, got {}",
          size, span, stride);
    }
    std::int64_t last = 0;
    if (__builtin_mul_overflow(stride, size - 1, &last) ||
        __builtin_add_overflow(span, last, &span)) {
      return "the last byte of out must be below 2^63";
    }
  }
  return {};
}

}  // namespace

std::string arranged_reason(const GemmProblem& given) {
  const bool is_contraction = given.dims.count != 0;
  if (std::string why = side_reason({'a', given.merge_a, given.sources_a, given.a, given.ld_more_a,
                                     given.batch_stride_more_a},
                                    is_contraction);
      !why.empty()) {
    return why;
  }
  if (std::string why = side_reason({'b', given.merge_b, given.sources_b, given.b, given.ld_more_b,
                                     given.batch_stride_more_b},
                                    is_contraction);
      !why.empty()) {
    return why;
  }
  if (!is_arranged(given)) return {};
  if (std::string why = alone_reason(given); !why.empty()) return why;
  if (!is_contraction) return {};
  if (std::string why = dims_reason(given); !why.empty()) return why;
  const GemmProblem p = with_strides(given);
  const DenseProduct dense = dense_product(p);
  if (std::string why = ranks_reason(p, dense); !why.empty()) return why;
  return overlap_reason(p, dense);
}

}  // namespace tessera::gemm
