// Hopper's kernels for few rows or few columns: their rules, their text, the launches they are
// bound to, and which problems get them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/families/gemm/stream_gpu.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

struct StreamRefusal {
  const char* name;
  const char* reason;  // empty: legal
};

class StreamLegality : public testing::TestWithParam<StreamRefusal> {};

TEST_P(StreamLegality, GivesTheReasonWithBothNumbers) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, GetParam().reason);
}

const StreamRefusal kStreamRefusals[] = {
    {"gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a", ""},
    {"gemm_bf16_rcr_stream_4x4x4096_1x1x8_4x4x16_sm90a", ""},
    {"gemm_fp16_rcr_stream_3x4x256_1x4x2_3x1x8_outfp32_bias_gelu_sm90a", ""},
    {"gemm_fp32_rcr_stream_1x16x16384_1x65x1_1x2x16_sm90a",
     "wave sizes must be between 1 and 64, got 1x65x1"},
    {"gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_s3_sm90a",
     "stages must be 1 with stream, got 3"},
    {"gemm_bf16_rcr_stream_1x16x16384_1x8x1_1x2x32_presh_sm90a",
     "stream takes B as it is, got a preshuffled one"},
    {"gemm_fp8_rcr_stream_1x16x16384_1x8x1_1x2x64_sm90a",
     "stream multiplies fp32, fp16 or bf16 on GPUs, both operands of one type, got fp8 x fp8"},
    {"gemm_tf32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a",
     "stream multiplies fp32, fp16 or bf16 on GPUs, both operands of one type, got tf32 x tf32"},
    {"gemm_bf16_rrr_stream_1x16x16384_1x8x1_1x2x32_sm90a",
     "stream reads A and B along a contiguous k on GPUs (rcr), got rrr"},
    {"gemm_fp32_rcr_stream_1x2x16384_1x1x1_1x2x16_sm90a",
     "stream has one warp along m and several others on GPUs (1x8x1, 1x2x4), got 1x1x1"},
    {"gemm_fp32_rcr_stream_2x16x8192_2x8x1_1x2x16_sm90a",
     "stream has one warp along m and several others on GPUs (1x8x1, 1x2x4), got 2x8x1"},
    {"gemm_fp32_rcr_stream_1x32x16384_1x32x2_1x1x16_sm90a",
     "needs 2048 threads a block, sm90a has 1024"},
    {"gemm_fp32_rcr_stream_16x8x1024_1x8x1_16x1x16_sm90a",
     "stream keeps 1 to 8 rows on GPUs, got tile_m = 16"},
    {"gemm_fp32_rcr_stream_1x24x16384_1x8x1_1x3x8_sm90a",
     "a warp of stream has 1, 2 or 4 rows and at most 16 sums, got 3 rows and 3 sums"},
    {"gemm_fp32_rcr_stream_8x32x2048_1x8x1_8x4x8_sm90a",
     "a warp of stream has 1, 2 or 4 rows and at most 16 sums, got 4 rows and 32 sums"},
    {"gemm_fp32_rcr_stream_1x24x16384_1x8x1_1x2x16_sm90a",
     "8 warps of 1x2 need tile 1x16 with stream, got 1x24"},
    {"gemm_bf16_rcr_stream_1x16x16384_1x8x1_1x2x4_sm90a",
     "a lane of stream reads whole words of 8 bf16 and at most 8 words of 2 rows, got 4 elements "
     "of each"},
    {"gemm_bf16_rcr_stream_1x16x16384_1x8x1_1x2x64_sm90a",
     "a lane of stream reads whole words of 8 bf16 and at most 8 words of 2 rows, got 64 elements "
     "of each"},
    {"gemm_bf16_rcr_stream_1x16x16000_1x8x1_1x2x32_sm90a",
     "tile_k must be a multiple of 256 for bf16 with stream, got 16000"},
    {"gemm_fp32_rcr_stream_4x4x16384_1x1x8_4x4x8_sm90a",
     "needs 262656 bytes of shared memory for 16384 of k in 4 rows, sm90a has 232448"},
};
INSTANTIATE_TEST_SUITE_P(Table, StreamLegality, testing::ValuesIn(kStreamRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(StreamSupports, FewRowsOrColumns) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name("gemm_fp32_rcr_stream_2x16x8192_1x8x1_2x2x16_sm90a");
  const auto reason = [&](std::int64_t m, std::int64_t n) {
    return supports(spec, gemm_problem(DType::fp32, GemmLayout::rcr, m, n, 77), target).reason;
  };
  EXPECT_EQ(reason(1, 1000), "");
  EXPECT_EQ(reason(1000, 2), "");
  EXPECT_EQ(reason(0, 1000), "");
  EXPECT_EQ(reason(3, 1000), "stream serves m <= 2 or n <= 2, got m=3 n=1000");
}

// ---- candidates ----

TEST(StreamCandidates, HaveTheLeastRowsThatServe) {
  const Target target = load_target("sm90a");
  const auto rows = [&](std::int64_t m, std::int64_t n) {
    std::vector<int> all;
    for (const KernelSpec& spec :
         legal_candidates(gemm_problem(DType::bf16, GemmLayout::rcr, m, n, 300), target)) {
      if (spec.algorithm.pipeline == Pipeline::stream) all.push_back(spec.algorithm.tile.m);
    }
    return all;
  };
  EXPECT_EQ(rows(1, 100), std::vector<int>(7, 1));
  EXPECT_EQ(rows(100, 2), std::vector<int>(7, 2));
  EXPECT_EQ(rows(3, 100), std::vector<int>(7, 4));
  EXPECT_EQ(rows(5, 100), std::vector<int>());
}

TEST(StreamCandidates, HoldTheShippedOnes) {
  const Target target = load_target("sm90a");
  for (const char* set : {"fp32_rcr_essential", "fp16_rcr_essential", "bf16_rcr_essential"}) {
    int found = 0;
    for (const KernelSpec& spec : family().preselected(set, target)) {
      if (spec.algorithm.pipeline != Pipeline::stream) continue;
      ++found;
      const auto& s = std::get<GemmSignature>(spec.signature);
      const std::vector<KernelSpec> all =
          candidates(gemm_problem(s.a, s.layout, spec.algorithm.tile.m, 511, 511), target);
      EXPECT_NE(std::find(all.begin(), all.end(), spec), all.end()) << name_of(spec);
    }
    EXPECT_EQ(found, 6) << set;
  }
}

TEST(StreamCandidates, AreNotDescribedAndThoseOfCpusAre) {
  EXPECT_FALSE(is_described(parse_name("gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a")));
  EXPECT_TRUE(is_described(parse_name("gemm_fp32_rcr_stream_8x1024x512_0x0x1_8x16x1_avx512")));
}

TEST(StreamCandidates, NoneWhereTheRowLacksThem) {
  Target target = load_target("sm90a");
  std::erase(target.spaces.at(Op::gemm).pipelines, Pipeline::stream);
  for (const KernelSpec& spec :
       candidates(gemm_problem(DType::fp32, GemmLayout::rcr, 1, 100, 100), target)) {
    EXPECT_NE(spec.algorithm.pipeline, Pipeline::stream) << name_of(spec);
  }
}

// ---- the text ----

TEST(StreamEmit, WritesConfigAndOneKernel) {
  const KernelSpec spec = parse_name("gemm_bf16_rcr_stream_4x4x4096_1x1x8_4x4x16_bias_sm90a");
  const Source source = family().emit(spec, load_target("sm90a"));
  EXPECT_EQ(source.entries, std::vector<std::string>{""});
  EXPECT_NE(source.text.find("#include \"tessera/device/cuda/gemm/stream_gemm.h\"\n"
                             "\n"
                             "using namespace tessera::device;\n"
                             "\n"
                             "struct Config {\n"
                             "  using A = bf16;\n"
                             "  using B = bf16;\n"
                             "  using Acc = float;\n"
                             "  using Out = bf16;\n"
                             "  using D = bf16;\n"
                             "  static constexpr int kTileM = 4, kTileN = 4, kTileK = 4096;\n"
                             "  static constexpr int kWaveN = 1, kWaveK = 8;\n"
                             "  static constexpr int kWarpTileN = 4, kWarpTileK = 16;\n"
                             "  static constexpr int kNumSteps = 1, kNumD = 1;\n"
                             "  static constexpr Step kSteps[] = {Step::bias};\n"
                             "};\n"
                             "\n"
                             "using Kernel = StreamGemm<Config>;\n"),
            std::string::npos)
      << source.text;
}

// ---- launches ----

TEST(StreamBind, Geometry) {
  struct Row {
    const char* name;
    std::int64_t m, n, k, batch;
    unsigned grid, block;
    std::size_t shared;
  };
  constexpr const char* kBf16 = "gemm_bf16_rcr_stream_1x16x16384_1x8x1_1x2x32_sm90a";
  constexpr const char* kFp32 = "gemm_fp32_rcr_stream_4x4x4096_1x1x8_4x4x8_sm90a";
  const Row rows[] = {
      // 16 rows a block; the kept row in whole blocks of 256, as floats
      {kBf16, 1, 4096, 4096, 1, 256, 256, 16384},
      {kBf16, 1, 4097, 4095, 1, 257, 256, 16384},
      {kBf16, 4097, 1, 257, 1, 257, 256, 2048},
      {kBf16, 1, 4097, 20000, 3, 771, 256, 65536},
      {kBf16, 1, 100, 0, 1, 7, 256, 0},
      // 4 rows a block, 4 apart, so that 16 rows have 4 blocks
      {kFp32, 4, 1000, 4096, 1, 252, 256, 65536},
      {kFp32, 17, 3, 100, 1, 8, 256, 2048},
      // short rows: as many tiles a block as leave 528 blocks or more
      {kBf16, 1, 16 * 1056, 64, 1, 528, 256, 1024},
      {kBf16, 1, 16 * 640000, 64, 1, 10000, 256, 1024},
      // more tiles than are counted
      {kFp32, 1, 4, 4096, std::int64_t{1} << 41, 2143297521U, 256, 65536},
  };
  for (const Row& row : rows) {
    const KernelSpec spec = parse_name(row.name);
    const DType a = std::get<GemmSignature>(spec.signature).a;
    GemmProblem p = gemm_problem(a, GemmLayout::rcr, row.m, row.n, row.k);
    p.batch = row.batch;
    const Launch launch = family().bind(spec, p, load_target(spec.target), GemmOperands{});
    ASSERT_EQ(launch.steps.size(), 1U) << row.name;
    const Step& step = launch.steps[0];
    EXPECT_EQ(step.grid, (std::array<unsigned, 3>{row.grid, 1, 1})) << row.m << "x" << row.n;
    EXPECT_EQ(step.block, (std::array<unsigned, 3>{row.block, 1, 1})) << row.m << "x" << row.n;
    EXPECT_EQ(step.shared_memory_bytes, row.shared) << row.m << "x" << row.n;
    EXPECT_TRUE(launch.tensor_maps.empty());
    EXPECT_EQ(launch.workspace.bytes, 0U);
  }
}

TEST(StreamBind, NothingToStoreIsNoStep) {
  const KernelSpec spec = parse_name("gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a");
  for (const auto& [m, n, batch] : {std::array<std::int64_t, 3>{0, 9, 1}, {1, 0, 1}, {1, 9, 0}}) {
    GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, m, n, 5);
    p.batch = batch;
    EXPECT_TRUE(family().bind(spec, p, load_target(spec.target), GemmOperands{}).steps.empty())
        << m << " " << n << " " << batch;
  }
}

// ---- the estimate ----

TEST(StreamEstimate, IsThatOfMemoryForLargeProblems) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name("gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a");
  const auto at = [&](std::int64_t n) {
    return family().estimate(spec, gemm_problem(DType::fp32, GemmLayout::rcr, 1, n, 4096), target,
                             0);
  };
  EXPECT_GT(at(4096).memory_seconds, at(4096).compute_seconds);
  EXPECT_NEAR(at(8192).memory_seconds / at(4096).memory_seconds, 2, 0.01);
  EXPECT_GT(at(4096).seconds, 15e-6);
}

TEST(StreamEstimate, SharingALongKPaysForFewRows) {
  const Target target = load_target("sm90a");
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 1, 128, 65536);
  const auto seconds = [&](const char* name) {
    return family().estimate(parse_name(name), p, target, 0).seconds;
  };
  EXPECT_LT(2 * seconds("gemm_fp32_rcr_stream_1x4x16384_1x1x8_1x4x8_sm90a"),
            seconds("gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a"));
}

}  // namespace
}  // namespace tessera::gemm
