#include "tessera/families/facts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "host/spec/expect_error.h"
#include "tessera/families/draw.h"
#include "tessera/families/family.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

Facts facts_of(const std::string& line) {
  const Problem problem = parse_problem(line);
  return family_of(problem).facts(problem);
}

Problem retyped(const std::string& line, const TypeWords& words) {
  const Problem problem = parse_problem(line);
  return family_of(problem).retyped(problem, words);
}

// Shipped models are filed under the types that a kernel's name begins with.
TEST(Facts, KeysAreTheTypesOfKernelNames) {
  for (const auto& [line, key] : {std::pair{"gemm m=1 n=1 k=1", "fp32"},
                                  {"gemm m=1 n=1 k=1 dtype=bf16 out=fp32 layout=ccr", "bf16"},
                                  {"gemm m=1 n=1 k=1 dtype=fp8,bf8", "fp8_bf8"},
                                  {"gemm m=1 n=1 k=1 dtype=int8 preshuffle=1", "int8"}}) {
    KernelSpec spec;
    spec.signature = signature_of(parse_problem(line));
    spec.target = "avx512";
    EXPECT_EQ(model_key(parse_problem(line)), key);
    EXPECT_EQ(model_key(spec), key);
    EXPECT_TRUE(name_of(spec).starts_with(fmt::format("gemm_{}_", key))) << name_of(spec);
  }
}

// Models of plain kernels say nothing of those with groups or scales.
TEST(Facts, KernelsWithGroupsOrScalesHaveKeysOfTheirOwn) {
  for (const auto& [line, key] :
       {std::pair{"gemm m=1 n=1 k=1 dtype=bf16 groups=2 grouping=contiguous", "bf16_grouped"},
        {"gemm m=1 n=1 k=1 dtype=bf16 groups=2 grouping=along_k", "bf16_grouped"},
        {"gemm m=1 n=1 k=1 dtype=fp8 scale_a=1x128 scale_b=128x128", "fp8_scaled"},
        {"gemm m=1 n=1 k=1 dtype=fp8,bf8 scale_a=1x32", "fp8_bf8_scaled"},
        {"gemm m=1 n=1 k=1 dtype=fp8 scale_b=1x32 groups=2 grouping=masked",
         "fp8_grouped_scaled"}}) {
    EXPECT_EQ(model_key(parse_problem(line)), key);
  }
}

TEST(Facts, LabelsOfGemm) {
  using Labels = std::vector<Label>;
  EXPECT_EQ(facts_of("gemm m=31 n=9 k=511 dtype=bf16 layout=ccr").types,
            (Labels{{"dtype", "bf16"}, {"layout", "ccr"}}));
  EXPECT_EQ(facts_of("gemm m=31 n=4096 k=511").sizes, (Labels{{"shape", "tiny"}, {"k", "short"}}));
  EXPECT_EQ(facts_of("gemm m=32 n=4096 k=512").sizes,
            (Labels{{"shape", "small"}, {"k", "medium"}}));
  EXPECT_EQ(facts_of("gemm m=256 n=4095 k=4095").sizes,
            (Labels{{"shape", "medium"}, {"k", "medium"}}));
  EXPECT_EQ(facts_of("gemm m=4096 n=4096 k=4096").sizes,
            (Labels{{"shape", "large"}, {"k", "long"}}));
}

TEST(Facts, AxesRoofAndWidthOfGemm) {
  const Facts facts = facts_of("gemm m=9 n=8 k=5 dtype=fp16");
  EXPECT_EQ(facts.axes, (std::array<Axis, 2>{Axis{"M", 9}, Axis{"N", 8}}));
  EXPECT_EQ(facts.dtype, DType::fp16);
  EXPECT_TRUE(facts.bandwidth_bound);
  EXPECT_FALSE(facts_of("gemm m=9 n=9 k=5").bandwidth_bound);

  const Target target = load_target("sm90a");
  const Problem problem = parse_problem("gemm m=9 n=8 k=5 dtype=fp16");
  const Instruction* roof = family_of(problem).roof(problem, target);
  ASSERT_NE(roof, nullptr);
  EXPECT_EQ(roof->a, DType::fp16);
  EXPECT_NEAR(peak_of(*roof, target, target.units), 989.4e12, 1e11);
}

// The side of a shape follows from m, n and k alone, and never changes: models have learned from
// one side.
TEST(Facts, SidesOfGemmShapesAreFrozen) {
  const auto unseen = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto word = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
    return mix(mix(mix(word(m)) ^ word(n)) ^ word(k)) % 3 == 0;
  };
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int others = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto size = [&] { return static_cast<std::int64_t>(random() >> (43 + random() % 21)); };
    GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rrr, size(), size(), size());
    p.batch = 1 + i % 3;
    EXPECT_EQ(is_unseen(p), unseen(p.m, p.n, p.k)) << to_string(Problem(p));
    others += is_unseen(p) ? 1 : 0;
  }
  EXPECT_GT(others, 800);
  EXPECT_LT(others, 1200);
}

TEST(Retyped, SizesAndEpilogueStay) {
  EXPECT_EQ(retyped("gemm m=1 n=2 k=3 batch=4 epilogue=bias", {"bf16", "ccr"}),
            parse_problem("gemm m=1 n=2 k=3 batch=4 dtype=bf16 layout=ccr epilogue=bias"));
  EXPECT_EQ(retyped("gemm m=1 n=2 k=3 dtype=fp16 out=fp32 layout=crr", {"", "rrr"}),
            parse_problem("gemm m=1 n=2 k=3 dtype=fp16 out=fp32 layout=rrr"));
  EXPECT_EQ(retyped("gemm m=1 n=2 k=3 layout=crr", {"int8", ""}),
            parse_problem("gemm m=1 n=2 k=3 dtype=int8 layout=crr"));
}

TEST(Retyped, IntegersWithAnEpilogueBecomeFloats) {
  EXPECT_EQ(retyped("gemm m=1 n=2 k=3 epilogue=relu", {"int8", ""}),
            parse_problem("gemm m=1 n=2 k=3 dtype=int8 out=fp32 d=fp32 epilogue=relu"));
}

TEST(Retyped, WordsThatAreNone) {
  expect_error(ErrorCode::parse_error, "unknown dtype 'fp322', did you mean 'fp32'?", [] {
    retyped("gemm m=1 n=2 k=3", {"fp322", "rcc"});
  });
  expect_error(ErrorCode::parse_error, "unknown layout 'rcc', did you mean 'rcr'?", [] {
    retyped("gemm m=1 n=2 k=3", {"", "rcc"});
  });
}

TEST(Samples, OfACpuKernelHoldNothingAtAllAndOddSizes) {
  const KernelSpec spec = parse_name("gemm_bf16_rrr_packb_240x480x256_1x1x1_12x32x2_avx512");
  const std::vector<Problem> samples = family_of(spec).samples(spec, load_target("avx512"));
  ASSERT_EQ(samples.size(), 8U);
  EXPECT_EQ(samples[1], parse_problem("gemm m=127 n=129 k=131 dtype=bf16 layout=rrr"));
  EXPECT_EQ(samples[7], parse_problem("gemm m=0 n=8 k=8 dtype=bf16 layout=rrr"));
}

TEST(Samples, EveryEssentialKernelHasSomeThatItServes) {
  const Family& family = family_of(Op::gemm);
  for (const std::string name : {"avx512", "sm90a"}) {
    const Target target = load_target(name);
    for (const std::string set : {"fp32_crr", "bf16_rcr", "fp8_rrr", "int8_ccr"}) {
      for (const KernelSpec& spec : family.preselected(set + "_essential", target)) {
        const std::vector<Problem> samples = family.samples(spec, target);
        EXPECT_FALSE(samples.empty()) << name_of(spec);
        for (const Problem& problem : samples) {
          EXPECT_EQ(family.supports(spec, problem, target).reason, "") << name_of(spec);
          EXPECT_EQ(signature_of(problem), spec.signature) << name_of(spec);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
