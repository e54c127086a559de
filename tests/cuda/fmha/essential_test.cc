// Attention on a GPU against the fp64 reference: every essential kernel on samples and on random
// problems of its signature, and what the dispatcher chooses for any features together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "cuda/gpu_test.h"
#include "host/fmha/fmha_problems.h"

namespace tessera {
namespace {

class GpuFmha : public GpuTest {
 protected:
  void check(const std::string& kernel, const Problem& problem) {
    check_twice(kernel, problem, expect_correct);
  }

  const Family& family_ = family_of(Op::fmha);
};

TEST_F(GpuFmha, EveryEssentialKernelIsCorrectOnItsSamples) {
  const std::vector<KernelSpec> specs = essential(family_);
  ASSERT_FALSE(specs.empty());
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    for (const Problem& problem : family_.samples(spec, target_)) check(name_of(spec), problem);
  }
}

TEST_F(GpuFmha, AnyFeaturesTogetherAreCorrect) {
  fmha::RandomFmhas problems(random_());
  for (int i = 0; i < 60; ++i) {
    const FmhaProblem problem = problems.problem(150, i % 8 == 0 ? 500 : 130);
    check(name_of(family_.general(problem, target_)), problem);
  }
}

}  // namespace
}  // namespace tessera
