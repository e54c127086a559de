// Hopper's cpasync kernels: their rules, their text, the launches they are bound to, and that one
// of them serves whatever problem is valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

using device::CudaGemmArguments;

// ---- rules ----

struct Refusal {
  const char* name;
  const char* reason;  // empty: legal
};
void PrintTo(const Refusal& row, std::ostream* out) { *out << row.name; }

class CpasyncLegality : public testing::TestWithParam<Refusal> {};

TEST_P(CpasyncLegality, GivesTheReasonWithBothNumbers) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, GetParam().reason);
}

const Refusal kRefusals[] = {
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s3_sm90a", ""},
    {"gemm_tf32_crr_cpasync_128x128x32_2x4x1_16x8x8_s3_sm90a", ""},
    {"gemm_fp8_bf8_ccr_cpasync_128x128x128_2x4x1_16x8x16_s3_sm90a", ""},
    {"gemm_int8_rrr_cpasync_64x64x128_2x2x1_16x8x32_outint8_rowscale_colscale_s3_sm90a", ""},
    {"gemm_fp32_ccr_cpasync_64x128x32_2x2x1_8x8x1_s3_sm90a", ""},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_presh_s3_sm90a",
     "cpasync takes B as it is, got a preshuffled one"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s9_sm90a",
     "cpasync takes 2 to 8 stages, got 9"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_cooperative_s3_sm90a",
     "scheduler must be standard with cpasync, got cooperative"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s3_swap_sm90a",
     "swap_ab must be false with cpasync, got true"},
    {"gemm_fp32_rcr_cpasync_8x128x32_2x1x1_4x4x1_splitordered1_slices16_s3_sm90a", ""},
    {"gemm_fp32_rcr_cpasync_8x128x32_2x1x1_4x4x1_splitatomic1_slices16_s3_sm90a",
     "split_k must be ordered for slices=16 with cpasync, got atomic"},
    {"gemm_tf32_rcr_cpasync_64x64x32_2x2x1_16x8x8_splitordered1_slices16_s3_sm90a",
     "cpasync cuts K into slices for fp32 only, got 16 slices of tf32"},
    {"gemm_fp32_rcr_cpasync_8x128x32_2x1x1_4x4x1_splitordered1_s3_sm90a",
     "split_k must be none for slices=1 with cpasync, got ordered"},
    {"gemm_fp32_rcr_cpasync_8x128x32_2x1x1_4x4x1_splitordered1_slices65_s3_sm90a",
     "K is cut into 1 to 64 slices, got 65"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x2_16x8x16_s3_sm90a",
     "the warps of cpasync do not share K: wave_k must be 1, got 2"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_64x128x16_s3_sm90a",
     "cpasync multiplies by mma, and sm90a does not list a mma of 64x128x16 for bf16"},
    {"gemm_fp32_rcr_cpasync_128x128x32_2x4x1_16x4x1_s3_sm90a",
     "cpasync multiplies by fma, and sm90a does not list a fma of 16x4x1 for fp32"},
    {"gemm_bf16_rcr_cpasync_128x96x64_2x8x1_16x8x16_s3_sm90a",
     "tile 128x96 does not divide over 2x8 warps of 16x8"},
    {"gemm_bf16_rcr_cpasync_512x512x64_8x8x1_16x8x16_s2_sm90a",
     "needs 2048 threads a block, sm90a has 1024"},
    {"gemm_bf16_rcr_cpasync_256x256x64_2x4x1_16x8x16_s2_sm90a",
     "needs 256 accumulators a thread (256x256 over 256 threads), at most 128 fit"},
    {"gemm_fp8_crr_cpasync_128x128x128_2x2x1_16x8x16_s3_sm90a",
     "needs 128 accumulators a thread (128x128 over 128 threads), at most 64 fit"},
    {"gemm_bf16_rcr_cpasync_128x128x48_2x4x1_16x8x16_s3_sm90a",
     "a line of A's tile must be 16 bytes times a power of two that divides 256 threads, got 96 "
     "bytes"},
    {"gemm_bf16_rrr_cpasync_128x192x64_2x4x1_16x8x16_s3_sm90a",
     "a line of B's tile must be 16 bytes times a power of two that divides 256 threads, got 384 "
     "bytes"},
    {"gemm_int8_rcr_cpasync_16x64x32_1x4x1_16x8x32_s3_sm90a",
     "A's tile must be a multiple of 1024 bytes, got 16 x 32 x 1"},
    {"gemm_bf16_rcr_cpasync_128x32x64_2x4x1_16x8x16_s3_sm90a",
     "a warp takes multiples of 16 rows of B, got 8"},
    {"gemm_fp8_crr_cpasync_16x64x128_1x4x1_16x8x16_s3_sm90a",
     "a warp takes a power of two of at least 32 contiguous rows of A, got 16"},
    {"gemm_fp32_rcr_cpasync_128x128x48_2x4x1_8x8x1_s3_sm90a",
     "tile_k must be a multiple of 32 for fma with 8x8 a thread, got 48"},
    {"gemm_fp32_rcr_cpasync_128x128x4_2x4x1_8x8x1_s3_sm90a",
     "tile_k must be a multiple of 8 for fma with 8x8 a thread, got 4"},
    {"gemm_fp32_rcr_cpasync_128x20x32_2x1x1_8x4x1_s3_sm90a",
     "B's rows must be a multiple of 8 for fma, got 20"},
    {"gemm_fp32_rrr_cpasync_128x192x32_2x4x1_8x8x1_s3_sm90a",
     "256 threads copy B's 192 contiguous rows as whole lines of k, which must divide 32 of k"},
    {"gemm_fp32_crr_cpasync_8x128x32_1x1x1_8x4x1_s3_sm90a",
     "32 threads copy A's 8 contiguous rows as whole lines of k, which must divide 8 of k"},
    {"gemm_fp32_rcr_cpasync_128x128x32_2x2x1_8x8x1_s3_sm90a",
     "the 32 lanes of a warp must cover its 64x64 in 8x8 each, in vectors of 4"},
    {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s8_sm90a",
     "needs 262144 bytes of shared memory for 8 stages or the accumulators, sm90a has 232448"},
};
INSTANTIATE_TEST_SUITE_P(Table, CpasyncLegality, testing::ValuesIn(kRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

// ---- the text ----

TEST(CpasyncEmit, WritesConfigAndOneKernel) {
  const KernelSpec spec = parse_name(
      "gemm_fp8_bf8_crr_cpasync_64x128x128_2x2x1_16x8x16_outbf16_dfp32_rowscale_colscale_bias_s3_"
      "sm90a");
  const Source source = family().emit(spec, load_target("sm90a"));
  EXPECT_EQ(source.extension, ".cu");
  EXPECT_EQ(source.name, name_of(spec));
  EXPECT_EQ(
      source.text,
      "// gemm_fp8_bf8_crr_cpasync_64x128x128_2x2x1_16x8x16_outbf16_dfp32_rowscale_colscale_bias_"
      "s3_sm90a\n"
      "// Generated by tessera from src/tessera/device/cuda/. Do not edit.\n"
      "// Reproduce: tessera generate gemm_fp8_bf8_crr_cpasync_64x128x128_2x2x1_16x8x16_"
      "outbf16_dfp32_rowscale_colscale_bias_s3_sm90a --output-dir .\n"
      "//\n"
      "// out = epilogue(alpha * A x B + beta * C): row_scale+col_scale+bias\n"
      "// A: fp8, m contiguous   B: bf8, n contiguous   out: bf16, n contiguous\n"
      "#include \"tessera/device/cuda/gemm/mma_gemm.h\"\n"
      "\n"
      "using namespace tessera::device;\n"
      "\n"
      "struct Config {\n"
      "  using A = fp8;\n"
      "  using B = bf8;\n"
      "  using Acc = float;\n"
      "  using Out = bf16;\n"
      "  using D = float;\n"
      "  static constexpr int kTileM = 64, kTileN = 128, kTileK = 128;\n"
      "  static constexpr int kWaveM = 2, kWaveN = 2;\n"
      "  static constexpr int kWarpTileM = 16, kWarpTileN = 8, kWarpTileK = 16;\n"
      "  static constexpr int kStages = 3, kClusterM = 1, kClusterN = 1;\n"
      "  static constexpr int kSplits = 1, kSlices = 1;\n"
      "  static constexpr bool kPingpong = false, kSwapAb = false, kDirectStore = false;\n"
      "  static constexpr bool kAtomicSplit = false, kPersistent = false, kStreamK = "
      "false;\n"
      "  static constexpr bool kAKContiguous = false, kBKContiguous = false, kPreshuffled = "
      "false;\n"
      "  static constexpr bool kTransposeA = false, kTransposeB = false;\n"
      "  static constexpr int kSharedBytes = 73728;\n"
      "  static constexpr int kNumSteps = 3, kNumD = 3;\n"
      "  static constexpr Step kSteps[] = {Step::row_scale, Step::col_scale, Step::bias};\n"
      "};\n"
      "\n"
      "using Kernel = MmaGemm<Config>;\n"
      "\n"
      "extern \"C\" {\n"
      "__device__ extern const int gemm_fp8_bf8_crr_cpasync_64x128x128_2x2x1_16x8x16_outbf16_dfp32_"
      "rowscale_colscale_bias_s3_sm90a_abi =\n"
      "    5;\n"
      "__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kMinBlocks)\n"
      "gemm_fp8_bf8_crr_cpasync_64x128x128_2x2x1_16x8x16_outbf16_dfp32_rowscale_colscale_bias_s3_"
      "sm90a(\n"
      "    const __grid_constant__ CudaGemmArguments arguments) {\n"
      "  Kernel::run(arguments);\n"
      "}\n"
      "}\n");
}

TEST(CpasyncEmit, TemplateAndTypesFollowTheOperands) {
  struct Row {
    const char* name;
    const char* header;
    const char* types;
  };
  const Row rows[] = {
      {"gemm_fp32_rrr_cpasync_64x64x32_2x2x1_8x4x1_s3_sm90a", "fma_gemm.h",
       "  using A = float;\n  using B = float;\n  using Acc = float;\n  using Out = float;\n"},
      {"gemm_tf32_rrr_cpasync_64x64x32_2x2x1_16x8x8_s3_sm90a", "mma_gemm.h",
       "  using A = tf32;\n  using B = tf32;\n  using Acc = float;\n  using Out = float;\n"},
      {"gemm_int8_rrr_cpasync_64x64x128_2x2x1_16x8x32_s3_sm90a", "mma_gemm.h",
       "  using A = int8;\n  using B = int8;\n  using Acc = int;\n  using Out = int;\n"},
      {"gemm_fp16_rrr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_s3_sm90a", "mma_gemm.h",
       "  using A = fp16;\n  using B = fp16;\n  using Acc = float;\n  using Out = float;\n"},
  };
  for (const Row& row : rows) {
    const std::string text = family().emit(parse_name(row.name), load_target("sm90a")).text;
    EXPECT_NE(text.find("#include \"tessera/device/cuda/gemm/" + std::string(row.header) + "\"\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(row.types), std::string::npos) << text;
  }
}

// ---- launches ----

CudaGemmArguments arguments_of(const Launch& launch) {
  CudaGemmArguments arguments;
  EXPECT_EQ(launch.arguments.size(), sizeof(arguments));
  std::memcpy(&arguments, launch.arguments.data(), sizeof(arguments));
  return arguments;
}

TEST(CpasyncBind, Geometry) {
  struct Row {
    const char* name;
    std::int64_t m, n, batch;
    unsigned grid, block;
    std::size_t shared;
  };
  const Row rows[] = {
      // 3 stages of (128 + 128) x 64 x 2 bytes
      {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s3_sm90a", 128, 128, 1, 1, 256, 98304},
      {"gemm_bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_s3_sm90a", 129, 257, 5, 30, 256, 98304},
      {"gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a", 1, 1, 1, 1, 128, 49152},
      // the accumulators need more than the stages: 128 x (128 + 8) x 4 bytes
      {"gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_s3_sm90a", 300, 300, 1, 9, 256, 69632},
      // 3 stages of (64 + 4 + 64 + 4) x 32 x 4 bytes: transposed lines are padded
      {"gemm_fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_s3_sm90a", 65, 64, 1, 2, 128, 52224},
      // lines of n are not padded: 3 stages of (64 + 4 + 64) x 32 x 4 bytes
      {"gemm_fp32_rrr_cpasync_64x64x32_2x2x1_8x4x1_s3_sm90a", 65, 64, 1, 2, 128, 50688},
      // more tiles than a grid may have
      {"gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a", 1, 1, std::int64_t{1} << 33,
       2147483647U, 128, 49152},
  };
  for (const Row& row : rows) {
    const KernelSpec spec = parse_name(row.name);
    GemmProblem p =
        gemm_problem(std::get<GemmSignature>(spec.signature).a, GemmLayout::rcr, row.m, row.n, 64);
    p.batch = row.batch;
    const Launch launch = family().bind(spec, p, load_target(spec.target), GemmOperands{});
    ASSERT_EQ(launch.steps.size(), 1U) << row.name;
    const Step& step = launch.steps[0];
    EXPECT_EQ(step.grid, (std::array<unsigned, 3>{row.grid, 1, 1})) << row.name;
    EXPECT_EQ(step.block, (std::array<unsigned, 3>{row.block, 1, 1})) << row.name;
    EXPECT_EQ(step.cluster, (std::array<unsigned, 3>{1, 1, 1})) << row.name;
    EXPECT_EQ(step.shared_memory_bytes, row.shared) << row.name;
    EXPECT_EQ(step.entry, 0);
    EXPECT_EQ(step.extent, Step::Extent::exact);
    EXPECT_TRUE(launch.tensor_maps.empty());
    EXPECT_EQ(launch.workspace.bytes, 0U);
  }
}

TEST(CpasyncBind, ArgumentsAreTheProblems) {
  const KernelSpec spec =
      parse_name("gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_rowscale_colscale_s3_sm90a");
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 70, 33, 129);
  p.batch = 3;
  p.epilogue = parse_epilogue("row_scale+col_scale");
  p.alpha = 2;
  p.beta = 0.5F;
  GemmOperands operands;
  int a = 0;
  int out = 0;
  int d = 0;
  operands.a = &a;
  operands.out = &out;
  operands.d[1] = &d;
  const device::GemmArguments g =
      arguments_of(family().bind(spec, p, load_target(spec.target), operands)).gemm;
  EXPECT_EQ(g.m, 70);
  EXPECT_EQ(g.n, 33);
  EXPECT_EQ(g.k, 129);
  EXPECT_EQ(g.batch, 3);
  EXPECT_EQ(g.a, &a);
  EXPECT_EQ(g.out, &out);
  EXPECT_EQ(g.d[1], &d);
  EXPECT_EQ(g.ld_a, 129);
  EXPECT_EQ(g.batch_stride_out, 70 * 33);
  EXPECT_EQ(g.batch_stride_d[0], 70) << "one scale a row";
  EXPECT_EQ(g.batch_stride_d[1], 33) << "one scale a column";
  EXPECT_EQ(g.alpha, 2);
  EXPECT_EQ(g.beta, 0.5F);
  EXPECT_EQ(g.pointer_arrays, 0);
  p.pointer_arrays = true;
  EXPECT_EQ(
      arguments_of(family().bind(spec, p, load_target(spec.target), operands)).gemm.pointer_arrays,
      1);
}

// Odd strides that no address is made of would forbid wider accesses.
TEST(CpasyncBind, DropsStridesOfASingleRowOrBatch) {
  const KernelSpec spec = parse_name("gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_add_s3_sm90a");
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1, 33, 129);
  p.epilogue = parse_epilogue("add");
  device::GemmArguments g =
      arguments_of(family().bind(spec, p, load_target(spec.target), GemmOperands{})).gemm;
  EXPECT_EQ(g.ld_out, 0);
  EXPECT_EQ(g.ld_c, 0);
  EXPECT_EQ(g.ld_d[0], 0);
  EXPECT_EQ(g.batch_stride_a, 0);
  EXPECT_EQ(g.batch_stride_out, 0);
  p.m = 2;
  p.batch = 2;
  g = arguments_of(family().bind(spec, p, load_target(spec.target), GemmOperands{})).gemm;
  EXPECT_EQ(g.ld_out, 33);
  EXPECT_EQ(g.ld_d[0], 33);
  EXPECT_EQ(g.batch_stride_a, 2 * 129);
  EXPECT_EQ(g.batch_stride_out, 2 * 33);
}

TEST(CpasyncBind, NothingToCompute) {
  const KernelSpec spec = parse_name("gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a");
  EXPECT_TRUE(family()
                  .bind(spec, gemm_problem(DType::bf16, GemmLayout::rcr, 0, 5, 5),
                        load_target(spec.target), GemmOperands{})
                  .steps.empty());
  EXPECT_TRUE(family()
                  .bind(spec, gemm_problem(DType::bf16, GemmLayout::rcr, 5, 0, 5),
                        load_target(spec.target), GemmOperands{})
                  .steps.empty());
  EXPECT_FALSE(family()
                   .bind(spec, gemm_problem(DType::bf16, GemmLayout::rcr, 5, 5, 0),
                         load_target(spec.target), GemmOperands{})
                   .steps.empty())
      << "k = 0 still writes the output";
}

// ---- the general kernel, and how many candidates there are ----

struct CpasyncTypes {
  DType a, b, acc, out;
};
constexpr CpasyncTypes kCpasyncTypes[] = {
    {DType::fp32, DType::fp32, DType::fp32, DType::fp32},
    {DType::tf32, DType::tf32, DType::fp32, DType::tf32},
    {DType::fp16, DType::fp16, DType::fp32, DType::fp32},
    {DType::bf16, DType::bf16, DType::fp32, DType::bf16},
    {DType::fp8, DType::fp8, DType::fp32, DType::fp16},
    {DType::fp8, DType::bf8, DType::fp32, DType::bf16},
    {DType::bf8, DType::fp8, DType::fp32, DType::fp32},
    {DType::bf8, DType::bf8, DType::fp32, DType::fp16},
    {DType::int8, DType::int8, DType::int32, DType::int32},
    {DType::int8, DType::int8, DType::int32, DType::int8},
};
constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                   GemmLayout::ccr};

TEST(CpasyncGeneral, ServesEveryValidProblem) {
  const Target target = load_target("sm90a");
  for (const CpasyncTypes& types : kCpasyncTypes) {
    for (const GemmLayout layout : kLayouts) {
      for (const std::int64_t size : {3, 201}) {
        GemmProblem p = gemm_problem(types.a, layout, size, size + 2, 7);
        p.b = types.b;
        p.acc = types.acc;
        p.out = p.d = types.out;
        p.ld_a = p.ld_b = 311;
        p.batch = 2;
        if (types.out != DType::int32) p.epilogue = parse_epilogue("add+row_scale+gelu+col_scale");
        const KernelSpec spec = general(p, target);
        EXPECT_EQ(spec.algorithm.pipeline, Pipeline::cpasync) << name_of(spec);
        EXPECT_EQ(spec.algorithm.tile.m, size < 64 ? 64 : 128) << name_of(spec);
        EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
        EXPECT_EQ(supports(spec, p, target).reason, "") << name_of(spec);
      }
    }
  }
}

TEST(CpasyncGeneral, CandidatesAreFewAndHoldTheShippedSets) {
  const Target target = load_target("sm90a");
  for (const std::string& set : family().preselected_names()) {
    std::vector<KernelSpec> shipped;
    try {
      shipped = family().preselected(set, target);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::not_found) << set;  // a set of other targets
      continue;
    }
    ASSERT_FALSE(shipped.empty()) << set;
    std::erase_if(shipped, [](const KernelSpec& spec) {
      return spec.algorithm.pipeline == Pipeline::stream;
    });
    std::vector<KernelSpec> all;
    for (const KernelSpec& spec : shipped) {
      if (all.empty() || !(all.front().signature == spec.signature)) {
        // The sizes are odd: where nothing needs repacking, kernels that do it are no candidates.
        all =
            candidates(problem_of(std::get<GemmSignature>(spec.signature), 511, 511, 511), target);
      }
      EXPECT_LE(all.size(), 3200U) << set;
      EXPECT_NE(std::find(all.begin(), all.end(), spec), all.end()) << name_of(spec);
    }
  }
}

}  // namespace
}  // namespace tessera::gemm
