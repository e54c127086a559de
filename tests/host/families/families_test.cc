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

TEST(Families, ConvolutionAndAttentionAreRefused) {
  EXPECT_EQ(refusal(Op::conv),
            "conv: this build has no kernels for convolution yet; gemm is the only family");
  EXPECT_EQ(refusal(Op::fmha),
            "fmha: this build has no kernels for attention yet; gemm is the only family");
}

TEST(Families, EveryFunctionIsThere) {
  for (const Family* family : all_families()) {
    EXPECT_NE(family->validate, nullptr);
    EXPECT_NE(family->tensors, nullptr);
    EXPECT_NE(family->is_legal, nullptr);
    EXPECT_NE(family->supports, nullptr);
    EXPECT_NE(family->enumerate, nullptr);
    EXPECT_NE(family->candidates, nullptr);
    EXPECT_NE(family->general, nullptr);
    EXPECT_NE(family->preselected, nullptr);
    EXPECT_NE(family->preselected_names, nullptr);
    EXPECT_NE(family->emit, nullptr);
    EXPECT_NE(family->estimate, nullptr);
    EXPECT_NE(family->bind, nullptr);
    EXPECT_NE(family->verify, nullptr);
    EXPECT_NE(family->flops, nullptr);
    EXPECT_NE(family->bytes, nullptr);
  }
}

}  // namespace
}  // namespace tessera
