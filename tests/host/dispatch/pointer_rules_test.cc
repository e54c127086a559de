#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/dispatch/pointer_rules_internal.h"

namespace tessera {
namespace {

constexpr const char* kProblems[] = {
    "gemm m=4 n=6 k=5",
    "gemm m=4 n=6 k=5 ld_out=9 beta=1 epilogue=bias+add+relu",
    "gemm m=3 n=2 k=4 batch=3 pointer_arrays=1",
    "gemm m=0 n=6 k=5",
    "gemm m=4 n=6 k=0",
    "norm kind=softmax rows=3 columns=8",
    "conv direction=forward n=1 c=2 k=3 h=5 w=5 y=3 x=3",
    "fmha batch=1 heads=2 seqlen_q=3 seqlen_k=4 hdim=8 dtype=bf16",
};

bool are_allowed(const Family& family, const Problem& problem, const Operands& operands) {
  try {
    validate_operands(family, problem, operands);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Tensors lie at random in few bytes, so that they overlap, are misaligned or missing, or are not.
TEST(PointerRules, AreUsualOnlyWhereEveryRuleHolds) {
  const auto seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  int usual = 0;
  int allowed = 0;
  int refused = 0;
  for (const char* const line : kProblems) {
    const Problem problem = parse_problem(line);
    const Family& family = family_of(problem);
    const PointerRules rules(family, problem);
    for (int i = 0; i < 3000; ++i) {
      Operands operands = no_operands(problem);
      for (const Tensor& tensor : family.tensors(problem)) {
        const std::uintptr_t step = random() % 8 == 0 ? 1 : 8;
        const std::uintptr_t at = random() % 16 == 0 ? 0 : 4096 + step * (random() % 512);
        family.set_pointer(operands, tensor.operand, reinterpret_cast<void*>(at));
      }
      const bool is_allowed = are_allowed(family, problem, operands);
      if (rules.are_usual(operands)) {
        ++usual;
        EXPECT_TRUE(is_allowed) << line << ", seed " << seed;
      }
      ++(is_allowed ? allowed : refused);
    }
  }
  EXPECT_GT(usual, allowed / 2);
  EXPECT_GT(refused, 1000);
}

TEST(PointerRules, AreNotThoseOfAnotherOperation) {
  const Problem problem = parse_problem("gemm m=4 n=6 k=5");
  const PointerRules rules(family_of(problem), problem);
  EXPECT_FALSE(rules.are_usual(NormOperands{}));
}

}  // namespace
}  // namespace tessera
