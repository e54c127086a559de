// What a thread remembers of legal kernels.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "asked.h"

namespace tessera {
namespace {

std::vector<KernelSpec> asked_one_by_one(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  std::vector<KernelSpec> specs = family.candidates(problem, target);
  std::erase_if(specs, [&](const KernelSpec& spec) { return !family.is_legal(spec, target); });
  return specs;
}

// More lists than a thread remembers. Problems of one signature may have different lists.
constexpr const char* kProblems[] = {
    "gemm m=64 n=64 k=64 dtype=bf16",
    "gemm m=64 n=64 k=64 dtype=bf16 epilogue=bias",
    "gemm m=999 n=77 k=33 dtype=bf16",
    "gemm m=64 n=64 k=64",
    "gemm m=64 n=64 k=64 layout=rrr",
    "route tokens=77 experts=128 top_k=8 dtype=bf16 order=1",
    "norm kind=rmsnorm rows=77 columns=4096 dtype=bf16",
    "conv direction=forward n=1 c=8 k=8 h=9 w=9",
    "conv direction=forward n=1 c=8 k=8 h=9 w=9 y=3 x=3",
    "fmha heads=2 seqlen_q=64 seqlen_k=64 hdim=64",
    "fmha kind=backward heads=1 seqlen_q=40 seqlen_k=50 hdim=24",
};

TEST(LegalCandidates, AreThoseThatIsLegalTakesInWhateverOrderListsAreAskedFor) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::vector<Target> targets = {load_target("sm90a"), load_target("avx512")};
  targets.push_back(targets[0]);  // the same name, but other limits
  targets[2].shared_memory_bytes /= 2;
  for (int i = 0; i < 60; ++i) {
    const Problem problem = parse_problem(kProblems[random() % std::size(kProblems)]);
    const Target& target = targets[random() % targets.size()];
    const auto legal = family_of(problem).legal_candidates(problem, target);
    ASSERT_EQ(legal, asked_one_by_one(problem, target)) << to_string(problem) << target.name;
    ASSERT_FALSE(legal.empty()) << to_string(problem);
    EXPECT_EQ(family_of(problem).legal_candidates(problem, target), legal) << "asked again";
  }
}

TEST(LegalCandidates, OfASmallerMachineAreFewer) {
  const Problem problem = parse_problem(kProblems[0]);
  const Target whole = load_target("sm90a");
  Target half = whole;
  half.shared_memory_bytes /= 2;
  const Family& family = family_of(problem);
  const std::size_t most = family.legal_candidates(problem, whole).size();
  EXPECT_LT(family.legal_candidates(problem, half).size(), most);
  EXPECT_EQ(family.legal_candidates(problem, whole).size(), most);
}

}  // namespace
}  // namespace tessera
