// A client of the installed package's tools: includes tools.hpp, links the static library, and
// verifies and measures a kernel.
#include <tessera/tools.hpp>

#include <cstdio>

int main() {
  const tessera::Problem problem = tessera::parse_problem("gemm m=40 n=50 k=60 layout=rrr");
  const auto owned = tessera::measure::random_operands(problem, 1);
  tessera::Dispatcher dispatcher;
  dispatcher.run(problem, owned.operands, {.verify = true});
  const auto timings = tessera::runtime::measure(
      {{"tessera", [&] { dispatcher.run(problem, owned.operands); }}}, {.rounds = 3});
  std::printf("verified, %g us\n", timings.front().median_seconds * 1e6);
  return timings.front().median_seconds > 0 ? 0 : 1;
}
