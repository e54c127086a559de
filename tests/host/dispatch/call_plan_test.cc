#include "tessera/dispatch/call_plan_internal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>

#include "targets_with.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr const char* kProblemLines[] = {
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
  for (const char* const line : kProblemLines) {
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
      if (Addresses at; rules.are_usual(operands, at)) {
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
  Addresses at;
  EXPECT_FALSE(rules.are_usual(NormOperands{}, at));
}

// Operands at multiples of kAlikeBytes. Those that are only read may share their places.
Operands placed(const Problem& problem, std::mt19937& random) {
  const Family& family = family_of(problem);
  Operands operands = no_operands(problem);
  std::uintptr_t outputs = 0;
  for (const Tensor& tensor : family.tensors(problem)) {
    if (tensor.is_empty()) continue;
    const std::uintptr_t place = tensor.is_written() ? ++outputs : 64 + random() % 4;
    const std::uintptr_t at = (place << 40U) + kAlikeBytes * (random() % 4096);
    family.set_pointer(operands, tensor.operand, reinterpret_cast<void*>(at));
  }
  return operands;
}

std::vector<KernelSpec> some_kernels(const Family& family, const Target& target,
                                     std::mt19937& random) {
  std::vector<KernelSpec> specs = family.enumerate(target, {});
  std::shuffle(specs.begin(), specs.end(), random);
  specs.resize(std::min<std::size_t>(specs.size(), 15));
  return specs;
}

// Leaves other bytes where the next call keeps its variables. Two launches with bytes that nobody
// set then differ.
[[gnu::noinline]] void dirty_the_stack(std::mt19937& random) {
  std::array<std::byte, std::size_t{1} << 15U> bytes;
  volatile std::byte* const at = bytes.data();
  const auto value = static_cast<std::byte>(random());
  for (std::size_t i = 0; i < bytes.size(); ++i) at[i] = value;
}

// Expects that the launches are planned, and that a planned launch is the one that bind() makes.
void expect_planned(const ReadyKernel& kernel, const Problem& problem, std::mt19937& random) {
  const std::string where = name_of(kernel.spec) + ": " + to_string(problem);
  const PointerRules rules(*kernel.family, problem);
  const std::optional<LaunchPlan> plan = LaunchPlan::of(kernel, problem, rules);
  ASSERT_TRUE(plan) << where;
  if (rules.size() == 0) {  // nothing is written, so that no address matters
    ASSERT_TRUE(plan->launch_at({}).steps.empty()) << where;
    return;
  }
  for (int i = 0; i < 3; ++i) {
    const Operands operands = placed(problem, random);
    Addresses at;
    ASSERT_TRUE(rules.are_usual(operands, at)) << where;
    ASSERT_TRUE(plan->serves(at)) << where;
    const Launch planned = plan->launch_at(at);
    dirty_the_stack(random);
    ASSERT_TRUE(planned == launch_of(kernel, problem, operands)) << where;
  }
}

TEST(LaunchPlan, IsTheLaunchOfEveryWayWhereverOperandsLie) {
  const auto seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (const Family* const family : all_families()) {
    for (const std::string& name : targets_with(family->op)) {
      const Target target = load_target(name);
      for (const KernelSpec& spec : some_kernels(*family, target, random)) {
        ReadyKernel kernel{.family = family, .target = &target, .spec = spec};
        kernel.worth_threads = static_cast<int>(random() % 3);
        for (const Problem& problem : family->samples(spec, target)) {
          expect_planned(kernel, problem, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(LaunchPlan, ServesNoOperandBetweenMultiples) {
  const Problem problem = parse_problem("gemm m=4 n=6 k=5");
  const PointerRules rules(family_of(problem), problem);
  const Target target = load_target("avx2");
  const KernelSpec spec = family_of(problem).general(problem, target);
  const auto plan = LaunchPlan::of({.family = &family_of(problem), .target = &target, .spec = spec},
                                   problem, rules);
  ASSERT_TRUE(plan);
  const auto serves = [&](std::uintptr_t b) {
    Addresses at;
    const GemmOperands operands = {.a = reinterpret_cast<void*>(4096),
                                   .b = reinterpret_cast<void*>(b),
                                   .out = reinterpret_cast<void*>(16384)};
    return rules.are_usual(operands, at) && plan->serves(at);
  };
  EXPECT_TRUE(serves(8192 + kAlikeBytes));
  EXPECT_FALSE(serves(8192 + kAlikeBytes / 2));
}

}  // namespace
}  // namespace tessera
