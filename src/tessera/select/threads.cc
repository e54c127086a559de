// How many threads of a CPU a call is worth.
#include <algorithm>

#include "tessera/families/family.h"
#include "tessera/select/select.h"

namespace tessera {
namespace {

// What a team costs at least, as a share of the target's launch_us. With it two of 120 short calls
// were more than 5% slower on two threads, see docs/performance/cpu_small_gemm.md. Some families'
// estimates count it for one thread too, so that it is taken from here.
constexpr double kTeamShare = 0.75;

// The estimates' cost of a team does not grow with the team. Each further thread reads a line of
// memory that another core wrote, and writes one, when the team starts and again when it ends.
// Nominal: four times the 25 ns in which neighbouring cores exchange a line; not measured.
constexpr double kThreadSeconds = 0.1e-6;

// Fewer threads win where more are faster by less than this share: a team waits for its last
// thread, which other programs may have interrupted.
constexpr double kGain = 0.05;

// Steps of about a half, the last one to the limit.
int next_count(int threads, int limit) {
  const int next = threads < 4 ? threads + 1 : threads + threads / 2;
  return threads >= 4 && next > limit / 4 * 3 ? limit : std::min(next, limit);
}

}  // namespace

int worth_threads(const KernelSpec& spec, const Problem& problem, const Target& target, int limit) {
  if (limit <= 1) return 1;
  const Family& family = family_of(spec);
  const auto estimate = [&](int threads) {
    return family.estimate(spec, problem, target, threads);
  };
  const double alone = estimate(1).overhead_seconds;
  const auto seconds = [&](int threads) {
    const Estimate e = estimate(threads);
    const double work = std::max(e.compute_seconds, e.memory_seconds);
    if (threads == 1) return work;
    const double team = std::max(kTeamShare * target.launch_us * 1e-6, e.overhead_seconds - alone);
    return work + team + kThreadSeconds * (threads - 2);
  };
  int best = 1;
  double least = seconds(1);
  for (int threads = 1; threads < limit;) {
    threads = next_count(threads, limit);
    const double here = seconds(threads);
    if (here * (1 + kGain) > least) continue;
    best = threads;
    least = here;
  }
  return best;
}

}  // namespace tessera
