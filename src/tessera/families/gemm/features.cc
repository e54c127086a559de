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

}  // namespace

std::span<const Feature> features() { return kFeatures; }

// No feature describes the cost of reading pointers first, or of batches at arbitrary addresses.
Verdict features_fit(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  if (p.grouping == GemmGrouping::lists) return {"no feature describes sizes of each group's own"};
  if (p.gate != GemmGate::none) return {"no feature describes gates"};
  if (p.indexing != GemmIndexing::none) return {"no feature describes rows by index"};
  if (p.quant != NormQuant::none) return {"no feature describes quantised outputs"};
  if (is_arranged(p)) return {"no feature describes arranged operands"};
  if (!p.pointer_arrays) return {};
  return {"no feature describes pointer_arrays"};
}

// A spec says its pipeline and not its backend, so that every row of the pipeline is asked.
bool is_described(const KernelSpec& spec) {
  const Algorithm& a = spec.algorithm;
  const auto ways = Types::ways();
  return std::all_of(ways.begin(), ways.end(), [&](const Way* way) {
    return way->pipeline != a.pipeline || way->own.is_described == nullptr ||
           way->own.is_described(a);
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
      std::copy_n(lanes->of[wish.feature - kFirstLane], std::min(count, wish.count - begin), to);
    }
  }
}

}  // namespace tessera::gemm
