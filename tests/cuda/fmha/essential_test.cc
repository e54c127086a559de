// Attention on a GPU against the fp64 reference: every essential kernel on samples and on random
// problems of its signature, and what the dispatcher chooses for any features together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cuda/fmha/pipelines.h"

namespace tessera {
namespace {

class GpuFmha : public GpuFmhaPipeline {};

TEST_F(GpuFmha, EveryEssentialKernelIsCorrectOnItsSamples) {
  const std::vector<KernelSpec> specs = essential(family_);
  ASSERT_FALSE(specs.empty());
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    for (const Problem& problem : family_.samples(spec, target_)) check(spec, problem);
  }
}

TEST_F(GpuFmha, AnyFeaturesTogetherAreCorrect) {
  fmha::RandomFmhas problems(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const FmhaProblem problem = problems.problem(150, i % 8 == 0 ? 500 : 130);
    cases.push_back({family_.general(problem, target_), problem});
  }
  check_all(cases);
}

}  // namespace
}  // namespace tessera
