// Appending to a cache on a GPU against the fp64 reference: every essential kernel on its samples,
// and any features together; what is not to be written keeps its bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"
#include "host/fmha/append_problems.h"

namespace tessera {
namespace {

class GpuFmhaAppend : public GpuTest {
 protected:
  void check(const KernelSpec& spec, const Problem& problem) {
    check_twice(name_of(spec), problem, [](const Problem& p, const measure::OwnedOperands& owned) {
      EXPECT_EQ(fmha::changed_elsewhere(with_strides(std::get<FmhaProblem>(p)), owned), 0);
      expect_correct(p, owned);
    });
  }
  const Family& family_ = family_of(Op::fmha);
};

TEST_F(GpuFmhaAppend, EveryEssentialKernelIsCorrectOnItsSamples) {
  std::vector<KernelSpec> specs;
  for (const KernelSpec& spec : essential(family_)) {
    if (std::get<FmhaSignature>(spec.signature).kind == FmhaKind::append) specs.push_back(spec);
  }
  ASSERT_EQ(specs.size(), 9U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    for (const Problem& problem : family_.samples(spec, target_)) check(spec, problem);
  }
}

TEST_F(GpuFmhaAppend, AnyFeaturesTogetherAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<FmhaProblem> problems;
  std::vector<KernelSpec> specs;
  for (int i = 0; i < 60; ++i) {
    problems.push_back(fmha::random_append(random, i % 4 == 0 ? 200 : 12, i % 8 == 0 ? 500 : 130));
    specs.push_back(family_.general(problems.back(), target_));
  }
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (std::size_t i = 0; i < specs.size(); ++i) check(specs[i], problems[i]);
}

}  // namespace
}  // namespace tessera
