// The kernels of attention for AMD GPUs that take any problem.
#include "hip/fmha/emulated_fmha.h"

namespace tessera::fmha {
namespace {

constexpr std::size_t kProblems = 6, kMoreProblems = 12;  // of a target in usual runs and others
constexpr std::array kAllTypes = {DType::fp32, DType::fp16, DType::bf16, DType::fp8, DType::bf8};

using DirectFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, DirectFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(DirectFmha, ComputesAnyProblem) {
  check_all(drawn(kProblems, kMoreProblems, kAllTypes, [&] {
    FmhaProblem p = fmhas_.problem(24, 24);
    if (fmhas_.integer(0, 3) == 0) p.seqlen_k = fmhas_.integer(60, 150);
    return p;
  }));
}

}  // namespace
}  // namespace tessera::fmha
