// The kernels of AMD GPUs that compute the gradients of any attention.
#include "hip/fmha/emulated_fmha.h"
#include "host/fmha/backward_problems.h"

namespace tessera::fmha {
namespace {

// Problems of a target, in usual runs and in others.
constexpr std::size_t kGradientProblems = 3, kMoreGradients = 6;

using BackwardFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, BackwardFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(BackwardFmha, ComputesAnyGradients) {
  check_all(drawn(kGradientProblems, kMoreGradients, kTypes,
                  [&] { return random_backward(fmhas_, 20, 20); }));
}

}  // namespace
}  // namespace tessera::fmha
