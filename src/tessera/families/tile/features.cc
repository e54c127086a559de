#include "tessera/families/tile/features.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"

namespace tessera::tile {
namespace {

using enum FeatureGroup;
constexpr std::array kUsual = {
    Feature{"first_size", "1", "the size of the chart's rows", problem},
    Feature{"second_size", "1", "the size of the chart's columns", problem},
    Feature{"types", "code", "the class of the problem's second label of types", problem},
    Feature{"bytes", "bytes", "least traffic", problem},
    Feature{"tile_m", "1", "tile_m", kernel},
    Feature{"tile_n", "1", "tile_n", kernel},
    Feature{"wave_m", "1", "wave_m", kernel},
    Feature{"wave_n", "1", "wave_n", kernel},
    Feature{"slices", "1", "slices", kernel},
    Feature{"estimate", "seconds", "predicted time", interaction},
    Feature{"units", "1", "units in use", hardware},
};

struct Case {
  const Problem& problem;
  const Target& target;
  int threads;
  const Family& family;
  const Facts& facts;
};

// A number for a word, the same on every machine.
double code_of(std::string_view word) {
  double code = 0;
  for (const char letter : word.substr(0, 6)) code = 32 * code + letter % 32;
  return code;
}

// In the order of kUsual.
constexpr std::array<double (*)(const Case&, const KernelSpec&), kUsual.size()> kValues = {
    [](const Case& c, const KernelSpec&) { return double(c.facts.axes[0].size); },
    [](const Case& c, const KernelSpec&) { return double(c.facts.axes[1].size); },
    [](const Case& c, const KernelSpec&) { return code_of(c.facts.types.back().value); },
    [](const Case& c, const KernelSpec&) { return c.family.bytes(c.problem); },
    [](const Case&, const KernelSpec& spec) { return double(spec.algorithm.tile.m); },
    [](const Case&, const KernelSpec& spec) { return double(spec.algorithm.tile.n); },
    [](const Case&, const KernelSpec& spec) { return double(spec.algorithm.wave.m); },
    [](const Case&, const KernelSpec& spec) { return double(spec.algorithm.wave.n); },
    [](const Case&, const KernelSpec& spec) { return double(spec.algorithm.slices); },
    [](const Case& c, const KernelSpec& spec) {
      return c.family.estimate(spec, c.problem, c.target, c.threads).seconds;
    },
    [](const Case& c, const KernelSpec&) { return double(units_used(c.threads, c.target)); },
};

}  // namespace

void check_features(Op op, std::size_t features, std::size_t specs, std::size_t room,
                    std::size_t wanted) {
  if (room != features * specs) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: features of {} kernels take {} x {} = {} numbers, got room for {}",
                            to_string(op), specs, features, specs, features * specs, room));
  }
  if (wanted == 0 || wanted == features) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: there are {} features to want, got {}",
                                                       to_string(op), features, wanted));
}

std::size_t wanted_count(Op op, std::span<const FeatureUse> wanted, std::size_t feature,
                         std::size_t specs) {
  const FeatureUse how = wanted.empty() ? FeatureUse::all : wanted[feature];
  if (how > FeatureUse::all) {
    check_enum(fmt::format("{}: use of a feature", to_string(op)), how, FeatureUse::all);
  }
  return how == FeatureUse::none ? 0 : how == FeatureUse::first ? 1 : specs;
}

std::span<const Feature> usual_features() { return kUsual; }

void extract_usual(const Problem& problem, const Target& target, int threads,
                   std::span<const KernelSpec> specs, std::span<double> columns,
                   std::span<const FeatureUse> wanted) {
  const Family& family = family_of(problem);
  check_features(family.op, kUsual.size(), specs.size(), columns.size(), wanted.size());
  const Facts facts = family.facts(problem);
  if (specs.empty()) return;
  const Case c = {problem, target, threads, family, facts};
  for (std::size_t f = 0; f < kValues.size(); ++f) {
    const FeatureUse use = wanted.empty() ? FeatureUse::all : wanted[f];
    if (use == FeatureUse::none) continue;
    for (std::size_t i = 0; i < (use == FeatureUse::first ? 1 : specs.size()); ++i) {
      columns[f * specs.size() + i] = kValues[f](c, specs[i]);
    }
  }
}

}  // namespace tessera::tile
