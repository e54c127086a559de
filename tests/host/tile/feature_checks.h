// What must hold of every family's features.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "host/families/asked.h"
#include "host/spec/expect_error.h"
#include "tessera/families/tile/features.h"
#include "tessera/targets/targets.h"

namespace tessera {

inline std::vector<double> extract_all(const Problem& problem, const Target& target, int threads,
                                       std::span<const KernelSpec> specs) {
  const Family& family = family_of(problem);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> columns(family.features().size() * specs.size(), nan);
  family.extract(problem, target, threads, specs, columns, {});
  return columns;
}

inline std::size_t place_of(std::string_view name, const Family& family) {
  const std::span<const Feature> all = family.features();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return i;
  }
  ADD_FAILURE() << name;
  return 0;
}

inline bool is_shared(const Feature& feature) {
  return feature.group == FeatureGroup::problem || feature.group == FeatureGroup::hardware;
}

// The features that all candidates share, which are the first ones.
inline std::vector<double> shared_values(const Problem& problem, const Target& target,
                                         int threads) {
  const Family& family = family_of(problem);
  const std::vector<KernelSpec> specs = {family.general(problem, target)};
  std::vector<FeatureUse> wanted(family.features().size(), FeatureUse::none);
  std::vector<double> columns(wanted.size());
  std::size_t count = 0;
  while (is_shared(family.features()[count])) wanted[count++] = FeatureUse::first;
  family.extract(problem, target, threads, specs, columns, wanted);
  columns.resize(count);
  return columns;
}

inline void expect_unique_names(const Family& family) {
  std::set<std::string_view> names;
  for (const Feature& f : family.features()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_FALSE(f.unit.empty()) << f.name;
    EXPECT_FALSE(f.formula.empty()) << f.name;
  }
}

// Whoever folds away what candidates share relies on this order.
inline void expect_shared_first(const Family& family) {
  const std::span<const Feature> all = family.features();
  EXPECT_TRUE(std::is_partitioned(all.begin(), all.end(), is_shared));
}

inline void expect_room_is_checked(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  const std::vector<KernelSpec> specs = {family.general(problem, target)};
  std::vector<double> columns(3);
  const std::string op(to_string(op_of(problem)));
  const std::string size = std::to_string(family.features().size());
  expect_error(
      ErrorCode::invalid_argument,
      op + ": features of 1 kernels take " + size + " x 1 = " + size + " numbers, got room for 3",
      [&] { family.extract(problem, target, 1, specs, columns, {}); });
  const std::vector<FeatureUse> wanted(3);
  columns.resize(family.features().size());
  expect_error(ErrorCode::invalid_argument, op + ": there are " + size + " features to want, got 3",
               [&] { family.extract(problem, target, 1, specs, columns, wanted); });
  family.extract(problem, target, 1, {}, {}, {});  // no candidates
}

// Every feature is written and finite.
inline void expect_finite(const Problem& problem, const Target& target, int threads,
                          std::span<const KernelSpec> specs) {
  const std::span<const Feature> features = family_of(problem).features();
  const std::vector<double> all = extract_all(problem, target, threads, specs);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(std::isfinite(all[i])) << features[i / specs.size()].name;
  }
}
inline void expect_finite(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const Problem p = parse_problem(line);
    family_of(p).validate(p);
    for (const std::string name : {"sm90a", "avx512"}) {
      const Target target = load_target(name);
      const std::vector<KernelSpec> specs = serving(p, target);
      ASSERT_FALSE(specs.empty()) << name;
      expect_finite(p, target, 3, specs);
    }
  }
}

// A kernel's numbers do not depend on its company, and those that candidates share are shared.
// Looks at every `step`th kernel.
inline void expect_equal_alone(const Problem& problem, const Target& target, int threads,
                               std::span<const KernelSpec> specs, std::size_t step) {
  const std::span<const Feature> features = family_of(problem).features();
  const std::vector<double> all = extract_all(problem, target, threads, specs);
  for (std::size_t i = 0; i < specs.size(); i += step) {
    const auto one = extract_all(problem, target, threads, specs.subspan(i, 1));
    for (std::size_t f = 0; f < one.size(); ++f) {
      const double value = all[f * specs.size() + i];
      ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(one[f]))
          << features[f].name << " of " << name_of(specs[i]);
      if (!is_shared(features[f])) continue;
      ASSERT_EQ(value, all[f * specs.size()]) << features[f].name;
    }
  }
}
// `draw` makes a problem. Looks at about `kernels` kernels of each, and returns how many the
// problem with the most has.
template <class Random, class Draw>
std::size_t expect_whole_columns(Random& random, const Draw& draw, int problems,
                                 std::size_t kernels) {
  std::size_t most = 0;
  for (const std::string name : {"sm90a", "avx512", "avx2", "generic"}) {
    const Target target = load_target(name);
    for (int i = 0; i < problems; ++i) {
      const Problem p = draw();
      SCOPED_TRACE(to_string(p) + " on " + name);
      const int threads = static_cast<int>(random.integer(0, 20));
      const std::vector<KernelSpec> specs = serving(p, target);
      expect_finite(p, target, threads, specs);
      expect_equal_alone(p, target, threads, specs, 1 + specs.size() / kernels);
      most = std::max(most, specs.size());
    }
  }
  return most;
}

// What is wanted has the bits that it has among all; the rest is left alone.
inline void expect_wanted(const Problem& problem, const Target& target,
                          const std::vector<FeatureUse>& wanted) {
  constexpr double kUnwritten = -7.25;
  const Family& family = family_of(problem);
  const std::vector<KernelSpec> specs = serving(problem, target);
  const std::vector<double> all = extract_all(problem, target, 3, specs);
  std::vector<double> some(all.size(), kUnwritten);
  family.extract(problem, target, 3, specs, some, wanted);
  for (std::size_t at = 0; at < all.size(); ++at) {
    const FeatureUse how = wanted[at / specs.size()];
    const bool is_written =
        how == FeatureUse::all || (how == FeatureUse::first && at % specs.size() == 0);
    ASSERT_EQ(some[at], is_written ? all[at] : kUnwritten)
        << family.features()[at / specs.size()].name;
  }
}
template <class Random, class Draw>
void expect_only_wanted(Random& random, const Draw& draw) {
  static constexpr FeatureUse kUses[] = {FeatureUse::none, FeatureUse::first, FeatureUse::all};
  for (const std::string name : {"sm90a", "avx512"}) {
    const Target target = load_target(name);
    for (int i = 0; i < 10; ++i) {
      const Problem p = draw();
      SCOPED_TRACE(to_string(p) + " on " + name);
      std::vector<FeatureUse> uses(family_of(p).features().size(), FeatureUse::none);
      if (i == 0) expect_wanted(p, target, uses);
      for (FeatureUse& use : uses) use = kUses[static_cast<std::size_t>(random.integer(0, 2))];
      expect_wanted(p, target, uses);
    }
  }
}

inline void expect_estimates(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  const std::vector<KernelSpec> specs = serving(problem, target);
  const std::vector<double> all = extract_all(problem, target, 2, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Estimate e = family.estimate(specs[i], problem, target, 2);
    const double seconds = std::max(e.seconds, tile::kLeastSeconds);
    const auto value = [&](std::string_view f) {
      return all[place_of(f, family) * specs.size() + i];
    };
    ASSERT_NEAR(value("log2_seconds"), std::log2(seconds), 1e-9);
    ASSERT_EQ(value("compute_share"), e.compute_seconds / seconds);
    ASSERT_EQ(value("memory_share"), e.memory_seconds / seconds);
    ASSERT_EQ(value("overhead_share"), e.overhead_seconds / seconds);
    ASSERT_EQ(value("estimate_utilisation"), e.utilisation);
  }
}
template <class Draw>
void expect_estimates(const Draw& draw) {
  for (const std::string name : {"sm90a", "avx512"}) {
    const Target target = load_target(name);
    for (int i = 0; i < 20; ++i) expect_estimates(draw(), target);
  }
}

}  // namespace tessera
