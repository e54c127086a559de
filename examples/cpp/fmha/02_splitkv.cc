// Split-KV: a new token against a long cache, whose keys are cut into parts that are computed side
// by side and merged. The library does it in one launch; here it is done by hand, too, from two
// halves and their log-sum-exps.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t kTokenHeads = 8, kCacheHeads = 2, kCacheKeys = 4096, kCacheHdim = 64;
using CacheFloats = std::vector<float>;

CacheFloats draw_cache(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  CacheFloats all(static_cast<std::size_t>(count));
  for (float& x : all) x = normal(random);
  return all;
}

struct AttendedPart {
  CacheFloats out = CacheFloats(kTokenHeads * kCacheHdim), lse = CacheFloats(kTokenHeads);
};

double largest_difference(const CacheFloats& a, const CacheFloats& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double(a[i]) - b[i]));
  return most;
}

// A part counts as much as its weights are of all weights.
AttendedPart merged(const AttendedPart& a, const AttendedPart& b) {
  AttendedPart both;
  for (std::size_t i = 0; i < both.out.size(); ++i) {
    const std::size_t head = i / kCacheHdim;
    const double of_a = 1 / (1 + std::exp(double(b.lse[head]) - a.lse[head]));
    both.out[i] = float(of_a * a.out[i] + (1 - of_a) * b.out[i]);
    both.lse[head] = float(a.lse[head] - std::log(of_a));
  }
  return both;
}

}  // namespace

int main() {
  const CacheFloats q = draw_cache(kTokenHeads * kCacheHdim, 1);
  const CacheFloats k = draw_cache(kCacheKeys * kCacheHeads * kCacheHdim, 2),
                    v = draw_cache(kCacheKeys * kCacheHeads * kCacheHdim, 3);
  tessera::Dispatcher dispatcher;
  const auto attend = [&](std::int64_t first, std::int64_t keys, std::int64_t parts) {
    tessera::FmhaProblem problem = tessera::fmha_problem(tessera::DType::fp32, 1, kTokenHeads,
                                                         kCacheHeads, 1, keys, kCacheHdim);
    problem.lse = true;
    problem.num_splits = parts;  // 0: as suits the machine
    const std::int64_t at = first * kCacheHeads * kCacheHdim;
    AttendedPart result;
    dispatcher.run(problem, tessera::FmhaOperands{.q = q.data(),
                                                  .k = k.data() + at,
                                                  .v = v.data() + at,
                                                  .out = result.out.data(),
                                                  .lse = result.lse.data()});
    const tessera::Stage stage = dispatcher.plan(problem).stages.back();
    std::printf("%5lld keys in %2lld parts (asked for %lld): stage '%s' of %s\n",
                static_cast<long long>(keys), static_cast<long long>(stage.parts),
                static_cast<long long>(parts), stage.name.c_str(), stage.entry.c_str());
    return result;
  };

  const AttendedPart whole = attend(0, kCacheKeys, 1);
  bool right = true;
  for (const std::int64_t parts : {0, 2, 8}) {
    right = largest_difference(attend(0, kCacheKeys, parts).out, whole.out) < 1e-5 && right;
  }
  const AttendedPart halves = merged(attend(0, 1000, 1), attend(1000, kCacheKeys - 1000, 1));
  const double of_out = largest_difference(halves.out, whole.out);
  const double of_lse = largest_difference(halves.lse, whole.lse);
  std::printf("merged by hand: out differs by %.1e, lse by %.1e\n", of_out, of_lse);
  return right && of_out < 1e-5 && of_lse < 1e-5 ? 0 : 1;
}
