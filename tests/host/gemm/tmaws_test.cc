// Hopper's tmaws kernels: their rules, their text, and the launches they are bound to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/tmaws.h"
#include "tessera/families/tile/wgmma.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

struct TmawsRefusal {
  const char* name;
  const char* reason;  // empty: legal
};
void PrintTo(const TmawsRefusal& row, std::ostream* out) { *out << row.name; }

class TmawsLegality : public testing::TestWithParam<TmawsRefusal> {};

TEST_P(TmawsLegality, GivesTheReasonWithBothNumbers) {
  const KernelSpec spec = parse_name(GetParam().name);
  EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, GetParam().reason);
}

const TmawsRefusal kTmawsRefusals[] = {
    {"gemm_bf16_crr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_c2x1_sm90a", ""},
    {"gemm_tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_pingpong_s6_sm90a", ""},
    {"gemm_fp8_bf8_rcr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_presh_pingpong_s6_sm90a", ""},
    {"gemm_fp8_rrr_tmaws_128x128x128_2x1x1_64x128x32_presh_pingpong_s6_sm90a", ""},
    {"gemm_fp8_crr_tmaws_128x128x128_2x1x1_64x128x32_presh_pingpong_s6_sm90a",
     "wgmma takes fp8 operands with k contiguous only (rcr, or repack), got crr"},
    {"gemm_tf32_ccr_tmaws_128x128x32_2x1x1_64x128x8_pingpong_s6_sm90a",
     "wgmma takes tf32 operands with k contiguous only (rcr, or repack), got ccr"},
    {"gemm_fp8_rcr_tmaws_128x128x64_2x1x1_64x128x32_pingpong_s6_sm90a",
     "tile_k must be a multiple of 128 for fp8 (128 bytes), got 64"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_persistent_sm90a",
     "persistent must be false with tmaws, got true"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_storecshuffle_s6_sm90a",
     "tmaws stores by tma, direct or standard (whichever fits), got cshuffle"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_relu_pingpong_storetma_s6_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_gelu_pingpong_storetma_s6_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_gelu_add_pingpong_storetma_s6_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16_relu_pingpong_storetma_s4_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16_gelu_pingpong_storetma_s4_sm90a",
     "tma stores 16-bit outputs after steps that read a bias and two matrices of 16 bits at most, "
     "all but relu and clamp beside at most 160 accumulators a thread, with swap_ab after nothing, "
     "got out=bf16 swap_ab=0 epilogue=gelu; use the standard store"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_multidadd3_pingpong_storetma_s6_sm90a",
     "tma stores 16-bit outputs after steps that read a bias and two matrices of 16 bits at most, "
     "all but relu and clamp beside at most 160 accumulators a thread, with swap_ab after nothing, "
     "got out=bf16 swap_ab=0 epilogue=multi_d_add3; use the standard store"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_outfp32_pingpong_storetma_s6_sm90a",
     "tma stores 16-bit outputs after steps that read a bias and two matrices of 16 bits at most, "
     "all but relu and clamp beside at most 160 accumulators a thread, with swap_ab after nothing, "
     "got out=fp32 swap_ab=0 epilogue=none; use the standard store"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitatomic2_s6_sm90a",
     "slices of K may be added atomically, splits are added in order: split_k=atomic needs at "
     "least 2 slices, got slices=1 and splits=2"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered9_s6_sm90a",
     "K is split over 1 to 8 blocks of a cluster, got 9"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_slices65_s6_sm90a",
     "K is cut into 1 to 64 slices, got 65"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_s6_sm90a",
     "split_k must be none for splits=1 and slices=1, got ordered"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered2_s6_c2x1_sm90a",
     "splits and slices of K need a 1x1 cluster, got 2x1 with splits=2 and slices=1"},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered3_s6_sm90a",
     "tile_n must be a multiple of 24 for 3 splits of K, got 64"},
    {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_splitordered1_slices4_s6_sm90a",
     "splits and slices of K need the cooperative scheduler, got pingpong with splits=1 and "
     "slices=4"},
    {"gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered4_slices16_s8_swap_"
     "sm90a",
     ""},
    {"gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitatomic1_slices16_s6_sm90a", ""},
    {"gemm_fp8_crr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_repack_sm90a", ""},
    {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_splitordered2_s3_sm90a",
     "needs 192 accumulators a thread for 2 splits, at most 144 fit"},
    {"gemm_bf16_rrr_tmaws_128x160x64_2x1x1_64x160x16_pingpong_s6_sm90a",
     "needs 254056 bytes of shared memory (6 stages of 40960 and the rest), sm90a has 232448"},
    {"gemm_bf16_rcr_tmaws_128x16x64_2x1x1_64x16x16_cooperative_s4_c4x1_sm90a",
     "tile 128x16x64 does not split into parts of 8 lines over a 4x1 cluster"},
};

INSTANTIATE_TEST_SUITE_P(Table, TmawsLegality, testing::ValuesIn(kTmawsRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(TmawsLegality, Int8HasWgmmaOfFewerWidths) {
  Target target = load_target("sm90a");
  target.spaces.at(Op::gemm).warp_tiles.at(DType::int8).push_back({64, 40, 32});
  const KernelSpec spec =
      parse_name("gemm_int8_rcr_tmaws_64x40x128_1x1x1_64x40x32_cooperative_s4_sm90a");
  EXPECT_EQ(family().is_legal(spec, target).reason,
            "wgmma takes 8, 16, 24 and multiples of 16 columns of int8 up to 256, got tile_n 40");
}

std::string refusal(const char* name, std::string_view line) {
  const KernelSpec spec = parse_name(name);
  return supports(spec, parse_problem(line), load_target(spec.target)).reason;
}

TEST(TmawsSupports, StoreByTmaNeedsAlignedOutput) {
  constexpr const char* kTma =
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_storetma_s6_sm90a";
  constexpr const char* kStandard =
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a";
  constexpr const char* kLine = "gemm m=64 n=100 k=64 dtype=bf16 ld_out=104";
  EXPECT_EQ(refusal(kStandard, kLine), "");
  EXPECT_EQ(refusal(kTma, kLine),
            "n and the strides of out must be multiples of 8 for bf16 output stored by tma, got "
            "n=100 ld_out=104 batch_stride_out=0; use the standard store");
  EXPECT_EQ(refusal(kTma, "gemm m=64 n=104 k=64 dtype=bf16"), "");
}

TEST(TmawsSupports, SizesBeyondTheCopyEngine) {
  constexpr const char* kName = "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a";
  EXPECT_EQ(refusal(kName, "gemm m=2147483648 n=8 k=8 dtype=bf16"),
            "m must be at most 2147482624 with tmaws, got 2147483648");
  EXPECT_EQ(refusal(kName, "gemm m=8 n=8 k=8 dtype=bf16 ld_b=549755813888"),
            "the strides of b must be below 2^40 bytes with tmaws, got ld_b=549755813888 "
            "batch_stride_b=0");
  EXPECT_EQ(refusal(kName, "gemm m=2147482624 n=2147482624 k=8 dtype=bf16"),
            "tmaws counts its blocks up to 2147482624, got about 281474775384100 tiles of 128x128");
}

TEST(TmawsSupports, PointerArraysAreRepacked) {
  constexpr const char* kLine = "gemm m=64 n=64 k=64 dtype=bf16 batch=3 pointer_arrays=1";
  EXPECT_EQ(refusal("gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a", kLine),
            "the copy engine of tmaws does not follow pointer_arrays; use a cpasync kernel or one "
            "with repack");
  EXPECT_EQ(
      refusal("gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_storetma_s6_repack_sm90a",
              kLine),
      "the tma store does not follow pointer_arrays; use the standard store");
  EXPECT_EQ(
      refusal("gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_sm90a", kLine),
      "");
  EXPECT_EQ(refusal("gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_s3_sm90a", kLine), "");
}

TEST(TmawsSupports, PackedBMayHaveAnyRows) {
  constexpr const char* kName =
      "gemm_bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_presh_pingpong_s6_sm90a";
  EXPECT_EQ(refusal(kName, "gemm m=64 n=99 k=64 dtype=bf16 layout=rrr preshuffle=1"), "");
}

// ---- text ----

constexpr std::string_view kText = R"(#include "tessera/device/cuda/gemm/tma_gemm.h"

namespace tessera::device {

template <>
struct Wgmma<bf16, bf16, 16, WgmmaFrom::k_lines, WgmmaFrom::row_lines> {
  using Acc = float;
  static __device__ __forceinline__ void multiply(Acc (&d)[8], u64 p, u64 q, int accumulate) {
    asm volatile(
        "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16\n"
        "{"
        "%0, %1, %2, %3, %4, %5,"
        "%6, %7"
        "}, %8, %9, accumulate, 1, 1, 0, 1;\n}"
        :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7])
        : "l"(p), "l"(q), "r"(accumulate));
  }
};

}  // namespace tessera::device

using namespace tessera::device;
)";

TEST(TmawsEmit, WritesInstructionConfigAndPackingKernel) {
  const std::string name =
      "gemm_bf16_crr_tmaws_64x16x128_1x1x1_64x16x16_presh_bias_relu_cooperative_s4_swap_sm90a";
  const Source source = family().emit(parse_name(name), load_target("sm90a"));
  EXPECT_EQ(source.name, name);
  EXPECT_EQ(source.extension, ".cu");
  const auto include = source.text.find("#include");
  ASSERT_NE(include, std::string::npos);
  EXPECT_EQ(source.text.substr(include, kText.size()), kText);
  for (const char* line : {
           "  static constexpr int kTileM = 64, kTileN = 16, kTileK = 128;\n",
           "  static constexpr bool kPingpong = false, kSwapAb = true, kDirectStore = false;\n",
           "kPreshuffled = true;\n",
           "  static constexpr int kSharedBytes = 135240;\n",
           "using Kernel = TmaGemm<Config>;\n",
           "  PackedB<Config>::pack(arguments, packed);\n",
       }) {
    EXPECT_NE(source.text.find(line), std::string::npos) << line << source.text;
  }
}

TEST(TmawsEmit, NamesTheInstructionOfEveryType) {
  const std::pair<const char*, const char*> rows[] = {
      {"gemm_fp16_ccr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
       "m64n128k16.f32.f16.f16\\n|, accumulate, 1, 1, 1, 0;"},
      {"gemm_bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
       "m64n128k16.f32.bf16.bf16\\n|, accumulate, 1, 1, 0, 1;"},
      {"gemm_tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_pingpong_s6_sm90a",
       "m64n128k8.f32.tf32.tf32\\n|, accumulate, 1, 1;"},
      {"gemm_fp8_bf8_rcr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_sm90a",
       "m64n128k32.f32.e4m3.e5m2\\n|, accumulate, 1, 1;"},
      {"gemm_fp8_bf8_rcr_tmaws_64x16x128_1x1x1_64x16x32_cooperative_s6_swap_sm90a",
       "m64n16k32.f32.e5m2.e4m3\\n|, accumulate, 1, 1;"},
      {"gemm_int8_rcr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_sm90a",
       "m64n128k32.s32.s8.s8\\n|, accumulate;"},
  };
  for (const auto& [name, parts] : rows) {
    const std::string text = wgmma_text(parse_name(name));
    const std::string_view both = parts;
    const auto bar = both.find('|');
    EXPECT_NE(text.find(both.substr(0, bar)), std::string::npos) << name << '\n' << text;
    EXPECT_NE(text.find(both.substr(bar + 1)), std::string::npos) << name << '\n' << text;
  }
}

// ---- launches ----

GemmOperands operands() {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  GemmOperands o;
  o.a = at(0x10000), o.b = at(0x20000), o.c = at(0x30000), o.out = at(0x40000);
  return o;
}

Launch launch_of(const char* name, std::string_view line, const GemmOperands& o = operands()) {
  return gemm::family().bind(parse_name(name), parse_problem(line), load_target("sm90a"), o);
}

// "a@0x10000 fp16 48x100x1 by 96,96 box 64x128 swizzle 128"
std::string text_of(const TensorMap& map) {
  constexpr const char* kNames[] = {"a", "b", "out", "d0", "d1"};  // one after the other
  const char* name = kNames[map.offset / sizeof(device::CudaTensorMap)];
  std::ostringstream text;
  text << name << '@';
  if (map.in_workspace) {
    text << "workspace+" << map.workspace_offset;
  } else {
    text << map.base;
  }
  text << ' ' << to_string(map.dtype) << ' ' << map.sizes[0] << 'x' << map.sizes[1] << 'x'
       << map.sizes[2] << " by " << map.strides[0] << ',' << map.strides[1] << " box " << map.box[0]
       << 'x' << map.box[1] << 'x' << map.box[2] << " swizzle " << map.swizzle_bytes;
  return text.str();
}

// Blocks of the step that comes before the kernel's own; 0: there is none.
unsigned prepare_blocks(const Launch& launch) {
  if (launch.steps.size() == 1) return 0;
  const Step& step = launch.steps[0];
  EXPECT_EQ(launch.steps.size(), 2U);
  EXPECT_EQ(step.entry, 1);
  EXPECT_EQ(step.extent, Step::Extent::any);
  EXPECT_EQ(step.block[0], 256U);
  EXPECT_EQ(launch.steps[1].entry, 0);
  return step.grid[0];
}

std::string maps_of(const Launch& launch) {
  std::string text;
  for (const TensorMap& map : launch.tensor_maps) text += text_of(map) + '\n';
  return text;
}

struct Windows {
  const char* name;
  const char* line;
  const char* maps;
};

TEST(TmawsBind, ShowsTheCopyEngineWhatTheKernelFetches) {
  const Windows rows[] = {
      {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_c2x1_sm90a",
       "gemm m=1000 n=504 k=72 dtype=bf16",
       "a@0x10000 bf16 72x1000x1 by 144,144 box 64x128x1 swizzle 128\n"
       "b@0x20000 bf16 72x504x1 by 144,144 box 64x128x1 swizzle 128\n"
       "out@0x40000 bf16 504x1000x1 by 1008,1008 box 64x64x1 swizzle 128\n"},
      {"gemm_bf16_crr_tmaws_128x160x64_2x1x1_64x160x16_pingpong_s4_c1x2_sm90a",
       "gemm m=96 n=504 k=70 dtype=bf16 layout=crr batch=3",
       "a@0x10000 bf16 96x70x3 by 192,13440 box 64x32x1 swizzle 128\n"
       "b@0x20000 bf16 504x70x3 by 1008,70560 box 64x64x1 swizzle 128\n"
       "out@0x40000 bf16 504x96x3 by 1008,96768 box 32x64x1 swizzle 64\n"},
      {"gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_sm90a",
       "gemm m=96 n=64 k=80 dtype=fp8 ld_a=96 batch=2 batch_stride_b=0",
       "a@0x10000 fp8 80x96x2 by 96,9216 box 128x128x1 swizzle 128\n"
       "b@0x20000 fp8 80x64x1 by 80,80 box 128x128x1 swizzle 128\n"
       "out@0x40000 fp16 64x96x2 by 128,12288 box 64x64x1 swizzle 128\n"},
      {"gemm_tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_pingpong_s6_sm90a",
       "gemm m=96 n=64 k=80 dtype=tf32",
       "a@0x10000 tf32 80x96x1 by 320,320 box 32x128x1 swizzle 128\n"
       "b@0x20000 tf32 80x64x1 by 320,320 box 32x128x1 swizzle 128\n"},
      {"gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered2_s9_swap_sm90a",
       "gemm m=5 n=64 k=80 dtype=bf16",
       "a@0x10000 bf16 80x5x1 by 160,160 box 64x16x1 swizzle 128\n"
       "b@0x20000 bf16 80x64x1 by 160,160 box 64x64x1 swizzle 128\n"
       "out@0x40000 bf16 64x5x1 by 128,128 box 64x8x1 swizzle 128\n"},
      // An output that the copy engine cannot write, a packed B, and nothing to multiply.
      {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_presh_pingpong_s6_sm90a",
       "gemm m=96 n=65 k=80 dtype=bf16 preshuffle=1",
       "a@0x10000 bf16 80x96x1 by 160,160 box 64x128x1 swizzle 128\n"},
      {"gemm_bf16_rcr_tmaws_128x176x64_2x1x1_64x176x16_pingpong_s5_sm90a",
       "gemm m=96 n=64 k=0 dtype=bf16 beta=1",
       "out@0x40000 bf16 64x96x1 by 128,128 box 16x64x1 swizzle 32\n"},
  };
  for (const Windows& row : rows) {
    EXPECT_EQ(maps_of(launch_of(row.name, row.line)), row.maps) << row.name;
  }
}

// D tensors of m x n come by the copy engine, in the windows of the output; then these are
// narrower.
TEST(TmawsBind, ShowsTheCopyEngineMatricesOfTheEpilogue) {
  constexpr const char* kAdd =
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_add_pingpong_s6_sm90a";
  constexpr const char* kTwo =
      "gemm_bf16_rcr_tmaws_128x160x64_2x1x1_64x160x16_multidadd2_pingpong_s5_sm90a";
  const Windows rows[] = {
      {kAdd, "gemm m=96 n=64 k=0 dtype=bf16 epilogue=bias+add batch=2",
       "out@0x40000 bf16 64x96x2 by 128,12288 box 32x64x1 swizzle 64\n"
       "d0@0x60000 bf16 64x96x2 by 128,12288 box 32x64x1 swizzle 64\n"},
      {kTwo, "gemm m=96 n=64 k=0 dtype=bf16 epilogue=multi_d_add2 ld_d0=72",
       "out@0x40000 bf16 64x96x1 by 128,128 box 16x64x1 swizzle 32\n"
       "d0@0x50000 bf16 64x96x1 by 144,144 box 16x64x1 swizzle 32\n"
       "d1@0x60000 bf16 64x96x1 by 128,128 box 16x64x1 swizzle 32\n"},
      // A matrix that it cannot read is left to threads, and the output with it.
      {kAdd, "gemm m=96 n=64 k=0 dtype=bf16 epilogue=bias+add ld_d1=65", ""},
  };
  GemmOperands o = operands();
  o.d[0] = reinterpret_cast<void*>(std::uintptr_t{0x50000});
  o.d[1] = reinterpret_cast<void*>(std::uintptr_t{0x60000});
  for (const Windows& row : rows) {
    EXPECT_EQ(maps_of(launch_of(row.name, row.line, o)), row.maps) << row.line;
  }
}

// What the copy engine cannot read is copied first, and only that.
TEST(TmawsBind, RepacksWhatTheCopyEngineCannotRead) {
  constexpr const char* kBf16 =
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_sm90a";
  constexpr const char* kFp8 =
      "gemm_fp8_crr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_repack_sm90a";
  const Windows rows[] = {
      {kBf16, "gemm m=100 n=64 k=72 dtype=bf16",
       "a@0x10000 bf16 72x100x1 by 144,144 box 64x128x1 swizzle 128\n"
       "b@0x20000 bf16 72x64x1 by 144,144 box 64x128x1 swizzle 128\n"
       "out@0x40000 bf16 64x100x1 by 128,128 box 64x64x1 swizzle 128\n"},
      {kBf16, "gemm m=100 n=64 k=71 dtype=bf16 ld_b=80 batch=3",
       "a@workspace+65536 bf16 71x100x3 by 256,25600 box 64x128x1 swizzle 128\n"
       "b@0x20000 bf16 71x64x3 by 160,10240 box 64x128x1 swizzle 128\n"
       "out@0x40000 bf16 64x100x3 by 128,12800 box 64x64x1 swizzle 128\n"},
      // The rows of k that wgmma wants of 8-bit types: both are transposed.
      {kFp8, "gemm m=96 n=80 k=130 dtype=fp8 layout=crr",
       "a@workspace+65536 fp8 130x96x1 by 256,256 box 128x128x1 swizzle 128\n"
       "b@workspace+90112 fp8 130x80x1 by 256,256 box 128x128x1 swizzle 128\n"
       "out@0x40000 fp16 80x96x1 by 160,160 box 64x64x1 swizzle 128\n"},
  };
  for (const Windows& row : rows) {
    EXPECT_EQ(maps_of(launch_of(row.name, row.line)), row.maps) << row.line;
  }
  EXPECT_EQ(prepare_blocks(launch_of(kBf16, "gemm m=100 n=64 k=72 dtype=bf16")), 0U);
  EXPECT_EQ(launch_of(kBf16, "gemm m=100 n=64 k=72 dtype=bf16").workspace.bytes, 0U);
  const Launch launch = launch_of(kFp8, "gemm m=96 n=80 k=130 dtype=fp8 layout=crr");
  EXPECT_EQ(launch.workspace.bytes, 65536U + 96 * 256 + 80 * 256);
  EXPECT_EQ(launch.workspace.counter_bytes, 0U);
  EXPECT_EQ(prepare_blocks(launch), 2U * 3 + 2 * 3);  // squares of 64
  // An address will do as well.
  GemmOperands o = operands();
  o.a = reinterpret_cast<const void*>(std::uintptr_t{0x10002});
  EXPECT_EQ(prepare_blocks(launch_of(kBf16, "gemm m=100 n=64 k=72 dtype=bf16", o)), 13U);
  // Operands that are null may lie anywhere: as much workspace as both copies need.
  const Launch anywhere = launch_of(kBf16, "gemm m=100 n=64 k=72 dtype=bf16", {});
  EXPECT_EQ(anywhere.workspace.bytes, 65536U + 100 * 256 + 64 * 256);
}

// Both operands are gathered, however aligned; out has no window.
TEST(TmawsBind, GathersWhatPointerArraysName) {
  constexpr const char* kBf16 =
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_sm90a";
  constexpr const char* kFp8 =
      "gemm_fp8_crr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_repack_sm90a";
  const Windows rows[] = {
      {kBf16, "gemm m=100 n=64 k=72 dtype=bf16 batch=3 pointer_arrays=1",
       "a@workspace+65536 bf16 72x100x3 by 256,25600 box 64x128x1 swizzle 128\n"
       "b@workspace+142336 bf16 72x64x3 by 256,16384 box 64x128x1 swizzle 128\n"},
      {kBf16, "gemm m=100 n=64 k=64 dtype=bf16 pointer_arrays=1",
       "a@workspace+65536 bf16 64x100x1 by 128,128 box 64x128x1 swizzle 128\n"
       "b@workspace+78336 bf16 64x64x1 by 128,128 box 64x128x1 swizzle 128\n"},
      {kFp8, "gemm m=96 n=80 k=130 dtype=fp8 layout=crr batch=2 pointer_arrays=1",
       "a@workspace+65536 fp8 130x96x2 by 256,24576 box 128x128x1 swizzle 128\n"
       "b@workspace+114688 fp8 130x80x2 by 256,20480 box 128x128x1 swizzle 128\n"},
      {kBf16, "gemm m=100 n=64 k=0 dtype=bf16 batch=2 pointer_arrays=1", ""},
  };
  for (const Windows& row : rows) {
    const Launch launch = launch_of(row.name, row.line);
    EXPECT_EQ(maps_of(launch), row.maps) << row.line;
    device::CudaGemmArguments arguments;
    std::memcpy(&arguments, launch.arguments.data(), sizeof(arguments));
    EXPECT_EQ(arguments.gemm.pointer_arrays, 1);
    // Arrays that a caller may leave out are one that is there.
    const bool is_read = !launch.tensor_maps.empty();
    EXPECT_EQ(arguments.gemm.a, is_read ? operands().a : operands().out);
    EXPECT_EQ(arguments.gemm.c, operands().out);
  }
}

TEST(TmawsBind, SlicesOfKAddUpInTheWorkspace) {
  const auto name = [](const char* split) {
    return fmt::format("gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_{}_s8_swap_sm90a",
                       split);
  };
  constexpr const char* kLine = "gemm m=17 n=129 k=8192 dtype=bf16";  // 3 x 2 tiles
  // Two blocks of a cluster own 8 columns each, a group's sums are 64 x 8 x 4 bytes.
  const Launch ordered = launch_of(name("splitordered4_slices16").c_str(), kLine);
  EXPECT_EQ(prepare_blocks(ordered), 0U);
  EXPECT_EQ(ordered.steps[0].grid[0], 3U * 2 * 16 * 4);
  EXPECT_EQ(ordered.steps[0].cluster[0], 4U);
  EXPECT_EQ(ordered.workspace.counter_bytes, 65536U);
  EXPECT_EQ(ordered.workspace.bytes, 65536U + 6 * 16 * 2 * 2048);
  const Launch atomic = launch_of(name("splitatomic1_slices16").c_str(), kLine);
  EXPECT_EQ(prepare_blocks(atomic), 6U);  // 4 KB each
  EXPECT_EQ(atomic.steps[1].grid[0], 3U * 2 * 16);
  EXPECT_EQ(atomic.workspace.bytes, 65536U + 6 * 4096);
}

TEST(TmawsSupports, SlicesNeedTilesOfKAndCounters) {
  const Target target = load_target("sm90a");
  const KernelSpec spec = parse_name(
      "gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitordered1_slices16_s6_sm90a");
  const auto reason = [&](const char* line) {
    return supports(spec, parse_problem(line), target).reason;
  };
  EXPECT_EQ(reason("gemm m=64 n=64 k=1024 dtype=bf16"), "");
  EXPECT_EQ(reason("gemm m=64 n=64 k=960 dtype=bf16"),
            "1 x 16 parts of K need as many tiles of 64, got 15 of k=960");
  EXPECT_EQ(reason("gemm m=8192 n=8192 k=1024 dtype=bf16"), "");
  EXPECT_EQ(reason("gemm m=8256 n=8192 k=1024 dtype=bf16"),
            "slices of K are added by at most 16384 groups of threads, 8256x8192x1 with tile "
            "64x64x64 has 16512");
}

struct Geometry {
  const char* name;
  const char* line;
  unsigned grid, cluster, block;
  std::size_t shared;
  bool persistent;
};

TEST(TmawsBind, SizesTheGrid) {
  const Geometry rows[] = {
      {"gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_c2x1_sm90a",
       "gemm m=1000 n=504 k=72 dtype=bf16", 4 * 2 * 2, 2, 384, 229448, true},
      {"gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a",
       "gemm m=129 n=129 k=72 dtype=bf16 batch=5", 4 * 5, 1, 384, 229480, true},
      {"gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered2_s9_swap_sm90a",
       "gemm m=17 n=129 k=72 dtype=bf16", 3 * 2 * 2, 2, 160, 188568, false},
      {"gemm_bf16_rcr_tmaws_192x192x64_3x1x1_64x192x16_cooperative_s4_sm90a",
       "gemm m=192 n=192 k=72 dtype=bf16", 1, 1, 512, 221256, true},
  };
  for (const Geometry& row : rows) {
    const Launch launch = launch_of(row.name, row.line);
    ASSERT_EQ(launch.steps.size(), 1U) << row.name;
    const Step& step = launch.steps[0];
    EXPECT_EQ(step.grid, (std::array<unsigned, 3>{row.grid, 1, 1})) << row.name;
    EXPECT_EQ(step.cluster, (std::array<unsigned, 3>{row.cluster, 1, 1})) << row.name;
    EXPECT_EQ(step.block, (std::array<unsigned, 3>{row.block, 1, 1})) << row.name;
    EXPECT_EQ(step.shared_memory_bytes, row.shared) << row.name;
    EXPECT_EQ(step.extent, row.persistent ? Step::Extent::resident : Step::Extent::exact)
        << row.name;
    EXPECT_EQ(launch.arguments.size(), sizeof(device::CudaGemmArguments)) << row.name;
  }
}

TEST(TmawsBind, NothingToStore) {
  constexpr const char* kName = "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a";
  for (const char* line : {"gemm m=0 n=8 k=8 dtype=bf16", "gemm m=8 n=0 k=8 dtype=bf16",
                           "gemm m=8 n=8 k=8 dtype=bf16 batch=0"}) {
    EXPECT_TRUE(launch_of(kName, line, {}).steps.empty()) << line;
  }
}

TEST(TmawsPrepack, CountsTheBytesOfAPackedB) {
  constexpr const char* kName =
      "gemm_bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_presh_pingpong_s6_sm90a";
  constexpr std::size_t kTile = 128 * 64 * 2;
  const std::pair<const char*, std::size_t> rows[] = {
      {"gemm m=8 n=129 k=65 dtype=bf16 layout=rrr preshuffle=1", 4 * kTile},
      {"gemm m=8 n=128 k=64 dtype=bf16 layout=rrr preshuffle=1 batch=3", 3 * kTile},
      {"gemm m=8 n=128 k=64 dtype=bf16 layout=rrr preshuffle=1 batch=3 batch_stride_b=0", kTile},
      {"gemm m=8 n=128 k=0 dtype=bf16 layout=rrr preshuffle=1", 0},
  };
  for (const auto& [line, bytes] : rows) {
    const auto made =
        prepack(parse_name(kName), parse_problem(line), load_target("sm90a"), operands(), nullptr);
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->bytes, bytes) << line;
    EXPECT_EQ(made->launch.steps.empty(), bytes == 0) << line;
  }
}

TEST(TmawsPrepack, IsOneStepOfTheSecondEntry) {
  constexpr const char* kName =
      "gemm_bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_presh_pingpong_s6_sm90a";
  const KernelSpec spec = parse_name(kName);
  EXPECT_EQ(family().emit(spec, load_target("sm90a")).entries,
            (std::vector<std::string>{"", "_pack"}));
  int here = 0;
  const auto made =
      prepack(spec, parse_problem("gemm m=8 n=1000 k=650 dtype=bf16 layout=rrr preshuffle=1"),
              load_target("sm90a"), operands(), &here);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->operand, "b");
  EXPECT_EQ(made->from, operands().b);
  const auto& packed = std::get<GemmOperands>(made->operands);
  EXPECT_EQ(packed.b, &here);
  EXPECT_EQ(packed.a, operands().a);
  ASSERT_EQ(made->launch.steps.size(), 1U);
  const Step& step = made->launch.steps[0];
  EXPECT_EQ(step.entry, 1);
  EXPECT_EQ(step.extent, Step::Extent::any);
  EXPECT_EQ(step.block[0], 256U);
  EXPECT_EQ(step.grid[0], 8U * 11 * 128 * 64 * 2 / 4096);
  // The place is a parameter behind the arguments.
  EXPECT_EQ(made->launch.arguments.second(), sizeof(device::CudaGemmArguments));
  const void* second = nullptr;
  std::memcpy(&second, made->launch.arguments.data() + sizeof(device::CudaGemmArguments), 8);
  EXPECT_EQ(second, &here);
  EXPECT_EQ(std::vector<const void*>(made->launch.pointers.begin(), made->launch.pointers.end()),
            (std::vector<const void*>{operands().b, &here}));
}

TEST(TmawsPrepack, OtherKernelsPackNothing) {
  constexpr const char* kName = "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a";
  EXPECT_FALSE(prepack(parse_name(kName), parse_problem("gemm m=8 n=8 k=8 dtype=bf16"),
                       load_target("sm90a"), operands(), nullptr));
}

TEST(TmawsBind, MisalignedOperand) {
  constexpr const char* kName = "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a";
  GemmOperands o = operands();
  o.b = reinterpret_cast<const void*>(std::uintptr_t{0x20008});
  try {
    launch_of(kName, "gemm m=8 n=8 k=8 dtype=bf16", o);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "gemm: b must be aligned to 16 bytes for tmaws, got an address 8 past a multiple "
                 "of that; use a cpasync kernel or one with repack");
  }
  // An output may lie anywhere: threads store it then.
  o = operands();
  o.out = reinterpret_cast<void*>(std::uintptr_t{0x40002});
  EXPECT_EQ(launch_of(kName, "gemm m=8 n=8 k=8 dtype=bf16", o).tensor_maps.size(), 2U);
}

}  // namespace
}  // namespace tessera::gemm
