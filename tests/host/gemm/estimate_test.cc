#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "targets_with.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

struct Best {
  KernelSpec spec;
  Estimate estimate;
};

// The legal candidate with the least predicted time.
Best best(const GemmProblem& problem, const Target& target, int threads) {
  Best found;
  found.estimate.seconds = 1e30;
  for (const KernelSpec& spec : candidates(problem, target)) {
    if (!family().is_legal(spec, target) || !supports(spec, problem, target)) continue;
    const Estimate e = family().estimate(spec, problem, target, threads);
    if (e.seconds < found.estimate.seconds) found = {spec, e};
  }
  return found;
}

TEST(GemmEstimate, CountsOperationsAndBytes) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 10, 20, 30);
  EXPECT_EQ(flops(p), 2.0 * 10 * 20 * 30);
  EXPECT_EQ(bytes(p), 2.0 * (10 * 30 + 20 * 30 + 10 * 20));
  p.batch = 4;
  p.batch_stride_b = 0;
  p.beta = 1;
  p.epilogue = parse_epilogue("bias+add");
  EXPECT_EQ(flops(p), 4 * 2.0 * 10 * 20 * 30);
  EXPECT_EQ(bytes(p), 2.0 * (4 * 300 + 600 + 3 * 4 * 200 + 4 * 20));
}

// A grid of threads is chosen among all ways to share them out: more than can ever run would take
// seconds to count.
TEST(GemmEstimate, CountsAThousandThreadsAtMost) {
  const Target target = load_target("avx512");
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 3000, 2000, 100);
  std::size_t differing = 0;
  for (const KernelSpec& spec : candidates(p, target)) {
    if (!family().is_legal(spec, target) || !supports(spec, p, target)) continue;
    const double most = family().estimate(spec, p, target, 1024).seconds;
    EXPECT_EQ(family().estimate(spec, p, target, 1'000'000).seconds, most) << name_of(spec);
    differing += family().estimate(spec, p, target, 1023).seconds != most;
  }
  EXPECT_GT(differing, 0U);
}

class GemmEstimateOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, GemmEstimateOn, testing::ValuesIn(targets_with(Op::gemm)),
                         [](const auto& row) { return row.param; });

TEST_P(GemmEstimateOn, TakesLongerForTwiceTheProblem) {
  for (const std::int64_t size : {1, 24, 160, 1024}) {
    GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, size * 8, size * 8, size * 8);
    p.ld_a = p.ld_b = std::max<std::int64_t>(64, size * 16);  // rows stay as well aligned
    const double base = best(p, target_, 2).estimate.seconds;
    EXPECT_GT(base, 0);
    for (auto grow : {&GemmProblem::m, &GemmProblem::n, &GemmProblem::k}) {
      GemmProblem larger = p;
      larger.*grow *= 2;
      EXPECT_GT(best(larger, target_, 2).estimate.seconds, base) << size;
    }
  }
}

// Multiplications per second of the best instruction that multiplies fp16, or fp32 where fp16 has
// none: by one unit of a CPU, which is what a thread has, or by all units of a GPU.
double most_macs_per_second(const Target& target) {
  double most = 0;
  for (const Instruction& i : target.instructions) {
    if (i.a != DType::fp16 && i.a != DType::fp32) continue;
    most = std::max(most, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return most * target.clock_ghz * 1e9 * (target.backend == "cpu" ? 1 : target.units);
}

TEST_P(GemmEstimateOn, NeverBeatsThePeak) {
  const GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 2048, 2048, 2048);
  const double least = flops(p) / 2 / most_macs_per_second(target_);
  for (const KernelSpec& spec : candidates(p, target_)) {
    if (!family().is_legal(spec, target_) || !supports(spec, p, target_)) continue;
    const Estimate e = family().estimate(spec, p, target_, 1);
    // CPU rows state a nominal clock, such as 3.0 GHz, and the estimate was fitted on machines that
    // run faster, at up to 3.7 GHz.
    ASSERT_GE(e.compute_seconds, target_.backend == "cpu" ? least / 1.5 : least) << name_of(spec);
    ASSERT_LE(e.utilisation, 1.0) << name_of(spec);
    ASSERT_GT(e.utilisation, 0.0) << name_of(spec);
    ASSERT_DOUBLE_EQ(e.seconds, std::max(e.compute_seconds, e.memory_seconds) + e.overhead_seconds);
  }
}

TEST_P(GemmEstimateOn, EmptyProblemsCostOnlyTheLaunch) {
  const GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 0, 64, 64);
  const Estimate e = best(p, target_, 1).estimate;
  EXPECT_EQ(e.compute_seconds, 0);
  EXPECT_LT(e.seconds, 1e-4);
}

TEST_P(GemmEstimateOn, ProblemsWithoutKHaveATime) {
  for (const GemmLayout layout : {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::ccr}) {
    const GemmProblem p = gemm_problem(DType::fp16, layout, 19, 8, 0);
    for (const KernelSpec& spec : candidates(p, target_)) {
      if (!family().is_legal(spec, target_) || !supports(spec, p, target_)) continue;
      const Estimate e = family().estimate(spec, p, target_, 3);
      ASSERT_TRUE(std::isfinite(e.seconds) && std::isfinite(e.memory_seconds)) << name_of(spec);
    }
  }
}

class GemmRankingOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Cpus, GemmRankingOn, testing::Values("avx512", "avx2", "generic"),
                         [](const auto& row) { return row.param; });

TEST_P(GemmRankingOn, OneRowOrColumnStreams) {
  for (const auto& [m, n] : {std::pair{1, 4096}, {4096, 1}}) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {
      const GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, m, n, 4096);
      EXPECT_EQ(best(p, target_, 2).spec.algorithm.pipeline, Pipeline::stream) << m << " x " << n;
    }
  }
}

TEST_P(GemmRankingOn, LargeSquaresPackB) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 2048, 2048, 2048);
  const KernelSpec spec = best(p, target_, 2).spec;
  const bool packs_b =
      spec.algorithm.pipeline == Pipeline::packab || spec.algorithm.pipeline == Pipeline::packb;
  EXPECT_TRUE(packs_b) << name_of(spec);
  EXPECT_EQ(spec.algorithm.wave, (Shape3{0, 0, 1})) << name_of(spec);
}

TEST_P(GemmRankingOn, SmallOutputsOfLongSumsSplitK) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 16, 16, 65536);
  const KernelSpec spec = best(p, target_, 8).spec;
  EXPECT_EQ(spec.algorithm.wave, (Shape3{1, 1, 0})) << name_of(spec);
}

TEST_P(GemmRankingOn, TwoThreadsHalveLargeProblems) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 1024, 1024, 1024);
  const double one = best(p, target_, 1).estimate.seconds;
  const double two = best(p, target_, 2).estimate.seconds;
  EXPECT_NEAR(one / two, 2, 0.2);
}

TEST_P(GemmRankingOn, PackedAheadIsNeverSlower) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {
    for (const std::int64_t m : {16, 100, 1000}) {  // one row is for stream kernels
      for (const std::int64_t n : {64, 1000, 4096}) {
        GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, m, n, 2048);
        const auto plain = best(p, target_, 1);
        if (plain.spec.algorithm.pipeline == Pipeline::small) continue;  // knows no packed B
        p.preshuffled_b = true;
        EXPECT_LE(best(p, target_, 1).estimate.seconds, plain.estimate.seconds)
            << to_string(Problem(p));
      }
    }
  }
}

// Rows of A that are read in place, 4096 bytes apart, share a set of L1: twelve of them fit there
// where a set has twelve lines.
TEST(GemmEstimate, RowsOfOneSetCostMoreThanItsWays) {
  Target target = load_target("avx512");
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 480, 480, 1024);
  const auto seconds = [&](int rows, int ways) {
    target.caches.front().ways = ways;
    for (const KernelSpec& spec : candidates(p, target)) {
      const Algorithm& a = spec.algorithm;
      const bool is_it = a.pipeline == Pipeline::packb && a.warp_tile.m == rows;
      if (is_it && family().is_legal(spec, target))
        return family().estimate(spec, p, target, 1).compute_seconds;
    }
    return 0.0;
  };
  EXPECT_GT(seconds(8, 8), 0);
  EXPECT_EQ(seconds(8, 8), seconds(8, 12));
  EXPECT_GT(seconds(12, 8), 1.1 * seconds(12, 12));
  EXPECT_EQ(seconds(24, 8), seconds(24, 12));
}

TEST(GemmRanking, WideInstructionsWin) {
  const Target target = load_target("avx512");
  const auto products = [&](DType dtype) {
    return best(gemm_problem(dtype, GemmLayout::rcr, 512, 512, 512), target, 1)
        .spec.algorithm.warp_tile.k;
  };
  EXPECT_EQ(products(DType::int8), 64);
  EXPECT_EQ(products(DType::bf16), 32);
  EXPECT_EQ(products(DType::fp16), 1);
}

TEST(GemmRanking, WordsWinWithoutTiles) {
  Target target = load_target("avx512");
  std::erase_if(target.instructions, [](const Instruction& i) { return i.shape.m > 1; });
  const auto products = [&](DType dtype) {
    return best(gemm_problem(dtype, GemmLayout::rcr, 512, 512, 512), target, 1)
        .spec.algorithm.warp_tile.k;
  };
  EXPECT_EQ(products(DType::int8), 4);
  EXPECT_EQ(products(DType::bf16), 2);
}

// A product of tiles takes 16 cycles, and a kernel no less than all its products.
TEST(GemmEstimate, OfTilesIsNoLessThanTheirProducts) {
  const Target target = load_target("avx512");
  for (const DType dtype : {DType::int8, DType::bf16}) {
    const GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, 512, 4096, 1024);
    const double products = 512.0 / 16 * (4096.0 / 16) * (1024.0 * size_of(dtype) / 64);
    const double boost = 1.5;  // of a busy core's clock over the row's
    for (const KernelSpec& spec : candidates(p, target)) {
      if (spec.algorithm.pipeline != Pipeline::amx || !family().is_legal(spec, target)) continue;
      const double seconds = family().estimate(spec, p, target, 1).compute_seconds;
      EXPECT_GT(seconds, products * 16 / (target.clock_ghz * 1e9 * boost)) << name_of(spec);
      EXPECT_LT(seconds, products * 16 / (target.clock_ghz * 1e9) * 4) << name_of(spec);
    }
  }
}

TEST(GemmRankingOnHopper, FewRowsSwapAndSplitAndDoNotCopy) {
  const Target target = load_target("sm90a");
  for (const std::int64_t m : {1, 4, 16, 32}) {
    const KernelSpec spec =
        best(gemm_problem(DType::bf16, GemmLayout::rcr, m, 4096, 4096), target, 0).spec;
    EXPECT_EQ(spec.algorithm.pipeline, Pipeline::tmaws) << name_of(spec);
    EXPECT_TRUE(spec.algorithm.swap_ab) << name_of(spec);
    EXPECT_GE(spec.algorithm.splits, 2) << name_of(spec);
    EXPECT_LE(spec.algorithm.tile.n, 32) << name_of(spec);
  }
}

TEST(GemmRankingOnHopper, LargeSquaresUseTwoConsumersOnWideTiles) {
  const Target target = load_target("sm90a");
  for (const std::int64_t size : {2048, 4096, 8192}) {
    const KernelSpec spec =
        best(gemm_problem(DType::bf16, GemmLayout::rcr, size, size, size), target, 0).spec;
    EXPECT_EQ(spec.algorithm.pipeline, Pipeline::tmaws) << name_of(spec);
    EXPECT_EQ(spec.algorithm.wave, (Shape3{2, 1, 1})) << name_of(spec);
    EXPECT_GE(std::min(spec.algorithm.tile.m, spec.algorithm.tile.n), 128) << name_of(spec);
    EXPECT_EQ(spec.algorithm.splits, 1) << name_of(spec);
  }
}

TEST(GemmRankingOnHopper, RowsThatTheCopyEngineRefusesAreCopiedByThreadsOrFirst) {
  const Target target = load_target("sm90a");
  const auto algorithm = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return best(gemm_problem(DType::bf16, GemmLayout::rcr, m, n, k), target, 0).spec.algorithm;
  };
  EXPECT_EQ(algorithm(5, 19, 6).pipeline, Pipeline::cpasync);
  EXPECT_TRUE(algorithm(5000, 3000, 1777).repack);
  EXPECT_FALSE(algorithm(5000, 3000, 1776).repack);
}

// Gathering both operands and storing without the copy engine has its price.
TEST(GemmRankingOnHopper, PointerArraysCostTheCopies) {
  const Target target = load_target("sm90a");
  const KernelSpec spec =
      parse_name("gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_sm90a");
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1024, 1024, 1024);
  p.batch = 8;
  const Estimate strided = family().estimate(spec, p, target, 0);
  p.pointer_arrays = true;
  const Estimate arrays = family().estimate(spec, p, target, 0);
  const double copied = 8 * 2 * 1024.0 * 1024 * 2;
  const double least = 2 * copied / (target.memory_gb_per_s * 1e9);
  EXPECT_GT(arrays.overhead_seconds, strided.overhead_seconds + least);
  EXPECT_GT(arrays.compute_seconds, strided.compute_seconds);
  EXPECT_EQ(arrays.memory_seconds, strided.memory_seconds);
}

TEST(GemmRankingOnHopper, LongSumsOfFewTilesAreSplit) {
  const Target target = load_target("sm90a");
  const auto parts = [&](std::int64_t side, std::int64_t k) {
    const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, side, side, k);
    const Algorithm a = best(p, target, 0).spec.algorithm;
    return a.splits * a.slices;
  };
  EXPECT_GT(parts(16, 65536), 8);  // more than the blocks of a cluster
  EXPECT_GT(parts(256, 16384), 1);
  EXPECT_EQ(parts(4096, 4096), 1);
}

}  // namespace
}  // namespace tessera::gemm
