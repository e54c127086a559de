// Equations as problems: plain products where dimensions merge, dims where they do not, and the
// sentences about those that do not fit.
#include "tessera/spec/einsum.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/spec/problem.h"

namespace tessera {
namespace {

TEST(Einsum, IsAPlainProductWhereDimensionsMerge) {
  const std::pair<std::string, std::string> rows[] = {
      {"mk,nk->mn sizes=m:4,n:5,k:6", "gemm m=4 n=5 k=6"},
      {"mk,kn->mn sizes=m:4,n:5,k:6 dtype=bf16", "gemm m=4 n=5 k=6 dtype=bf16 layout=rrr"},
      {"km,kn->mn sizes=m:4,n:5,k:6", "gemm m=4 n=5 k=6 layout=crr"},
      {"bmk,bkn->bmn sizes=b:3,m:4,n:5,k:6", "gemm m=4 n=5 k=6 batch=3 layout=rrr"},
      {"mk,bkn->bmn sizes=b:3,m:4,n:5,k:6", "gemm m=4 n=5 k=6 batch=3 layout=rrr batch_stride_a=0"},
      {"abxyk,nk->abxyn sizes=a:2,b:3,x:4,y:5,n:6,k:7", "gemm m=120 n=6 k=7"},
      {"ghmk,ghnk->ghmn sizes=g:2,h:3,m:4,n:5,k:6", "gemm m=4 n=5 k=6 batch=6"},
      {"bmhk,nhk->bmn sizes=b:2,m:3,n:4,h:5,k:6", "gemm m=6 n=4 k=30"},
      {"mk,nk->mn sizes=m:4,n:5,k:6 strides_a=9,1", "gemm m=4 n=5 k=6 ld_a=9"},
      {"k,k-> sizes=k:8", "gemm m=1 n=1 k=8"},
      {"m,n->mn sizes=m:3,n:4", "gemm m=3 n=4 k=1"},
      {"bqhd,bkhd->bhqk sizes=b:1,q:8,k:16,h:2,d:64",
       "gemm m=8 n=16 k=64 batch=2 ld_a=128 ld_b=128 batch_stride_a=64 batch_stride_b=64"},
  };
  for (const auto& [equation, wanted] : rows) {
    EXPECT_EQ(to_string(parse_problem("einsum " + equation)), wanted) << equation;
  }
}

TEST(Einsum, HasDimsWhereTheyDoNotMerge) {
  const Problem problem =
      parse_problem("einsum bqhd,bkhd->bhqk sizes=b:3,q:8,k:16,h:2,d:64 dtype=bf16");
  EXPECT_EQ(to_string(problem),
            "gemm m=8 n=16 k=64 batch=6 dtype=bf16 "
            "dims=g3:1024:2048:256,g2:64:64:128,m8:128:16,n16:128:1,k64:1:1");
  EXPECT_EQ(parse_problem(to_string(problem)), problem);
  EXPECT_EQ(problem_from_json(to_json(problem)), problem);
}

TEST(Einsum, RefusesWithASentence) {
  const std::pair<std::string, std::string> rows[] = {
      {"mk,kn sizes=m:1,k:1,n:1", "expected an equation such as 'mk,kn->mn', got 'mk,kn'"},
      {"mm,mn->mn sizes=m:1,n:1", "a has m twice, and a diagonal is no product"},
      {"mk,kn->mx sizes=m:1,k:1,n:1", "out has x, which neither a nor b has"},
      {"mkz,kn->mn sizes=m:1,k:1,n:1,z:2", "only a has z; add up over it first"},
      {"mk,kn->mn sizes=m:1,k:1,n:1 strides_a=1", "a must have 2 strides for 'mk', got 1"},
      {"mk,kn->mn sizes=m:1,k:1,n:1 strides_b=1,-3",
       "the stride of b along n must be at least 0, got -3"},
      {"mk,kn->mn sizes=m:1,k:1", "sizes lacks n"},
      {"mk,kn->mn sizes=m:1,k:1,n:1,y:1", "sizes has y, which 'mk,kn->mn' lacks"},
      {"mk,kn->mn", "einsum needs sizes"},
      {"mk,kn->mn sizes=m:1,k:1,n:1,n:2", "sizes has n twice"},
  };
  for (const auto& [equation, wanted] : rows) {
    try {
      parse_problem("einsum " + equation);
      FAIL() << equation << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos)
          << equation << ": " << error.what();
    }
  }
}

TEST(Einsum, RefusesSizesThatDoNotMatch) {
  Einsum einsum{.equation = "mk,kn->mn"};
  einsum.a.sizes = {4, 5}, einsum.b.sizes = {6, 7};
  try {
    einsum_problem(einsum);
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "einsum: k must be of one size in a and b, got 5 and 6");
  }
}

TEST(GemmDims, RefuseWithASentence) {
  const std::pair<std::string, std::string> rows[] = {
      {"x3:1:1", "'x3:1:1' is no dimension such as m128:512:64: it begins with g, m, n or k"},
      {"m3:1", "'m3:1' is no dimension such as m128:512:64: kind m has 2 to 7 strides, got 1"},
      {"mx:1:1", "'mx:1:1' is no dimension such as m128:512:64: expected a number, got 'x'"},
      {"k1:1:1,k1:1:1,k1:1:1,k1:1:1,k1:1:1,k1:1:1,k1:1:1,k1:1:1,k1:1:1",
       "there are at most 8 dimensions, got 9"}};
  for (const auto& [text, wanted] : rows) {
    try {
      parse_gemm_dims(text);
      FAIL() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), wanted) << text;
    }
  }
}

}  // namespace
}  // namespace tessera
