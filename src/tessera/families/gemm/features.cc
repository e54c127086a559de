#include <algorithm>
#include <memory>

#include "tessera/families/gemm/features_internal.h"
#include "tessera/families/tile/features.h"

namespace tessera::gemm {
namespace {

struct WantedFeature {
  std::size_t feature;
  std::size_t count;  // of candidates
};

std::vector<WantedFeature> wanted_features(std::span<const FeatureUse> wanted, std::size_t begin,
                                           std::size_t end, std::size_t specs) {
  std::vector<WantedFeature> list;
  list.reserve(end - begin);
  for (std::size_t f = begin; f < end; ++f) {
    const std::size_t count = tile::wanted_count(Op::gemm, wanted, f, specs);
    if (count > 0) list.push_back({f, count});
  }
  return list;
}

// Out of line, where the compiler does not know how short lanes are: it would copy them by a string
// instruction, which takes as long as computing them.
[[gnu::noinline]] void copy_lane(double* to, const double* from, std::size_t count) {
  std::copy_n(from, count, to);
}

}  // namespace

std::span<const Feature> features() { return kFeatures; }

// No feature describes the cost of reading pointers first, or of batches at arbitrary addresses.
Verdict features_fit(const Problem& problem) {
  if (!std::get<GemmProblem>(problem).pointer_arrays) return {};
  return {"no feature describes pointer_arrays"};
}

// A spec says its pipeline and not its backend, so that every row of the pipeline is asked.
bool is_described(const KernelSpec& spec) {
  static const std::vector<const Way*> asked = [] {
    std::vector<const Way*> those;
    for (const Way* way : Types::ways()) {
      if (way->own.is_described != nullptr) those.push_back(way);
    }
    return those;
  }();
  const Algorithm& a = spec.algorithm;
  return std::all_of(asked.begin(), asked.end(), [&](const Way* way) {
    return way->pipeline != a.pipeline || way->own.is_described(a);
  });
}

void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns,
             std::span<const FeatureUse> wanted) {
  tile::check_features(Op::gemm, kNumFeatures, specs.size(), columns.size(), wanted.size());
  if (specs.empty()) return;
  const Facts facts = facts_of(std::get<GemmProblem>(problem), target, threads);
  const Broadcast same = broadcast_of(facts);
  for (const WantedFeature& wish : wanted_features(wanted, 0, kFirstLane, specs.size())) {
    std::fill_n(columns.data() + wish.feature * specs.size(), wish.count, same[wish.feature]);
  }
  const std::vector<WantedFeature> differing =
      wanted_features(wanted, kFirstLane, kNumFeatures, specs.size());
  if (differing.empty()) return;
  const auto lanes = std::make_unique_for_overwrite<Lanes>();
  for (std::size_t begin = 0; begin < specs.size(); begin += kLanes) {
    const std::size_t count = std::min(kLanes, specs.size() - begin);
    gather(facts, specs.subspan(begin, count), *lanes);
    fill(facts, *lanes);
    for (const WantedFeature& wish : differing) {
      if (begin >= wish.count) continue;
      double* to = columns.data() + wish.feature * specs.size() + begin;
      copy_lane(to, lanes->of[wish.feature - kFirstLane], std::min(count, wish.count - begin));
    }
  }
}

}  // namespace tessera::gemm
