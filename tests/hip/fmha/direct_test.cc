// The kernels of attention for AMD GPUs that take any problem.
#include "hip/fmha/emulated_fmha.h"

namespace tessera::fmha {
namespace {

constexpr int kProblems = 12;  // of each target

using DirectFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, DirectFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(DirectFmha, ComputesAnyProblem) {
  std::vector<FmhaProblem> problems;
  while (problems.size() < kProblems) {
    FmhaProblem p = fmhas_.problem(24, 24);
    if (fmhas_.integer(0, 3) == 0) p.seqlen_k = fmhas_.integer(60, 150);
    problems.push_back(p);
  }
  check_all(problems);
}

}  // namespace
}  // namespace tessera::fmha
