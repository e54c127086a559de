// Gates, rows by index and outputs of 8 bits on Hopper, with groups and without: rules and served
// problems with their sentences, the general kernel of every combination, text, launches, and what
// is chosen for mixtures of experts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/device/cuda/gemm/scaled_output_arguments.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

const Target& sm90a() {
  static const Target target = load_target("sm90a");
  return target;
}

KernelSpec kernel(const std::string& rest) { return parse_name("gemm_" + rest + "_sm90a"); }

// ---- rules ----

struct OutputRule {
  const char* name;
  const char* sentence;
};
class OutputsOnHopper : public testing::TestWithParam<OutputRule> {};
TEST_P(OutputsOnHopper, AreLegalOrRefusedWithTheSentence) {
  EXPECT_EQ(family().is_legal(kernel(GetParam().name), sm90a()).reason, GetParam().sentence);
}

const OutputRule kOutputRules[] = {
    {"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_outfp8_groupsindexed_gatesilumul_rowsgathered_"
     "quantblock_s3",
     ""},
    {"fp32_crr_cpasync_64x64x32_2x2x1_8x4x1_groupscontiguous_rowsscattered_rowscale_s3", ""},
    {"bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupscontiguous_gatesilumul_rowsgathered_"
     "cooperative_s4",
     ""},
    {"bf16_rrr_tmaws_128x256x64_2x1x1_64x256x16_groupsindexed_gategelumul_rowsgathered_cooperative_"
     "s4",
     ""},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groupsmasked_gatesilumul_interleaved_cooperative_"
     "s4",
     ""},
    {"bf16_rcr_tmaws_128x16x64_1x1x1_64x16x16_gatesilumul_rowsgathered_cooperative_s4_swap", ""},
    {"bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_gatesilumul_cooperative_s4", ""},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_groupscontiguous_scalea1x128_scaleb128x128_"
     "gatesilumul_rowsgathered_cooperative_s4",
     ""},
    {"fp8_rcr_tmaws_128x16x128_1x1x1_64x16x32_outbf16_groupsindexed_scalea1x128_scaleb1x128_"
     "gategelumul_interleaved_rowsgathered_cooperative_s4_swap",
     ""},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_dfp32_scalea1x128_scaleb128x128_"
     "rowsscattered_rowscale_cooperative_s4",
     ""},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_scalea1x32_scaleb1x32_gatesilumul_"
     "cooperative_s4",
     "tmaws takes scale_a=1x128, scale_b=1x128 or 128x128 and scale_type=fp32, got 1x32, 1x32 and "
     "fp32; use a cpasync kernel"},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outfp8_scalea1x128_scaleb128x128_quantblock_"
     "cooperative_s4",
     "a tile has one block of 128 columns of out with quant=block: it needs swap_ab=1, tile_m = "
     "128 and 1 or 2 consumers, got 0, 128 and 2"},
    {"fp8_rcr_tmaws_256x64x128_2x1x1_64x64x32_outfp8_groupscontiguous_scalea1x128_scaleb128x128_"
     "gatesilumul_rowsgathered_quantblock_cooperative_s4_swap",
     ""},
    {"fp8_rcr_tmaws_128x32x128_2x1x1_64x32x32_outfp8_dfp32_scalea1x128_scaleb128x128_quantblock_"
     "bias_cooperative_s4_swap",
     "a scale of out follows the sums with tmaws: epilogue must be none, got bias; use a cpasync "
     "kernel"},
    {"fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_scalea1x128_scaleb1x128_gatesilumul_"
     "rowsgathered_cooperative_s4",
     "needs 160 registers a thread for sums, those of a stage and scales, at most 150 fit"},
    {"fp8_rcr_tmaws_256x128x128_2x1x1_64x128x32_outbf16_scalea1x128_scaleb128x128_rowsscattered_"
     "cooperative_s3",
     "needs 193 registers a thread for sums, those of a stage and scales, at most 176 fit"},
    {"bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_outfp8_quantrow_cooperative_s4",
     "tmaws quantises by blocks beside scales of blocks, got quant=row scale_a=none; use a cpasync "
     "kernel"},
    {"bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_groupsalongk_gatesilumul_cooperative_s4",
     "tmaws has no gates with grouping=along_k, got gate=silu_mul"},
    {"bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_rowsgathered_cooperative_s4",
     "tmaws gathers rows whose k is contiguous: layout must be rcr or rrr with indexing=gathered, "
     "got crr"},
    {"tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_rowsgathered_cooperative_s4",
     "the copy engine rounds fp32 to tf32, and threads that copy gathered rows do not; use a "
     "cpasync kernel"},
    {"bf16_rcr_tmaws_256x128x64_2x1x1_64x128x16_rowsgathered_cooperative_s4",
     "the threads that copy gathered rows have registers for 128 rows of a tile beside 2 "
     "consumers, "
     "got 256"},
    {"bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16_gatesilumul_rowsgathered_pingpong_s4",
     "needs 192 accumulators a thread, at most 160 fit beside a gate or rows by index"},
    {"bf16_rcr_tmaws_128x16x64_1x1x1_64x16x16_rowsgathered_cooperative_s4",
     "the threads that copy gathered rows have registers for 64 rows of a tile beside 1 consumer, "
     "got 128"},
    {"bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_gatesilumul_bias_cooperative_s4",
     "a gate follows the sums with tmaws: epilogue must be none, got bias; use a cpasync kernel"},
    {"bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_gatesilumul_interleaved_cooperative_s4",
     "the copy engine does not read every other element: layout must be rcr or ccr with "
     "gate_interleaved=1, got rrr"},
    {"bf16_rrr_tmaws_128x64x64_2x1x1_64x64x16_gatesilumul_cooperative_s4",
     "a thread needs both columns of a pair: tile_n must be a multiple of 128 with gate=silu_mul, "
     "got 64"},
    {"bf16_rcr_tmaws_64x8x64_1x1x1_64x8x16_gatesilumul_cooperative_s4",
     "a thread needs both columns of a pair: tile_n must be a multiple of 16 with gate=silu_mul, "
     "got 8"},
    {"bf16_rcr_tmaws_128x16x64_2x1x1_64x16x16_gatesilumul_cooperative_s4_swap",
     "a thread needs both columns of a pair: tile_m must be a multiple of 256 with gate=silu_mul, "
     "got 128"},
    {"bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_rowsgathered_cooperative_storetma_s4",
     "threads store what the copy engine cannot with a gate or rows by index: store must be "
     "standard or direct, got tma"},
    {"bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_rowsgathered_cooperative_s4_c2x1",
     "kernels for groups, gates and rows by index share nothing between blocks and copy no "
     "operand: they need a 1x1 cluster and splits=1 slices=1 streamk=0 repack=0, got 2x1 and "
     "splits=1 slices=1 streamk=0 repack=0"},
};
INSTANTIATE_TEST_SUITE_P(All, OutputsOnHopper, testing::ValuesIn(kOutputRules));

// ---- which problems are served ----

struct ServedLine {
  const char* kernel;
  const char* line;
  const char* sentence;
};
class OutputsServed : public testing::TestWithParam<ServedLine> {};
TEST_P(OutputsServed, OrRefusedWithTheSentence) {
  const KernelSpec spec = kernel(GetParam().kernel);
  ASSERT_EQ(family().is_legal(spec, sm90a()).reason, "");
  EXPECT_EQ(gemm::supports(spec, parse_problem(GetParam().line), sm90a()).reason,
            GetParam().sentence);
}
constexpr const char* kUp =
    "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groupscontiguous_gatesilumul_rowsgathered_"
    "cooperative_s4";
constexpr const char* kUpByRows =
    "bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_gatesilumul_cooperative_s4";
constexpr const char* kDown =
    "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_dfp32_groupscontiguous_rowsscattered_rowscale_"
    "cooperative_s4";
constexpr const char* kScaledUp =
    "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_groupscontiguous_scalea1x128_scaleb128x128_"
    "gatesilumul_rowsgathered_cooperative_s4";
constexpr const char* kScaledPairs =
    "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_scalea1x128_scaleb128x128_gatesilumul_"
    "interleaved_cooperative_s4";
const ServedLine kServedLines[] = {
    {kScaledUp,
     "gemm m=9 n=512 k=208 a=fp8 out=bf16 scale_a=1x128 scale_b=128x128 groups=3 "
     "grouping=contiguous gate=silu_mul indexing=gathered index_room=4",
     ""},
    {kScaledUp,
     "gemm m=9 n=384 k=208 a=fp8 out=bf16 scale_a=1x128 scale_b=128x128 groups=3 "
     "grouping=contiguous gate=silu_mul indexing=gathered index_room=4",
     "a tile has columns of one block of scales in each half of B: n must be a multiple of 256 "
     "with scale_b=128x128 and gate=silu_mul, got 384; use a cpasync kernel"},
    {kScaledPairs,
     "gemm m=9 n=70 k=208 a=fp8 out=bf16 scale_a=1x128 scale_b=128x128 gate=silu_mul "
     "gate_interleaved=1",
     ""},
    {kUp,
     "gemm m=9 n=6 k=64 dtype=bf16 groups=3 grouping=contiguous gate=silu_mul indexing=gathered "
     "index_room=4",
     ""},
    {kUp,
     "gemm m=9 n=6 k=60 dtype=bf16 groups=3 grouping=contiguous gate=silu_mul indexing=gathered "
     "index_room=4",
     "k must be a multiple of 8 for bf16 operands with tmaws, got k=60"},
    {kUp,
     "gemm m=9 n=6 k=64 dtype=bf16 groups=3 grouping=contiguous gate=silu_mul indexing=gathered "
     "index_room=4 beta=1",
     "beta must be 0 with gate=silu_mul and tmaws, got 1; use a cpasync kernel"},
    {kUpByRows, "gemm m=9 n=16 k=64 dtype=bf16 layout=rrr gate=silu_mul batch=3", ""},
    {kUpByRows, "gemm m=9 n=24 k=64 dtype=bf16 layout=rrr gate=silu_mul",
     "n must be a multiple of 16 for bf16 operands with gate=silu_mul and layout=rrr, got n=24; "
     "use a cpasync kernel"},
    {kDown,
     "gemm m=9 n=7 k=64 dtype=bf16 d=fp32 groups=3 grouping=contiguous indexing=scattered "
     "index_room=40 epilogue=row_scale beta=2",
     ""},
};
INSTANTIATE_TEST_SUITE_P(All, OutputsServed, testing::ValuesIn(kServedLines));

// Any type, layout, grouping, gate, index and quantised output, and odd sizes.
TEST(OutputsOfAnyProblem, HaveAGeneralKernel) {
  std::size_t count = 0;
  for (const DType type : {DType::fp32, DType::tf32, DType::bf16, DType::fp8, DType::int8}) {
    for (const GemmLayout layout :
         {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
      for (int i = 0; i < 5 * 2 * 3 * 2; ++i) {
        GemmProblem p = gemm_problem(type, layout, 131, 78, 67);
        p.grouping = static_cast<GemmGrouping>(i % 5);
        if (p.grouping != GemmGrouping::none) p.groups = 5;
        p.gate = i / 5 % 2 == 0 ? GemmGate::none : GemmGate::silu_mul;
        p.indexing = static_cast<GemmIndexing>(i / 10 % 3);
        if (p.indexing != GemmIndexing::none) p.index_room = 140;
        if (type == DType::int8) p.out = p.d = DType::fp32;
        if (i / 30 == 1) p.out = DType::fp8, p.quant = NormQuant::row, p.d = DType::fp32;
        if (!extras_fit(std::get<GemmSignature>(signature_of(Problem(p))))) continue;
        const KernelSpec spec = general(p, sm90a());
        EXPECT_EQ(family().is_legal(spec, sm90a()).reason, "") << name_of(spec);
        EXPECT_EQ(gemm::supports(spec, p, sm90a()).reason, "") << name_of(spec);
        ++count;
      }
    }
  }
  EXPECT_GT(count, 400U);
}

// ---- text ----

TEST(OutputsOnHopperText, HasTheGroupsAndTheirCheck) {
  const Source by_warps = family().emit(
      kernel("bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groupsmasked_gatesilumul_s3"), sm90a());
  for (const char* part : {"mma_groups.h", "Grouping::masked;", "OutputsProduct<Config, MmaGroups>",
                           "GroupCheck::run(arguments.outputs.groups)"}) {
    EXPECT_NE(by_warps.text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(by_warps.entries, (std::vector<std::string>{"", "_gather", "_finish", "_prepare"}));
  const Source by_engine = family().emit(kernel(kUp), sm90a());
  for (const char* part : {"tma_outputs_gemm.h", "Indexing::gathered;", "Gate::silu_mul;",
                           "GroupCheck::run(arguments.product.groups)"}) {
    EXPECT_NE(by_engine.text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(by_engine.entries, (std::vector<std::string>{"", "_prepare"}));
  EXPECT_EQ(family().emit(kernel(kUpByRows), sm90a()).entries, (std::vector<std::string>{""}));
}

// ---- launches ----

alignas(64) char any_place[8];
Operands operands_at(const Problem& problem, const void* a) {
  Operands operands = no_operands(problem);
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_empty()) set_pointer(operands, tensor.operand, any_place);
  }
  std::get<GemmOperands>(operands).a = a;
  return operands;
}
Launch launch_of(const KernelSpec& spec, const char* line) {
  const Problem problem = parse_problem(line);
  return gemm::bind(spec, problem, sm90a(), operands_at(problem, any_place));
}

// Gathered rows are copied before the product, and every product is finished behind it.
TEST(OutputsLaunch, ByWarpsHasTheStepsThatItNeeds) {
  const auto steps = [](const char* line) {
    const KernelSpec spec = general(parse_problem(line), sm90a());
    EXPECT_EQ(family().is_legal(spec, sm90a()).reason, "") << line;
    return launch_of(spec, line).steps.size();
  };
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 dtype=bf16 gate=silu_mul"), 2U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 dtype=bf16 indexing=gathered index_room=4"), 3U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=0 dtype=bf16 indexing=gathered index_room=4"), 2U);
  EXPECT_EQ(steps("gemm m=0 n=8 k=8 dtype=bf16 indexing=gathered index_room=4"), 0U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 gate=silu_mul groups=3 grouping=masked"), 2U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 gate=silu_mul groups=3 grouping=masked check_groups=1"), 3U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 gate=silu_mul groups=0 grouping=masked"), 0U);
  EXPECT_EQ(steps("gemm m=8 n=8 k=8 indexing=gathered index_room=4 groups=3 grouping=contiguous"),
            3U);
}

TEST(OutputsLaunch, ByTheCopyEngineIsOneStepWithoutMemoryOfItsOwn) {
  const Launch up = launch_of(kernel(kUp),
                              "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous "
                              "gate=silu_mul indexing=gathered index_room=50");
  ASSERT_EQ(up.steps.size(), 1U);
  EXPECT_EQ(up.workspace.bytes, 0U);
  EXPECT_EQ(up.steps[0].grid[0], (4U + 3U) * 4U);
  device::CudaTmaOutputArguments arguments;
  std::memcpy(static_cast<void*>(&arguments), up.arguments.data(), sizeof(arguments));
  EXPECT_EQ(arguments.index_room, 50);
  EXPECT_EQ(arguments.product.groups.groups, 3);
  EXPECT_EQ(arguments.product.has_out_map, 1);
  const Launch down = launch_of(kernel(kDown),
                                "gemm m=400 n=512 k=64 dtype=bf16 d=fp32 groups=3 "
                                "grouping=contiguous indexing=scattered index_room=400 "
                                "epilogue=row_scale check_groups=1");
  ASSERT_EQ(down.steps.size(), 2U);
  EXPECT_EQ(down.steps[0].entry, 1);
  std::memcpy(static_cast<void*>(&arguments), down.arguments.data(), sizeof(arguments));
  EXPECT_EQ(arguments.product.groups.step_out, 0);
  EXPECT_EQ(arguments.product.groups.step_d[0], 0);
  EXPECT_EQ(arguments.product.has_out_map, 0);
  const Launch batches = launch_of(
      kernel(kUpByRows), "gemm m=400 n=512 k=64 dtype=bf16 layout=rrr gate=silu_mul batch=3");
  EXPECT_EQ(batches.steps[0].grid[0], 4U * 4U * 3U);
}

std::string windows_of(const char* name, const char* line) {
  std::string text;
  for (const TensorMap& map : launch_of(kernel(name), line).tensor_maps) {
    const auto list = [&](const auto& numbers, int count) {
      return fmt::format("{}", fmt::join(numbers.begin(), numbers.begin() + count, "x"));
    };
    text += fmt::format("{} by {} in {}; ", list(map.sizes, map.rank),
                        list(map.strides, map.rank - 1), list(map.box, map.rank));
  }
  return text;
}

// A gathered A has no window, and the halves of B are a dimension of its window.
TEST(OutputsLaunch, HasWindowsWhoseHalvesAreADimension) {
  EXPECT_EQ(windows_of(kUp,
                       "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous "
                       "gate=silu_mul indexing=gathered index_room=50"),
            "64x256x2x3 by 128x32768x65536 in 64x64x1x1; 256x400x1 by 512x512 in 64x64x1; ");
  EXPECT_EQ(
      windows_of("bf16_rcr_tmaws_128x16x64_1x1x1_64x16x16_gatesilumul_interleaved_cooperative_"
                 "s4_swap",
                 "gemm m=400 n=512 k=64 dtype=bf16 gate=silu_mul gate_interleaved=1"),
      "64x400x1 by 128x128 in 64x16x1; 64x256x2x1 by 256x128x128 in 64x64x1x1; "
      "256x400x1 by 512x512 in 64x16x1; ");
  EXPECT_EQ(
      windows_of(kUpByRows, "gemm m=40 n=512 k=96 dtype=bf16 layout=rrr gate=silu_mul batch=3"),
      "96x40x3 by 192x7680 in 64x128x1; 256x96x2x3 by 1024x512x98304 in 64x64x1x1; "
      "256x40x3 by 512x20480 in 64x64x1; ");
}

// Scales lie behind the other arguments, also where nothing is multiplied.
TEST(OutputsLaunch, ByTheCopyEngineHasTheScales) {
  for (const char* k : {"208", "0"}) {
    const std::string line = fmt::format(
        "gemm m=400 n=512 k={} a=fp8 out=bf16 scale_a=1x128 scale_b=128x128 groups=3 "
        "grouping=contiguous gate=silu_mul indexing=gathered index_room=50 stride_scale_a_m=1 "
        "stride_scale_a_k=60",
        k);
    const Launch launch = launch_of(kernel(kScaledUp), line.c_str());
    EXPECT_EQ(launch.steps.size(), 1U);
    device::CudaScaledTmaOutputArguments arguments;
    ASSERT_EQ(launch.arguments.size(), sizeof(arguments));
    std::memcpy(static_cast<void*>(&arguments), launch.arguments.data(), sizeof(arguments));
    EXPECT_EQ(arguments.cuda.index_room, 50);
    EXPECT_EQ(arguments.scales.a.stride_rows, 1);
    EXPECT_EQ(arguments.scales.a.stride_k, 60);
    EXPECT_EQ(arguments.scales.a.batch_stride, 0);
    EXPECT_EQ(arguments.scales.b.batch_stride, k[0] == '0' ? 0 : 4 * 2);
  }
}

TEST(OutputsLaunch, ByTheCopyEngineHasThePlacesOfItsOwnScales) {
  const Launch launch = launch_of(
      kernel("fp8_rcr_tmaws_256x64x128_2x1x1_64x64x32_outfp8_groupscontiguous_scalea1x128_"
             "scaleb128x128_gatesilumul_rowsgathered_quantblock_cooperative_s4_swap"),
      "gemm m=400 n=1024 k=256 a=fp8 out=fp8 scale_a=1x128 scale_b=128x128 groups=3 "
      "grouping=contiguous gate=silu_mul indexing=gathered index_room=50 quant=block");
  EXPECT_EQ(launch.steps.size(), 1U);
  device::CudaScaledTmaOutputArguments arguments;
  std::memcpy(static_cast<void*>(&arguments), launch.arguments.data(), sizeof(arguments));
  EXPECT_EQ(arguments.out_scales, reinterpret_cast<const float*>(any_place));
  EXPECT_EQ(arguments.row_of_scales, 4);
  EXPECT_EQ(arguments.block_of_scales, 1);
  EXPECT_EQ(arguments.step_of_scales, 4);
  EXPECT_EQ(arguments.matrix_of_scales, 0);
  EXPECT_EQ(arguments.cuda.product.has_out_map, 0);
}

TEST(OutputsLaunch, RefusesGatheredRowsAtAnOddAddress) {
  const Problem problem = parse_problem(
      "gemm m=40 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous gate=silu_mul "
      "indexing=gathered index_room=50");
  try {
    gemm::bind(kernel(kUp), problem, sm90a(), operands_at(problem, any_place + 2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a must be aligned to 16 bytes for tmaws"),
              std::string::npos);
  }
}

// ---- what is chosen ----

// The legal kernel with the least estimate.
KernelSpec best_for(const Problem& problem) {
  const std::vector<KernelSpec> all = gemm::legal_candidates(problem, sm90a());
  const auto seconds = [&](const KernelSpec& spec) {
    return estimate(spec, problem, sm90a(), 1).seconds;
  };
  return *std::min_element(all.begin(), all.end(), [&](const KernelSpec& a, const KernelSpec& b) {
    return seconds(a) < seconds(b);
  });
}

// The layers of two mixtures of experts, from one token to many: one step each.
TEST(OutputsChoice, TakesTheCopyEngineForExperts) {
  struct Layer {
    int experts, hidden, inner;
  };
  for (const Layer& layer : {Layer{128, 2048, 768}, Layer{256, 7168, 2048}}) {
    for (const int tokens : {1, 16, 128, 1024, 4096}) {
      const std::string up = fmt::format(
          "gemm m={} n={} k={} dtype=bf16 groups={} grouping=contiguous gate=silu_mul "
          "indexing=gathered index_room={}",
          8 * tokens, 2 * layer.inner, layer.hidden, layer.experts, tokens);
      const std::string down = fmt::format(
          "gemm m={} n={} k={} dtype=bf16 d=fp32 groups={} grouping=contiguous indexing=scattered "
          "index_room={} epilogue=row_scale",
          8 * tokens, layer.hidden, layer.inner, layer.experts, 8 * tokens);
      const auto scaled = [](std::string line) {
        line.replace(line.find("dtype=bf16"), 10, "a=fp8 out=bf16 scale_a=1x128 scale_b=128x128");
        return line;
      };
      for (const std::string& line : {up, down, scaled(up), scaled(down)}) {
        const KernelSpec chosen = best_for(parse_problem(line));
        EXPECT_EQ(chosen.algorithm.pipeline, Pipeline::tmaws) << line;
        const int rows =
            chosen.algorithm.swap_ab ? chosen.algorithm.tile.n : chosen.algorithm.tile.m;
        EXPECT_LE(rows, tokens <= 16 ? 64 : 256) << line << ": " << name_of(chosen);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::gemm
