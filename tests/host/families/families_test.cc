#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/families/rule_counts.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

TEST(Families, AreListed) {
  ASSERT_EQ(all_families().size(), 5U);
  for (const Op op : {Op::gemm, Op::norm, Op::conv, Op::fmha, Op::route}) {
    EXPECT_EQ(family_of(op).op, op);
    EXPECT_EQ(all_families()[static_cast<std::size_t>(op)], &family_of(op));
  }
}

TEST(Families, ProblemAndSpecNameTheirFamily) {
  EXPECT_EQ(&family_of(Problem{GemmProblem{}}), &family_of(Op::gemm));
  EXPECT_EQ(&family_of(KernelSpec{}), &family_of(Op::gemm));
}

TEST(Families, TheFirstWordNamesTheFamily) {
  const Family* const gemm = &family_of(Op::gemm);
  EXPECT_EQ(find_family("gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512"), gemm);
  EXPECT_EQ(find_family("gemm m=1 n=2 k=3"), gemm);
  EXPECT_EQ(find_family("gemm"), gemm);
  for (const char* other : {"", "gemms m=1", "fmhas_fp32", "_gemm"}) {
    EXPECT_EQ(find_family(other), nullptr) << other;
  }
}

TEST(Families, EmitOnlyWhatIsLegal) {
  const Target target = load_target("avx512");
  const std::string legal = "gemm_fp32_rrr_packb_192x960x256_1x1x1_12x32x1_avx512";
  EXPECT_EQ(emit_legal(parse_name(legal), target).name, legal);
  const KernelSpec illegal = parse_name("gemm_fp32_rrr_packb_193x960x256_1x1x1_12x32x1_avx512");
  try {
    emit_legal(illegal, target);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::illegal_spec);
    EXPECT_EQ(error.what(),
              name_of(illegal) + ": " + family_of(illegal).is_legal(illegal, target).reason);
  }
}

TEST(Refusals, RuleIsTheSentenceWithoutItsNumbers) {
  EXPECT_EQ(rule_of("tile 64x128x8 takes 3 stages of k=64 (1024 bytes), bf16 on sm90a has 2"),
            "tile #x#x# takes # stages of k=# (# bytes), bf16 on sm90a has #");
  EXPECT_EQ(rule_of(""), "");
  EXPECT_EQ(rule_of("12"), "#");
}

TEST(Refusals, CountsByRuleTheMostFrequentFirst) {
  const std::vector<std::string_view> reasons = {"needs 4 of 3", "got x", "needs 12 of 3", "got y"};
  const std::vector<RefusalCount> rows = count_by_rule(reasons);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].count, 2U);
  EXPECT_EQ(rows[0].example, 0U);
  EXPECT_EQ(rows[1].count, 1U);
  EXPECT_EQ(rows[2].count, 1U);
}

}  // namespace
}  // namespace tessera
