// The kernels of AMD GPUs that compute the gradients of any attention.
#include "hip/fmha/emulated_fmha.h"
#include "host/fmha/backward_problems.h"

namespace tessera::fmha {
namespace {

constexpr int kGradientProblems = 6;  // of each target

using BackwardFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, BackwardFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(BackwardFmha, ComputesAnyGradients) {
  std::vector<FmhaProblem> problems;
  while (problems.size() < kGradientProblems) problems.push_back(random_backward(fmhas_, 20, 20));
  check_all(problems);
}

}  // namespace
}  // namespace tessera::fmha
