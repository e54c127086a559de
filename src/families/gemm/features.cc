#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/families/gemm/features_internal.h"

namespace tessera::gemm {
namespace {

void check_size(std::size_t specs, std::size_t given) {
  if (given == kNumFeatures * specs) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("gemm: features of {} kernels take {} x {} = {} numbers, got room for {}",
                          specs, kNumFeatures, specs, kNumFeatures * specs, given));
}

}  // namespace

std::span<const Feature> features() { return kFeatures; }

// No feature says what an address that is read first costs, or batches that lie anywhere.
Verdict features_fit(const Problem& problem) {
  if (!std::get<GemmProblem>(problem).pointer_arrays) return {};
  return {"no feature describes pointer_arrays"};
}

void extract(const Problem& problem, const Target& target, int threads,
             std::span<const KernelSpec> specs, std::span<double> columns) {
  check_size(specs.size(), columns.size());
  if (specs.empty()) return;
  const Facts facts = facts_of(std::get<GemmProblem>(problem), target, threads);
  const Broadcast same = broadcast_of(facts);
  for (std::size_t f = 0; f < kFirstLane; ++f) {
    std::fill_n(columns.data() + f * specs.size(), specs.size(), same[f]);
  }
  const auto lanes = std::make_unique_for_overwrite<Lanes>();
  for (std::size_t begin = 0; begin < specs.size(); begin += kLanes) {
    const std::size_t count = std::min(kLanes, specs.size() - begin);
    gather(facts, specs.subspan(begin, count), *lanes);
    fill(facts, *lanes);
    for (std::size_t f = 0; f < kNumLanes; ++f) {
      double* to = columns.data() + (kFirstLane + f) * specs.size() + begin;
      std::copy_n(lanes->of[f], count, to);
    }
  }
}

}  // namespace tessera::gemm
