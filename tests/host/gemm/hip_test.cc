// Kernels for AMD GPUs: their text, the launches they are bound to, which problems they serve, and
// what is predicted of them. No GPU and no compiler is needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

using device::HipGemmArguments;

KernelSpec spec_of(const std::string& name) { return parse_name(name); }

HipGemmArguments hip_arguments(const Launch& launch) {
  HipGemmArguments arguments{};
  std::memcpy(&arguments, launch.arguments.data(), sizeof arguments);
  return arguments;
}

// ---- text ----

TEST(HipText, IsAPureFunctionOfTheSpec) {
  const Target target = load_target("gfx942");
  const Source source = family().emit(
      spec_of("gemm_fp8_bf8_rcr_compv4_128x128x64_2x2x1_32x32x32_outbf16_bias_relu_intrawave_"
              "persistent_gfx942"),
      target);
  EXPECT_EQ(source.extension, ".hip");
  EXPECT_EQ(source.entries, std::vector<std::string>{""});
  std::string text = source.text.substr(source.text.find("#include"));
  for (std::size_t at = text.find(source.name); at != text.npos; at = text.find(source.name)) {
    text.replace(at, source.name.size(), "NAME");
  }
  EXPECT_EQ(text, R"(#include "tessera/device/hip/gemm/mfma_gemm.h"

using namespace tessera::device;

struct Config {
  using A = fp8;
  using B = bf8;
  using Acc = float;
  using Out = bf16;
  using D = bf16;
  static constexpr int kTileM = 128, kTileN = 128, kTileK = 64;
  static constexpr int kWaveM = 2, kWaveN = 2;
  static constexpr int kWarpTileM = 32, kWarpTileN = 32, kWarpTileK = 32;
  static constexpr int kBuffers = 2, kPrefetch = 1;
  static constexpr bool kDirectToLds = false;
  static constexpr int kSlices = 1;
  static constexpr bool kAtomicSplit = false, kPersistent = true;
  static constexpr bool kAKContiguous = true, kBKContiguous = true, kPreshuffled = false;
  static constexpr int kXcds = 8;
  static constexpr int kNumSteps = 2, kNumD = 1;
  static constexpr Step kSteps[] = {Step::bias, Step::relu};
};

using Kernel = MfmaGemm<Config>;

extern "C" {
__attribute__((device, used)) extern const int NAME_abi =
    5;
__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads),
               amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))
void NAME(
    HipGemmArguments arguments) {
  Kernel::run(arguments);
}
}
)");
}

TEST(HipText, NamesTheTemplateAndTheEntries) {
  const Target target = load_target("gfx950");
  const Source direct = family().emit(spec_of("gemm_tf32_rrr_direct_64x64x16_2x2x1_4x4x1_gfx942"),
                                      load_target("gfx942"));
  EXPECT_NE(direct.text.find("hip/gemm/general_gemm.h"), std::string::npos);
  EXPECT_NE(direct.text.find("using Kernel = GeneralGemm<Config>;"), std::string::npos);
  EXPECT_NE(direct.text.find("using A = tf32;"), std::string::npos);
  EXPECT_NE(direct.text.find("using Out = float;"), std::string::npos);
  const Source async = family().emit(
      spec_of("gemm_fp16_rcr_async_128x128x64_2x2x1_32x32x16_presh_intrawave_s3_gfx950"), target);
  EXPECT_NE(async.text.find("kBuffers = 3, kPrefetch = 0;"), std::string::npos);
  EXPECT_NE(async.text.find("kDirectToLds = true;"), std::string::npos);
  EXPECT_EQ(async.entries, (std::vector<std::string>{"", "_pack"}));
  EXPECT_NE(async.text.find("_pack(HipGemmArguments arguments, void* packed)"), std::string::npos);
}

TEST(HipText, WordsOfCkTileOnlyAreRefused) {
  for (const std::string name :
       {"gemm_fp16_rcr_compv5_128x128x64_2x2x1_32x32x8_intrawave_gfx942",
        "gemm_fp16_rcr_compv3_128x128x64_2x2x1_4x64x16_intrawave_gfx942",
        "gemm_fp16_rcr_mem_128x128x64_2x2x1_32x32x16_interwave_gfx942",
        "gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle_gfx942"}) {
    const KernelSpec spec = spec_of(name);
    EXPECT_NE(family()
                  .is_legal(spec, load_target("gfx942"))
                  .reason.find("CK Tile has it (--source cktile)"),
              std::string::npos)
        << name;
  }
}

// ---- launches ----

TEST(HipLaunch, OneBlockATile) {
  const KernelSpec spec =
      spec_of("gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_gfx942");
  GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 300, 129, 64);
  p.batch = 5;
  const Launch launch = family().bind(spec, p, load_target(spec.target), GemmOperands{});
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].grid, (std::array<unsigned, 3>{3 * 2 * 5, 1, 1}));
  EXPECT_EQ(launch.steps[0].block, (std::array<unsigned, 3>{256, 1, 1}));
  EXPECT_EQ(launch.steps[0].extent, Step::Extent::exact);
  EXPECT_EQ(launch.steps[0].shared_memory_bytes, 0U) << "LDS is the kernel's own";
  EXPECT_EQ(launch.workspace.bytes, 0U);
  EXPECT_EQ(launch.blocks_offset, 0U);
  EXPECT_EQ(hip_arguments(launch).blocks, 30);
  EXPECT_EQ(hip_arguments(launch).raster_group, kRasterGroup);
}

TEST(HipLaunch, PersistentBlocksAreCountedByTheBackend) {
  const KernelSpec spec =
      spec_of("gemm_fp16_rcr_compv4_128x128x32_2x4x1_16x16x32_intrawave_persistent_gfx942");
  const Launch launch =
      family().bind(spec, gemm_problem(DType::fp16, GemmLayout::rcr, 1000, 1000, 64),
                    load_target(spec.target), GemmOperands{});
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].extent, Step::Extent::resident);
  EXPECT_EQ(launch.steps[0].block[0], 512U);
  EXPECT_EQ(launch.blocks_offset, offsetof(HipGemmArguments, blocks));
}

TEST(HipLaunch, SlicesShareAWorkspace) {
  const GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 65, 64, 4096);
  const std::int64_t tile = 64 * 64 * 4;
  const Launch ordered = family().bind(
      spec_of("gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitordered1_slices4_gfx942"),
      p, load_target("gfx942"), GemmOperands{});
  EXPECT_EQ(ordered.steps[0].grid[0], 2U * 4);
  EXPECT_EQ(hip_arguments(ordered).partial_sums, device::kHipCounterBytes);
  EXPECT_EQ(hip_arguments(ordered).partial_bytes, 2 * 4 * tile);
  EXPECT_EQ(ordered.workspace.bytes, device::kHipCounterBytes + 2U * 4 * tile);
  EXPECT_EQ(ordered.workspace.counter_bytes, static_cast<std::size_t>(device::kHipCounterBytes));
  EXPECT_EQ(ordered.workspace.clear_bytes, 0U);
  EXPECT_EQ(ordered.workspace.address_offset, offsetof(HipGemmArguments, workspace));
  const Launch atomic = family().bind(
      spec_of("gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitatomic1_slices4_gfx942"), p,
      load_target("gfx942"), GemmOperands{});
  EXPECT_EQ(hip_arguments(atomic).partial_bytes, 2 * tile);
  EXPECT_EQ(atomic.workspace.clear_bytes, 2U * tile) << "sums begin at zero";
}

TEST(HipLaunch, EmptyProblemsHaveNoSteps) {
  const KernelSpec spec = spec_of("gemm_fp16_rcr_direct_64x64x16_2x2x1_4x4x1_gfx942");
  for (const GemmProblem& p : {gemm_problem(DType::fp16, GemmLayout::rcr, 0, 8, 8),
                               gemm_problem(DType::fp16, GemmLayout::rcr, 8, 0, 8)}) {
    EXPECT_TRUE(family().bind(spec, p, load_target(spec.target), GemmOperands{}).steps.empty());
  }
  const Launch no_k = family().bind(spec, gemm_problem(DType::fp16, GemmLayout::rcr, 8, 8, 0),
                                    load_target(spec.target), GemmOperands{});
  EXPECT_EQ(no_k.steps.size(), 1U) << "C and the epilogue remain";
}

TEST(HipLaunch, PackedBHoldsWholeTiles) {
  const KernelSpec spec =
      spec_of("gemm_fp16_rcr_compv4_128x64x32_2x2x1_32x32x16_presh_intrawave_gfx942");
  GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 300, 65, 33);
  p.preshuffled_b = true;
  p.batch = 3;
  std::uint16_t b = 0, packed = 0;
  const auto made = prepack(spec, p, load_target("gfx942"), GemmOperands{.b = &b}, &packed);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->bytes, 3U * 2 * 2 * 64 * 32 * 2);
  ASSERT_EQ(made->launch.steps.size(), 1U);
  EXPECT_EQ(made->launch.steps[0].entry, kPackEntry);
  EXPECT_EQ(made->launch.steps[0].extent, Step::Extent::exact);
  EXPECT_EQ(hip_arguments(made->launch).blocks, static_cast<int>(made->launch.steps[0].grid[0]));
  EXPECT_EQ(made->launch.steps[0].grid[0], 3U * 2 * 2 * 64 * 32 * 2 / (256 * 16));
}

// ---- which problems ----

TEST(HipSupports, CountsIn32Bits) {
  const Target target = load_target("gfx942");
  const KernelSpec spec =
      spec_of("gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_gfx942");
  const KernelSpec direct = spec_of("gemm_fp16_rcr_direct_64x64x16_2x2x1_4x4x1_gfx942");
  const auto why = [&](const KernelSpec& kernel, const GemmProblem& p) {
    return supports(kernel, p, target).reason;
  };
  GemmProblem p = gemm_problem(DType::fp16, GemmLayout::rcr, 128, 128, 64);
  EXPECT_EQ(why(spec, p), "");
  p.k = std::int64_t{1} << 32;
  EXPECT_EQ(why(spec, p),
            "k must be at most 2147482624 with compv4, got 4294967296; use a direct kernel");
  EXPECT_EQ(why(direct, p), "");
  p = gemm_problem(DType::fp16, GemmLayout::rcr, 128, 128, 64);
  p.m = std::int64_t{1} << 30;
  p.batch = 1 << 20;
  EXPECT_EQ(
      why(spec, p),
      "compv4 counts tiles up to 2147482624, got about 8796093022208 of 128x128; use a direct "
      "kernel");
  EXPECT_EQ(why(direct, p), "");
  p = gemm_problem(DType::fp16, GemmLayout::rcr, 128, 128, 64);
  p.ld_b = (std::int64_t{1} << 31) / 128;
  EXPECT_EQ(
      why(spec, p),
      "ld_b must be at most 8388604 for the rows of a tile, got 16777216; use a direct kernel");
  EXPECT_EQ(why(direct, p), "");
}

TEST(HipSupports, EverySliceNeedsATileOfK) {
  const KernelSpec spec =
      spec_of("gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave_splitordered1_slices4_gfx942");
  EXPECT_EQ(
      supports(spec, gemm_problem(DType::fp16, GemmLayout::rcr, 8, 8, 192), load_target("gfx942"))
          .reason,
      "1 x 4 parts of K need as many tiles of 64, got 3 of k=192");
}

// ---- predictions ----

// Random problems of each target: what is predicted is finite, and the kernel for every problem is
// not thought the fastest where an MFMA kernel has a whole instruction to compute. With less, both
// take as long as a launch does.
TEST(HipEstimate, IsFiniteAndPrefersMfma) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const std::string name : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    for (int round = 0; round < 8; ++round) {
      const auto size = [&] { return std::int64_t{1} << (random() % 13); };
      const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, size(), size(), size());
      double best = INFINITY, general = 0;
      for (const KernelSpec& spec : candidates(p, target)) {
        if (!family().is_legal(spec, target) || !supports(spec, p, target)) continue;
        const Estimate e = family().estimate(spec, p, target, 0);
        ASSERT_TRUE(std::isfinite(e.seconds) && e.seconds > 0) << name_of(spec);
        ASSERT_LE(e.utilisation, 1) << name_of(spec);
        const bool is_general = spec.algorithm.pipeline == Pipeline::direct;
        (is_general ? general : best) = is_general ? e.seconds : std::min(best, e.seconds);
      }
      if (std::min({p.m, p.n, p.k}) < 16) continue;
      EXPECT_LT(best, general) << name << " " << to_string(Problem(p));
    }
  }
}

// The row's numbers matter: each part gets longer where the machine has less of it.
TEST(HipEstimate, FollowsTheRow) {
  const Target target = load_target("gfx942");
  const KernelSpec spec =
      spec_of("gemm_bf16_rcr_compv4_256x128x32_2x2x1_32x32x16_intrawave_gfx942");
  const GemmProblem p = with_strides(gemm_problem(DType::bf16, GemmLayout::rcr, 8192, 8192, 8192));
  const Estimate usual = estimate_hip(spec, p, target);
  Target slow = target;
  for (Instruction& i : slow.instructions) i.per_cycle /= 4;
  EXPECT_GT(estimate_hip(spec, p, slow).compute_seconds, 3 * usual.compute_seconds);
  slow = target;
  slow.shared_bytes_per_cycle /= 8;
  EXPECT_GT(estimate_hip(spec, p, slow).compute_seconds, 1.5 * usual.compute_seconds);
  slow = target;
  slow.caches[1].bytes_per_cycle /= 16;
  EXPECT_GT(estimate_hip(spec, p, slow).compute_seconds, 1.5 * usual.compute_seconds);
  slow = target;
  slow.memory_gb_per_s /= 2;
  EXPECT_GT(estimate_hip(spec, p, slow).memory_seconds, usual.memory_seconds);
  slow = target;
  slow.caches[2].bytes_per_cycle /= 8;
  EXPECT_GT(estimate_hip(spec, p, slow).memory_seconds, 2 * usual.memory_seconds);
  slow = target;
  slow.caches.pop_back();  // no Infinity Cache: what an L2 lacks is read from memory each time
  EXPECT_GT(estimate_hip(spec, p, slow).memory_seconds, 1.5 * usual.memory_seconds);
  Target one = target;
  one.xcds = 1;
  EXPECT_LT(estimate_hip(spec, p, one).memory_seconds, usual.memory_seconds);
}

TEST(HipEstimate, CountsLdsAsTheKernelDoes) {
  for (const std::string name : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    for (const KernelSpec& spec : family().preselected("fp16_rcr_all", target)) {
      if (!tile::is_mfma(spec.algorithm.pipeline)) continue;
      const std::int64_t tiles =
          tile::mfma_tiles(spec.algorithm).buffers * tile::mfma_stage_bytes(spec.algorithm, 2, 2);
      EXPECT_GE(hip_lds_bytes(spec), tiles) << name_of(spec);
      EXPECT_LE(hip_lds_bytes(spec), target.shared_memory_bytes) << name_of(spec);
    }
  }
}

}  // namespace
}  // namespace tessera::gemm
