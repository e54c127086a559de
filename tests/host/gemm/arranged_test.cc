// Which contractions and operands with several sources are valid, and the kernels that have them.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

TEST(Arranged, RefusesProblemsWithASentence) {
  const std::pair<std::string, std::string> rows[] = {
      {"m=2 n=3 k=4 dims=m3:4:3,n3:4:1,k4:1:1",
       "m must be 3, the product of the sizes of dims of kind m, got 2"},
      {"m=2 n=3 k=4 dims=n3:4:1,m2:4:3,k4:1:1",
       "dims come in the order g, m, n, k, got m behind n"},
      {"m=2 n=3 k=4 dims=m2:4:2,n3:4:1,k4:1:1",
       "results would overlap: the stride of out over 2 elements must be at least 3, got 2"},
      {"m=2 n=3 k=4 dims=m2:4:3,n3:4:0,k4:1:1",
       "results would overlap: the stride of out over 3 elements must be at least 1, got 0"},
      {"m=2 n=3 k=4 dims=m2:-4:3,n3:4:1,k4:1:1",
       "the stride of a in dims[0] must be at least 0, got -4"},
      {"m=2 n=3 k=4 ld_a=9 dims=m2:4:3,n3:4:1,k4:1:1",
       "ld_a must be left out with dims, which say all strides, got 9"},
      {"m=2 n=3 k=4 pointer_arrays=1 dims=m2:4:3,n3:4:1,k4:1:1",
       "pointer_arrays must be 0 with dims, merge_a or merge_b, got 1"},
      {"m=2 n=4 k=4 gate=silu_mul merge_a=add sources_a=2",
       "gate must be none with dims, merge_a or merge_b, got silu_mul"},
      {"m=2 n=3 k=4 merge_a=add", "sources_a must be 2 to 4 with merge_a=add, got 1"},
      {"m=2 n=3 k=4 sources_b=2", "sources_b must be 1 with merge_b=none, got 2"},
      {"m=2 n=3 k=4 dtype=fp8 merge_a=add sources_a=2",
       "merge_a takes sources of fp32, tf32, fp16 and bf16, got fp8"},
      {"m=2 n=3 k=4 merge_a=add sources_a=2 ld_a2=4",
       "ld_a2 must be left out where a has 2 sources, got 4"},
      {"m=2 n=3 k=4 merge_a=add sources_a=2 ld_a1=-4", "ld_a1 must be at least 0, got -4"}};
  for (const auto& [fields, wanted] : rows) {
    try {
      gemm::validate(parse_problem("gemm " + fields));
      FAIL() << fields << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "gemm: " + wanted) << fields;
    }
  }
}

TEST(Arranged, ListsEverySourceAndEveryDimension) {
  const Problem problem = parse_problem(
      "gemm m=6 n=5 k=4 merge_a=add sources_a=3 merge_b=multiply sources_b=2 ld_b1=0");
  std::string names;
  for (const Tensor& tensor : gemm::tensors(problem)) {
    names += std::string(tensor.name) + " " + std::to_string(tensor.elements()) + " ";
  }
  EXPECT_EQ(names, "a 24 a1 24 a2 24 b 20 b1 4 out 30 ");
}

TEST(Arranged, KernelsRefuseWhatDoesNotGoWithIt) {
  const Target target = load_target("avx512");
  KernelSpec spec =
      gemm::general(parse_problem("gemm m=6 n=5 k=4 merge_a=add sources_a=3"), target);
  std::get<GemmSignature>(spec.signature).preshuffled_b = true;
  EXPECT_EQ(gemm::family().is_legal(spec, target).reason,
            "arranged operands go with no groups, packed B, scales of blocks, gates, rows by index "
            "or quantised outputs");
  std::get<GemmSignature>(spec.signature).preshuffled_b = false;
  EXPECT_EQ(gemm::family().is_legal(spec, target).reason, "");
}

TEST(Arranged, KernelsAreLegalOnEveryBackend) {
  const Problem problem = parse_problem("gemm m=6 n=5 k=4 merge_a=add sources_a=3");
  for (const char* name : {"avx512", "avx2", "sm90a", "gfx942", "gfx950", "gfx1201"}) {
    const Target target = load_target(name);
    const KernelSpec spec = gemm::general(problem, target);
    EXPECT_TRUE(std::get<GemmSignature>(spec.signature).arranged) << name;
    EXPECT_EQ(gemm::supports(spec, problem, target).reason, "") << name;
    EXPECT_NE(name_of(spec).find("_arranged"), std::string::npos) << name_of(spec);
    EXPECT_EQ(parse_name(name_of(spec)), spec);
  }
}

}  // namespace
}  // namespace tessera
