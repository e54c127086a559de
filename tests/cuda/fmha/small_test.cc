// Every essential kernel of attention on one small problem: little enough for compute-sanitizer,
// which makes kernels a hundred times slower. tools/gpu_check.sh runs it there.
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"

namespace tessera {
namespace {

class GpuFmhaSmall : public GpuTest {};

TEST_F(GpuFmhaSmall, EveryEssentialKernel) {
  const Family& family = family_of(Op::fmha);
  check_small(family, essential(family));
}

}  // namespace
}  // namespace tessera
