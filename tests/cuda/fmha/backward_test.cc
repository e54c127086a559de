// Gradients of attention on a GPU against the fp64 reference: every essential kernel on its samples,
// and any features together.
#include <gtest/gtest.h>

#include "cuda/fmha/pipelines.h"
#include "host/fmha/backward_problems.h"

namespace tessera {
namespace {

class GpuFmhaBackward : public GpuFmhaPipeline {};

TEST_F(GpuFmhaBackward, EveryEssentialKernelIsCorrectOnItsSamples) {
  std::vector<KernelSpec> specs;
  for (const KernelSpec& spec : essential(family_)) {
    if (std::get<FmhaSignature>(spec.signature).kind == FmhaKind::backward) specs.push_back(spec);
  }
  ASSERT_EQ(specs.size(), 12U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    for (const Problem& problem : family_.samples(spec, target_)) check(spec, problem);
  }
}

TEST_F(GpuFmhaBackward, AnyFeaturesTogetherAreCorrect) {
  fmha::RandomFmhas random(random_());
  for (int i = 0; i < 60; ++i) {
    const FmhaProblem p =
        fmha::random_backward(random, i % 4 == 0 ? 200 : 50, i % 8 == 0 ? 512 : 130);
    check(family_.general(p, target_), p);
  }
}

}  // namespace
}  // namespace tessera
