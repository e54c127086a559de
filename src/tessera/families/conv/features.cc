// Fills in the features of candidates: the problem's part once, then kernel by kernel.
#include <fmt/format.h>

#include "tessera/base/forever.h"
#include "tessera/families/conv/features_internal.h"

namespace tessera::conv {
namespace {

tile::FeatureTables<ProblemFacts, KernelFacts> feature_tables() {
  return {problem_features(), kernel_features()};
}

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
  static const Forever<std::vector<Feature>> kAll(list_of(feature_tables()));
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
  tile::check_features(Op::conv, features().size(), specs.size(), columns.size(), wanted.size());
  if (specs.empty()) return;
  const ProblemFacts f = problem_facts(conv_of(problem), target, threads);
  fill_columns(
      feature_tables(), f, {Op::conv, specs.size(), columns, wanted},
      [&](std::size_t i) { return kernel_facts(f, specs[i].algorithm); },
      [&](std::size_t i) { return estimate(specs[i], problem, target, threads); });
}

}  // namespace tessera::conv
