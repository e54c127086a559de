// Appending to a cache on a GPU against the fp64 reference: every essential kernel on its samples,
// and any features together; what is not to be written keeps its bytes, and of several tokens that
// one place gets it holds one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"
#include "host/fmha/append_problems.h"
#include "host/fmha/plain_append.h"

namespace tessera {
namespace {

class GpuFmhaAppend : public GpuTest {
 protected:
  void check(const KernelSpec& spec, const Problem& problem) {
    const auto correct = [](const Problem& p, const measure::OwnedOperands& owned) {
      const FmhaProblem full = with_strides(std::get<FmhaProblem>(p));
      EXPECT_EQ(fmha::changed_elsewhere(full, owned), 0);
      expect_correct(p, owned);
      if (has_certain_places(p, owned)) return;
      EXPECT_EQ(fmha::held_of_no_token(full, owned), 0);
    };
    check_twice(name_of(spec), problem, correct, has_certain_places);
  }
  static bool has_certain_places(const Problem& p, const measure::OwnedOperands& owned) {
    return !fmha::shares_places(with_strides(std::get<FmhaProblem>(p)),
                                std::get<FmhaOperands>(owned.operands));
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

// All sequences have one page, whose places they all write.
TEST_F(GpuFmhaAppend, SharedPlacesHoldOneOfTheirTokens) {
  std::vector<FmhaProblem> problems;
  std::vector<KernelSpec> specs;
  for (const char* words : {"pages=table page_size=16 rotary=half rotate_q=1 dtype=bf16",
                            "pages=list page_size=8 cache_layout=vectorized dtype=fp16",
                            "pages=table page_size=5 rotary=interleaved lengths=padded"}) {
    problems.push_back(std::get<FmhaProblem>(parse_problem(
        fmt::format("fmha kind=append batch=40 heads=4 heads_kv=2 seqlen_q=30 seqlen_k=60 hdim=64 "
                    "num_pages=1 {}",
                    words))));
    specs.push_back(family_.general(problems.back(), target_));
  }
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (std::size_t i = 0; i < specs.size(); ++i) check(specs[i], problems[i]);
}

}  // namespace
}  // namespace tessera
