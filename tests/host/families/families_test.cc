#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

std::string refusal(Op op) {
  try {
    family_of(op);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

TEST(Families, GemmIsListed) {
  ASSERT_EQ(all_families().size(), 1U);
  EXPECT_EQ(all_families().front(), &family_of(Op::gemm));
  EXPECT_EQ(family_of(Op::gemm).op, Op::gemm);
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
  for (const char* other : {"", "gemms m=1", "conv_fp32", "_gemm"}) {
    EXPECT_EQ(find_family(other), nullptr) << other;
  }
}

TEST(Families, ConvolutionAndAttentionAreRefused) {
  EXPECT_EQ(refusal(Op::conv),
            "conv: this build has no kernels for convolution yet; gemm is the only family");
  EXPECT_EQ(refusal(Op::fmha),
            "fmha: this build has no kernels for attention yet; gemm is the only family");
}

}  // namespace
}  // namespace tessera
