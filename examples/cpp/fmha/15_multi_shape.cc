// From a single new token to a long prompt, with heads of several lengths: the kernel that is
// chosen for each shape, its time, and its result verified. TESSERA_TARGET=sm90a measures on a GPU.
#include <tessera/tools.hpp>

#include <cstdio>

namespace {

struct Shape {
  std::int64_t batch, heads, heads_kv, queries, keys, hdim;
};
constexpr Shape kShapes[] = {{1, 8, 8, 1, 512, 64},    {4, 8, 1, 1, 256, 128},
                             {2, 8, 2, 4, 200, 64},    {2, 12, 12, 64, 64, 64},
                             {1, 4, 2, 96, 128, 128},  {1, 2, 2, 100, 100, 40},
                             {1, 4, 1, 128, 128, 256}, {1, 3, 3, 33, 65, 8}};

// Verified once, then timed.
double seconds_of(tessera::Dispatcher& dispatcher, const tessera::Problem& problem) {
  const tessera::runtime::Place place{&tessera::runtime::backend_for(dispatcher.target()), {}};
  const auto owned = tessera::measure::random_operands(problem, 42);
  const auto placed = tessera::measure::place_operands(owned, place);
  tessera::RunOptions run;
  run.verify = true;  // throws unless every element is within its tolerance
  dispatcher.run(problem, placed.operands, run);
  const auto call = [&] { dispatcher.run(problem, placed.operands); };
  return tessera::runtime::measure({{"fmha", call}}, {.rounds = 3}, place).front().median_seconds;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const bool on_gpu = tessera::is_gpu(dispatcher.target());
  const std::int64_t longer = on_gpu ? 16 : 1;
  const tessera::DType dtype = on_gpu ? tessera::DType::bf16 : tessera::DType::fp32;
  std::printf("%6s %8s %8s %6s %5s %10s %10s  kernel\n", "batch", "queries", "keys", "heads",
              "hdim", "us", "GFLOP/s");
  for (const auto& [batch, heads, heads_kv, queries, keys, hdim] : kShapes) {
    tessera::FmhaProblem problem = tessera::fmha_problem(
        dtype, batch, heads, heads_kv, queries == 1 ? 1 : queries * longer, keys * longer, hdim);
    problem.mask = tessera::FmhaMask::bottom_right;
    const double seconds = seconds_of(dispatcher, problem);
    std::printf("%6lld %8lld %8lld %3lld/%-2lld %5lld %10.1f %10.2f  %s\n",
                static_cast<long long>(batch), static_cast<long long>(problem.seqlen_q),
                static_cast<long long>(problem.seqlen_k), static_cast<long long>(heads),
                static_cast<long long>(heads_kv), static_cast<long long>(hdim), seconds * 1e6,
                tessera::flops_of(problem) / seconds / 1e9,
                dispatcher.kernel_for(problem).name.c_str());
    if (!(seconds > 0)) return 1;
  }
  return 0;
}
