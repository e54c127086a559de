// The kernels of AMD GPUs that append to a cache, and those that then attend to it.
#include "hip/fmha/emulated_fmha.h"
#include "host/fmha/append_problems.h"
#include "host/fmha/extend_problems.h"

namespace tessera::fmha {
namespace {

// Problems of a target, in usual runs and in others.
constexpr std::size_t kAppends = 3, kMoreAppends = 8, kExtends = 3, kMoreExtends = 6;

using AppendFmha = EmulatedFmha;
INSTANTIATE_TEST_SUITE_P(Targets, AppendFmha,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(AppendFmha, AppendsToAnyCache) {
  check_all(drawn(kAppends, kMoreAppends, kTypes, [&] { return random_append(fmhas_, 12, 40); }));
}

TEST_P(AppendFmha, AppendsAndAttends) {
  check_all(drawn(kExtends, kMoreExtends, kTypes, [&] { return random_extend(fmhas_, 16, 24); }));
}

}  // namespace
}  // namespace tessera::fmha
