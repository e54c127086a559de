// The kernels of AMD GPUs that append to a cache, and those that then attend to it.
#include "hip/fmha/emulated_fmha.h"
#include "host/fmha/append_problems.h"
#include "host/fmha/extend_problems.h"

namespace tessera::fmha {
namespace {

constexpr int kAppends = 8, kExtends = 6;  // of each target

using AppendFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, AppendFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(AppendFmha, AppendsToAnyCache) {
  std::vector<FmhaProblem> problems;
  while (problems.size() < kAppends) problems.push_back(random_append(fmhas_, 12, 40));
  check_all(problems);
}

TEST_P(AppendFmha, AppendsAndAttends) {
  std::vector<FmhaProblem> problems;
  while (problems.size() < kExtends) problems.push_back(random_extend(fmhas_, 16, 24));
  check_all(problems);
}

}  // namespace
}  // namespace tessera::fmha
