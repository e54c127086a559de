// How long normalisations should take, and what is chosen by that.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/families/norm/norm.h"
#include "tessera/targets/targets.h"

namespace tessera::norm {
namespace {

TEST(NormEstimate, CountsBytes) {
  const Problem problem = parse_problem(
      "norm kind=layernorm rows=10 columns=100 dtype=bf16,fp32 scale=1 shift=1 residual=1 out=fp32 "
      "ld_in=500");
  EXPECT_EQ(family().bytes(problem), 1000.0 * (2 + 2 + 2 + 4) + 2 * 100 * 4);
  EXPECT_EQ(family().flops(problem), 6000);
}

double seconds(const char* name, const char* line, int threads = 1) {
  const KernelSpec spec = parse_name(name);
  return estimate(spec, parse_problem(line), load_target(spec.target), threads).seconds;
}

TEST(NormEstimate, LongRowsAreReadTwice) {
  const char* const kLine = "norm kind=softmax rows=65536 columns=8192";
  const double held = seconds("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_sm90a", kLine);
  const double sliced = seconds("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_slices8_sm90a", kLine);
  EXPECT_GT(sliced, 1.1 * held);
}

TEST(NormEstimate, ChoosesThreadsByTheLengthOfRows) {
  const Target target = load_target("sm90a");
  const std::pair<const char*, const char*> rows[] = {
      {"norm kind=softmax rows=1000000 columns=5 dtype=bf16", "_32x1x1_sm90a"},
      {"norm kind=layernorm rows=65536 columns=432 dtype=bf16 scale=1 shift=1", "x512x1_4x1x1_"},
      {"norm kind=layernorm rows=200000 columns=256 dtype=bf16 scale=1 shift=1", "x256x1_4x1x1_"},
      {"norm kind=layernorm rows=1 columns=4096 scale=1 shift=1", "rows_1x4096x1_1x"},
      {"norm kind=softmax rows=500 columns=131072", "_c1x8_"},
      {"norm kind=softmax rows=2 columns=3000000 dtype=bf16", "_slices128_"},
  };
  for (const auto& [line, part] : rows) {
    const Problem problem = parse_problem(line);
    std::pair<double, std::string> best = {1, ""};
    for (const KernelSpec& spec : family().candidates(problem, target)) {
      if (!family().is_legal(spec, target) || !family().supports(spec, problem, target)) continue;
      best = std::min(best, {estimate(spec, problem, target, 0).seconds, name_of(spec)});
    }
    EXPECT_NE(best.second.find(part), std::string::npos) << line << ": " << best.second;
  }
}

TEST(NormEstimate, FewLongRowsAreCut) {
  const char* const kLine = "norm kind=softmax rows=2 columns=4000000";
  EXPECT_LT(4 * seconds("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_slices128_sm90a", kLine),
            seconds("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_sm90a", kLine));
  EXPECT_LT(seconds("norm_fp32_softmax_rows_1x4096x1_0x1x1_1x1x1_slices8_avx512", kLine, 8),
            seconds("norm_fp32_softmax_rows_1x4096x1_0x1x1_1x1x1_avx512", kLine, 8));
}

TEST(NormEstimate, AmdsFewLongRowsAreCutAndLongOnesReadTwice) {
  const char* const kFew = "norm kind=softmax rows=2 columns=4000000";
  EXPECT_LT(4 * seconds("norm_fp32_softmax_rows_1x8192x1_1x4x1_1x1x1_slices128_gfx942", kFew),
            seconds("norm_fp32_softmax_rows_1x8192x1_1x4x1_1x1x1_gfx942", kFew));
  const char* const kMany = "norm kind=softmax rows=262144 columns=8192";
  EXPECT_GT(seconds("norm_fp32_softmax_rows_1x4096x1_1x4x1_1x1x1_gfx942", kMany),
            1.1 * seconds("norm_fp32_softmax_rows_1x8192x1_1x4x1_1x1x1_gfx942", kMany));
}

}  // namespace
}  // namespace tessera::norm
