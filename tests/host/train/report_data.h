// A data set, a model and a page made up for tests.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/families/family.h"
#include "tessera/learn/model.h"
#include "tessera/targets/targets.h"
#include "tessera/train/dataset.h"

namespace tessera::testing_support {

// A tree that says ln of the family's own closed estimate, in steps of half an octave.
inline std::string estimate_forest(std::span<const Feature> features) {
  std::vector<std::string> names;
  std::size_t estimate = 0;
  for (const Feature& feature : features) {
    if (feature.name == "log2_seconds") estimate = names.size();
    names.emplace_back(feature.name);
  }
  constexpr int kSplits = 60;
  std::vector<double> thresholds, values;
  std::vector<int> left, right;
  for (int i = 0; i < kSplits; ++i) {
    thresholds.push_back(-30 + 0.5 * i);
    values.push_back(std::log(2) * (-30.25 + 0.5 * i));
    left.push_back(~i);
    right.push_back(i + 1 < kSplits ? i + 1 : ~kSplits);
  }
  values.push_back(0);
  const auto same = [](const char* word, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("{}{}", i > 0 ? " " : "", word);
    return text;
  };
  return fmt::format(
      "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
      "max_feature_idx={}\nobjective=regression\nfeature_names={}\nfeature_infos={}\n"
      "tree_sizes=1\n\nTree=0\nnum_leaves={}\nnum_cat=0\nsplit_feature={}\nsplit_gain={}\n"
      "threshold={}\ndecision_type={}\nleft_child={}\nright_child={}\nleaf_value={}\n"
      "leaf_weight={}\nleaf_count={}\ninternal_value={}\ninternal_weight={}\n"
      "internal_count={}\nis_linear=0\nshrinkage=1\n\n\nend of trees\n",
      names.size() - 1, fmt::join(names, " "), same("none", static_cast<int>(names.size())),
      kSplits + 1, same(std::to_string(estimate).c_str(), kSplits), same("1", kSplits),
      fmt::join(thresholds, " "), same("2", kSplits), fmt::join(left, " "), fmt::join(right, " "),
      fmt::join(values, " "), same("1", kSplits + 1), same("1", kSplits + 1), same("0", kSplits),
      same("0", kSplits), same("1", kSplits));
}

inline Manifest estimate_manifest(const Target& target, const std::string& forest) {
  const std::span<const Feature> features = family_of(Op::gemm).features();
  Manifest m;
  m.op = "gemm";
  m.target = target.name;
  m.dtypes = {"fp32"};
  m.file = "model.txt";
  m.model_hash = hash_hex(forest);
  m.feature_hash = feature_hash_text(features);
  for (const Feature& feature : features) {
    m.features.emplace_back(feature.name);
    if (feature.group == FeatureGroup::problem) {
      m.ranges.push_back({std::string(feature.name), -1e300, 1e300});
    }
  }
  m.data_hash = "d00d";
  m.rows = 1000;
  m.problems = 10;
  m.date = "2026-11-21";
  m.versions = {{"lightgbm", "4.7.0"}};
  return m;
}

inline std::shared_ptr<const Model> estimate_model(const Target& target) {
  const std::span<const Feature> features = family_of(Op::gemm).features();
  const std::string forest = estimate_forest(features);
  return std::make_shared<const Model>(make_model(to_json(estimate_manifest(target, forest)),
                                                  forest, {"gemm", target.name, features},
                                                  "model"));
}

// The first problems of the wide set, each with some of the target's kernels; times are the
// estimate's with noise.
inline train::Dataset noisy_data(const Target& target, std::size_t problems, std::size_t stride,
                                 std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.15);
  const Family& family = family_of(Op::gemm);
  std::map<std::string, Problem> chosen;
  for (const Problem& p : family_of(Op::gemm).draw("wide", ProblemSide::learned, target, {})) {
    if (chosen.size() < problems) chosen.emplace(to_string(p), p);
  }
  train::Dataset d;
  d.target = target.name;
  d.devices = {"an EPYC", "another one"};
  d.hash = "0123";
  const std::vector<KernelSpec> all = family.candidates(chosen.begin()->second, target);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % stride != 0 || !family.is_legal(all[i], target)) continue;
    d.kernels.push_back(all[i]);
    d.kernel_names.push_back(name_of(all[i]));
  }
  for (const auto& [text, problem] : chosen) {
    const auto place = static_cast<std::uint32_t>(d.problems.size());
    d.problems.push_back(problem);
    d.threads.push_back(2);
    for (std::uint32_t k = 0; k < d.kernels.size(); ++k) {
      if (!family.supports(d.kernels[k], problem, target)) continue;
      const double seconds = family.estimate(d.kernels[k], problem, target, 2).seconds;
      d.rows.push_back({place, k, seconds * std::exp(noise(random))});
    }
  }
  return d;
}

}  // namespace tessera::testing_support
