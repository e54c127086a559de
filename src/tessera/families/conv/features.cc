// Fills in the features of candidates: the problem's part once, then kernel by kernel.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/forever.h"
#include "tessera/families/conv/features_internal.h"
#include "tessera/families/tile/features.h"

namespace tessera::conv {
namespace {

std::vector<Feature> both_tables() {
  std::vector<Feature> all;
  for (const SharedFeature& row : shared_features()) all.push_back(row.feature);
  for (const OwnFeature& row : own_features()) all.push_back(row.feature);
  return all;
}

struct Wanted {
  const OwnFeature* row;
  double* column;
  std::size_t count;  // of candidates
};

// The strides that sizes of 1 have are of no consequence.
bool is_packed(const ConvStrides& strides, const ConvStrides& packed,
               const std::array<std::int64_t, 6>& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] != packed[i]) return false;
  }
  return true;
}

}  // namespace

std::span<const Feature> features() {
  static const Forever<std::vector<Feature>> kAll(both_tables());
  return *kAll;
}

// No feature describes the distances between pixels, lines and images.
Verdict features_fit(const Problem& problem) {
  const ConvProblem& given = conv_of(problem);
  ConvProblem without = given;
  without.in_strides = without.weight_strides = without.out_strides = kPackedStrides;
  const ConvProblem p = with_strides(given), packed = with_strides(without);
  const Spatial &x = p.size, &w = p.filter, y = out_size(p);
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  const auto refuse = [](std::string_view tensor) {
    return Verdict{fmt::format("no feature describes gaps between elements of {}", tensor)};
  };
  if (!is_packed(p.in_strides, packed.in_strides, {p.n, p.g, c, x[0], x[1], x[2]})) {
    return refuse("x");
  }
  if (!is_packed(p.weight_strides, packed.weight_strides, {p.g, k, c, w[0], w[1], w[2]})) {
    return refuse("w");
  }
  if (!is_packed(p.out_strides, packed.out_strides, {p.n, p.g, k, y[0], y[1], y[2]})) {
    return refuse("y");
  }
  return {};
}

void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted) {
  const std::span<const SharedFeature> shared = shared_features();
  const std::span<const OwnFeature> own = own_features();
  const std::size_t count = specs.size();
  tile::check_features(Op::conv, shared.size() + own.size(), count, columns.size(), wanted.size());
  if (specs.empty()) return;
  const ProblemFacts f = problem_facts(conv_of(problem), target, threads);
  for (std::size_t i = 0; i < shared.size(); ++i) {
    const std::size_t some = tile::wanted_count(Op::conv, wanted, i, count);
    if (some > 0) std::fill_n(columns.data() + i * count, some, shared[i].value(f));
  }
  std::vector<Wanted> list;
  bool is_estimated = false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::size_t at = shared.size() + i;
    const std::size_t some = tile::wanted_count(Op::conv, wanted, at, count);
    if (some > 0) list.push_back({&own[i], columns.data() + at * count, some});
    is_estimated = is_estimated || (some > 0 && own[i].is_estimated);
  }
  for (std::size_t s = 0; s < count && !list.empty(); ++s) {
    KernelFacts x = kernel_facts(f, specs[s].algorithm);
    if (is_estimated) {
      x.estimate = estimate(specs[s], problem, target, threads);
      x.estimated_seconds = std::max(x.estimate.seconds, kLeastSeconds);
    }
    for (const Wanted& each : list) {
      if (s < each.count) each.column[s] = each.row->value(f, x);
    }
  }
}

}  // namespace tessera::conv
