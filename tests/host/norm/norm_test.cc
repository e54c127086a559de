// Normalisations without running any: validity, operands, kernels, launches, estimates.
#include "tessera/families/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "host/families/asked.h"
#include "host/families/listed.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/device/hip/norm/norm_arguments.h"
#include "tessera/device/norm.h"
#include "tessera/families/operands.h"
#include "tessera/spec/words_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::norm {
namespace {

// ---- problems ----

struct BadProblem {
  const char* line;
  const char* sentence;
};
constexpr BadProblem kBadProblems[] = {
    {"norm kind=softmax rows=-1 columns=8", "norm: rows must be at least 0, got -1"},
    {"norm kind=softmax rows=1 columns=-8", "norm: columns must be at least 0, got -8"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=fp8",
     "norm: in must be fp32, fp16 or bf16, got fp8"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=bf16 out=int8",
     "norm: out must be fp32, fp16 or bf16, got int8"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=bf16,tf32 scale=1",
     "norm: weight must be fp32, fp16 or bf16, got tf32"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=bf16,fp32",
     "norm: weight must be bf16 like in where scale and shift are 0, got fp32"},
    {"norm kind=softmax rows=1 columns=8 scale=1",
     "norm: scale must be 0 with kind=softmax, which has none, got scale=1"},
    {"norm kind=softmax rows=1 columns=8 shift=1",
     "norm: shift must be 0 with kind=softmax, which has none, got shift=1"},
    {"norm kind=softmax rows=1 columns=8 residual=1",
     "norm: residual must be 0 with kind=softmax, which has none, got residual=1"},
    {"norm kind=softmax rows=1 columns=8 epsilon=0.5",
     "norm: epsilon must be left out with kind=softmax, which has none, got 0.5"},
    {"norm kind=layernorm rows=1 columns=8 epsilon=-1",
     "norm: epsilon must be finite and at least 0, got -1"},
    {"norm kind=layernorm rows=1 columns=8 epsilon=inf",
     "norm: epsilon must be finite and at least 0, got inf"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=bf16 out=fp8",
     "norm: out must be fp32, fp16 or bf16, got fp8"},
    {"norm kind=rmsnorm rows=1 columns=8 dtype=bf16 quant=row",
     "norm: out must be fp8 or bf8 with quant=row, got bf16"},
    {"norm kind=softmax rows=1 columns=8 dtype=bf16 out=fp8 quant=block",
     "norm: quant must be none with kind=softmax, got block"},
    {"norm kind=rmsnorm rows=1 columns=8 out=fp8 quant=row scales_by_column=1",
     "norm: scales_by_column must be 0 but with quant=block, got 1 with quant=row"},
    {"norm kind=silu_mul rows=1 columns=8 residual=1",
     "norm: residual must be 0 with kind=silu_mul, which has none, got residual=1"},
    {"norm kind=gelu_mul rows=1 columns=8 epsilon=0.5",
     "norm: epsilon must be left out with kind=gelu_mul, which has none, got 0.5"},
    {"norm kind=rmsnorm rows=1 columns=8 interleaved=1",
     "norm: interleaved must be 0 with kind=rmsnorm, which has no gates, got 1"},
    {"norm kind=gelu_tanh_mul rows=2 columns=8 ld_in=15",
     "norm: ld_in must be at least 16 (2 x columns), got 15"},
    {"norm kind=silu_mul rows=2 columns=1152921504606846977",
     "norm: columns must be at most 1152921504606846976 with kind=silu_mul, got "
     "1152921504606846977"},
    {"norm kind=layernorm rows=2 columns=8 ld_in=7",
     "norm: ld_in must be at least 8 (columns), got 7"},
    {"norm kind=layernorm rows=2 columns=8 ld_out=-8",
     "norm: ld_out must be at least 8 (columns), got -8"},
    {"norm kind=layernorm rows=2 columns=8 residual=1 ld_sum=3",
     "norm: ld_sum must be at least 8 (columns), got 3"},
    {"norm kind=softmax rows=4611686018427387904 columns=1",
     "norm: the last byte of in must be below 2^63, got 4611686018427387904 rows 1 apart"},
};

TEST(NormValidate, SaysWhatIsWrong) {
  for (const BadProblem& row : kBadProblems) {
    EXPECT_EQ(refusal(parse_problem(row.line)), row.sentence) << row.line;
  }
  NormProblem damaged{.rows = 1, .columns = 1};
  damaged.kind = static_cast<NormKind>(9);
  EXPECT_EQ(refusal(damaged), "norm: kind must be a number from 0 to 6, got 9");
}

TEST(NormValidate, AcceptsWhatIsAllowed) {
  for (const char* line :
       {"norm kind=softmax rows=0 columns=0", "norm kind=rmsnorm rows=3 columns=0 scale=1",
        "norm kind=layernorm rows=3 columns=5 dtype=fp16,fp32 scale=1 shift=1 residual=1 out=bf16",
        "norm kind=rmsnorm rows=3 columns=5 shift=1 epsilon=0 ld_in=9 ld_out=100",
        "norm kind=silu_mul rows=3 columns=5 interleaved=1 ld_in=10 ld_out=5",
        "norm kind=gelu_mul rows=3 columns=5 dtype=bf16 out=fp8 quant=block"}) {
    EXPECT_EQ(refusal(parse_problem(line)), "") << line;
  }
}

TEST(NormWords, ForeignRowsAreReadByTheirKeys) {
  const ProblemWords words = {
      {"kind", "layernorm"}, {"rows", "7"}, {"columns", "9"}, {"dtype", "bf16"}, {"m", "3"}};
  EXPECT_EQ(family().from_words(words),
            parse_problem("norm kind=layernorm rows=7 columns=9 dtype=bf16"));
  EXPECT_EQ(error_of(
                [] {
                  family().from_words({{"rows", "7"}});
                },
                ErrorCode::parse_error),
            "cannot be read: problem: norm needs kind, as in 'norm kind=softmax rows=512 "
            "columns=4096 dtype=bf16'");
}

TEST(NormFacts, RetypedKeepsTheRest) {
  const Problem problem = parse_problem("norm kind=rmsnorm rows=7 columns=9 scale=1");
  EXPECT_EQ(family().retyped(problem, {.dtype = "fp16", .layout = ""}),
            parse_problem("norm kind=rmsnorm rows=7 columns=9 scale=1 dtype=fp16"));
  EXPECT_EQ(family().facts(problem).sizes, (std::vector<Label>{{"columns", "short"}}));
}

TEST(NormSets, SidesShareNoShapeAndAreValid) {
  for (const auto& [name, set] : std::initializer_list<std::pair<const char*, const char*>>{
           {"avx2", "wide"}, {"sm90a", "wide"}, {"avx2", "gated"}, {"sm90a", "gated"}}) {
    const Target target = load_target(name);
    std::set<std::pair<std::int64_t, std::int64_t>> learned;
    for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
      const auto problems = family().draw(set, side, target, {.dtype = "bf16", .layout = ""});
      EXPECT_EQ(problems.size(), side == ProblemSide::learned ? 300U : 100U);
      for (const Problem& problem : problems) {
        const auto& p = std::get<NormProblem>(problem);
        EXPECT_EQ(refusal(problem), "");
        EXPECT_EQ(p.in, DType::bf16);
        const std::pair shape(p.rows, p.columns);
        if (side == ProblemSide::learned) learned.insert(shape);
        EXPECT_EQ(learned.contains(shape), side == ProblemSide::learned);
      }
    }
  }
  EXPECT_EQ(error_of([] { family().draw("wides", ProblemSide::learned, load_target("avx2"), {}); },
                     ErrorCode::not_found),
            "unknown problem set 'wides', did you mean 'wide'? (known: wide, gated)");
}

// ---- operands ----

class NormOperandsTest : public testing::Test {
 protected:
  std::byte* at(std::size_t offset) { return memory_ + offset; }
  std::string refusal() {
    return error_of([&] { validate_operands(family(), problem_, operands_); },
                    ErrorCode::invalid_argument);
  }

  alignas(64) std::byte memory_[8192];
  Problem problem_ =
      parse_problem("norm kind=layernorm rows=4 columns=8 ld_in=16 scale=1 shift=1 residual=1");
  NormOperands operands_ = {at(0), at(1024), at(2048), at(3072), at(4096), at(5120)};
};

TEST_F(NormOperandsTest, Accepted) { EXPECT_EQ(refusal(), ""); }

TEST_F(NormOperandsTest, Null) {
  operands_.shift = nullptr;
  EXPECT_EQ(refusal(), "norm: shift must not be null: 1 rows of 8 elements are needed");
  operands_.shift = at(3072);
  operands_.sum = nullptr;
  EXPECT_EQ(refusal(), "norm: sum must not be null: 4 rows of 8 elements are needed");
}

TEST_F(NormOperandsTest, Misaligned) {
  operands_.scale = at(2050);
  EXPECT_EQ(refusal(),
            "norm: scale must be aligned to 4 bytes for fp32, got an address 2 past a multiple of "
            "that");
}

TEST_F(NormOperandsTest, OutputsMustNotOverlap) {
  operands_.sum = at(4096 + 124);
  EXPECT_EQ(refusal(),
            "norm: out must not overlap sum, got out 124 bytes before the start of sum, which "
            "spans 128 bytes");
}

TEST_F(NormOperandsTest, OutMustNotOverlapWeights) {
  operands_.out = at(2048);
  EXPECT_EQ(refusal(),
            "norm: out must not overlap scale, got out 0 bytes after the start of scale, which "
            "spans 32 bytes");
}

TEST_F(NormOperandsTest, InPlaceTakesEqualStrides) {
  operands_.sum = at(1024);  // the residual is handed on in its place
  EXPECT_EQ(refusal(), "");
  operands_.out = at(0);
  EXPECT_EQ(refusal(),
            "norm: out must not overlap in unless it is the same matrix with equal strides, got "
            "out 0 bytes after the start of in, which spans 224 bytes");
  std::get<NormProblem>(problem_).ld_out = 16;
  EXPECT_EQ(refusal(), "");
}

TEST_F(NormOperandsTest, NothingIsNeededForNoColumns) {
  problem_ = parse_problem("norm kind=softmax rows=4 columns=0");
  operands_ = {};
  EXPECT_EQ(refusal(), "");
}

// ---- kernels ----

struct Rejected {
  const char* name;
  const char* reason;
};
constexpr Rejected kRejected[] = {
    {"norm_fp32_softmax_direct_1x1024x1_0x1x1_1x1x1_avx2", "avx2 has no pipeline direct"},
    {"norm_fp8_softmax_rows_1x1024x1_0x1x1_1x1x1_outfp8_avx2",
     "in must be fp32, fp16 or bf16, got fp8"},
    {"norm_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_scale_avx2",
     "scale must be 0 with kind=softmax, which has none, got scale=1"},
    {"norm_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_s3_avx2", "stages must be 1 with rows, got 3"},
    {"norm_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_slices257_avx2",
     "slices must be between 1 and 256, got 257"},
    {"norm_fp32_softmax_rows_1x1024x1_0x1x1_1x8x1_avx2", "warp tile must be 1x1x1, got 1x8x1"},
    {"norm_fp32_softmax_rows_1x1024x1_2x1x1_1x1x1_avx2", "wave must be 1x1x1 or 0x1x1, got 2x1x1"},
    {"norm_fp32_softmax_rows_1x1020x1_0x1x1_1x1x1_avx2",
     "tile must be 1 x n x 1, n a multiple of 8 from 256 to 32768, got 1x1020x1"},
    {"norm_fp32_softmax_rows_2x1024x1_1x1x1_1x1x1_avx2",
     "tile must be 1 x n x 1, n a multiple of 8 from 256 to 32768, got 2x1024x1"},
    {"norm_fp32_softmax_rows_1x4096x1_1x33x1_1x1x1_sm90a",
     "wave must be m x n x 1 warps of 32 threads, at most 1024 in all, got 1x33x1"},
    {"norm_fp32_softmax_rows_1x4096x1_0x8x1_1x1x1_sm90a",
     "wave must be m x n x 1 warps of 32 threads, at most 1024 in all, got 0x8x1"},
    {"norm_bf16_softmax_rows_2x1024x1_2x8x1_1x1x1_sm90a",
     "tile must be 2 x n x 1, n a multiple of 2048 up to 32768, got 2x1024x1"},
    {"norm_fp32_softmax_rows_1x32768x1_1x32x1_1x1x1_sm90a",
     "needs 80 registers a thread, sm90a has 64 for each of 1024 threads"},
    {"norm_bf16_softmax_rows_12x512x1_4x1x1_3x1x1_sm90a",
     "warp tile must be 1x1x1 where wave_n is not 1, else a power of two up to 32 x 1 x 1, got "
     "3x1x1 with wave 4x1x1"},
    {"norm_bf16_softmax_rows_2x512x1_1x4x1_2x1x1_sm90a",
     "warp tile must be 1x1x1 where wave_n is not 1, else a power of two up to 32 x 1 x 1, got "
     "2x1x1 with wave 1x4x1"},
    {"norm_bf16_softmax_rows_4x512x1_4x1x1_2x1x1_sm90a",
     "tile must be 8 x n x 1, n a multiple of 128 up to 32768, got 4x512x1"},
    {"norm_bf16_softmax_rows_8x512x1_4x1x1_2x1x1_slices8_sm90a",
     "slices must be 1 with cluster 1x1 and warp tile 2x1x1, got 8"},
    {"norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_c1x3_sm90a",
     "cluster must be 1x1, 1x2, 1x4 or 1x8, and 1x1 where a block has several rows, got 1x3 with "
     "1 rows"},
    {"norm_fp32_softmax_rows_1x8192x1_1x4x1_1x1x1_c1x2_gfx942", "cluster must be 1x1, got 1x2"},
    {"norm_fp32_silumul_rows_1x8192x1_1x4x1_1x1x1_slices8_gfx942",
     "slices must be 1 with kind=silu_mul, got 8"},
    {"norm_fp32_silumul_rows_1x8192x1_1x8x1_1x1x1_c1x4_sm90a",
     "cluster must be 1x1 with kind=silu_mul and quant=none, got 1x4"},
    {"norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_interleaved_sm90a",
     "interleaved must be 0 with kind=softmax, which has no gates, got 1"},
    {"norm_fp32_rmsnorm_rows_1x8192x1_1x8x1_1x1x1_outfp8_quantrow_slices8_sm90a",
     "slices must be 1 with quant=row, got 8"},
    {"norm_fp32_rmsnorm_rows_1x1000x1_0x1x1_1x1x1_outfp8_quantblock_avx2",
     "tile_n must be a multiple of 128 with quant=block, got 1000"},
    {"norm_fp32_softmax_rows_4x4096x1_4x2x1_1x1x1_gfx942",
     "wave must be m x 1 x 1 or 1 x n x 1 waves of 64 lanes, at most 1024 in all, got 4x2x1"},
    {"norm_fp32_softmax_rows_1x4096x1_1x17x1_1x1x1_gfx942",
     "wave must be m x 1 x 1 or 1 x n x 1 waves of 64 lanes, at most 1024 in all, got 1x17x1"},
    {"norm_bf16_softmax_rows_1x1024x1_1x4x1_1x1x1_gfx950",
     "tile must be 1 x n x 1, n a multiple of 2048 from 256 to 32768, got 1x1024x1"},
    {"norm_fp32_softmax_rows_1x32768x1_1x16x1_1x1x1_gfx950",
     "needs 136 registers a lane, gfx950 has 128 for each of 1024 lanes"},
    {"norm_fp32_softmax_rows_1x32768x1_1x4x1_1x1x1_gfx90a",
     "needs 328 registers a lane, gfx90a has 256 for each of 256 lanes"},
};

TEST(NormLegality, SaysWhichRuleIsBroken) {
  for (const Rejected& row : kRejected) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(family().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
  expect_strangers_refused(family(), "norm_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_avx2");
}

TEST(NormSupports, SaysWhatDiffers) {
  const Target target = load_target("avx2");
  const KernelSpec spec = parse_name("norm_bf16_rmsnorm_rows_1x1024x1_0x1x1_1x1x1_scale_avx2");
  const auto reason = [&](const char* line) {
    return family().supports(spec, parse_problem(line), target).reason;
  };
  EXPECT_EQ(reason("norm kind=rmsnorm rows=3 columns=5 dtype=bf16 scale=1"), "");
  EXPECT_EQ(reason("norm kind=layernorm rows=3 columns=5 dtype=bf16 scale=1"),
            "the kernel has kind=rmsnorm, the problem kind=layernorm");
  EXPECT_EQ(reason("norm kind=rmsnorm rows=3 columns=5 dtype=bf16,fp32 scale=1"),
            "the kernel has weight=bf16, the problem weight=fp32");
  EXPECT_EQ(reason("norm kind=rmsnorm rows=3 columns=5 dtype=bf16 scale=1 residual=1"),
            "the kernel has residual=0, the problem residual=1");
  EXPECT_EQ(reason("gemm m=1 n=1 k=1"), "the kernel is for norm, the problem for gemm");
  const KernelSpec sliced = parse_name("norm_fp32_softmax_rows_1x1024x1_0x1x1_1x1x1_slices8_avx2");
  EXPECT_EQ(family()
                .supports(sliced, parse_problem("norm kind=softmax rows=65537 columns=9"), target)
                .reason,
            "slices serve at most 65536 rows, got 65537");
}

TEST(NormSupports, ThreadsThatHoldAllServeNoLongerRows) {
  const auto reason = [](const char* name, int columns) {
    const KernelSpec spec = parse_name(name);
    const Target target = load_target(spec.target);
    EXPECT_EQ(family().is_legal(spec, target).reason, "");
    const Problem problem = NormProblem{.rows = 3, .columns = columns};
    return family().supports(spec, problem, target).reason;
  };
  const char* const kLanes = "norm_fp32_softmax_rows_16x64x1_4x1x1_4x1x1_sm90a";
  EXPECT_EQ(reason(kLanes, 64), "");
  EXPECT_EQ(reason(kLanes, 65),
            "columns must be at most 64, which 8 threads of 1 blocks hold, got 65");
  const char* const kCluster = "norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_c1x4_sm90a";
  EXPECT_EQ(reason(kCluster, 32768), "");
  EXPECT_EQ(reason(kCluster, 32769),
            "columns must be at most 32768, which 256 threads of 4 blocks hold, got 32769");
}

class NormOn : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, NormOn,
                         testing::Values("avx512", "avx2", "generic", "sm90a", "gfx942"),
                         [](const auto& row) { return row.param; });

TEST_P(NormOn, ListedKernelsAreLegalSortedAndNamed) {
  expect_listed(family(), target_,
                {Wish{"kind", "softmax"}, Wish{"slices", "8"}, Wish{"dtype", "bf16"}});
}

TEST_P(NormOn, EssentialKernelsAreLegalAndOfTheirSet) {
  std::size_t found = 0;
  for (const std::string& set : family().preselected_names()) {
    const std::vector<KernelSpec> specs = family().preselected(set, target_);
    EXPECT_GE(specs.size(), 1U) << set;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<NormSignature>(spec.signature);
      EXPECT_EQ(set,
                std::string(to_string(s.in)) + "_" + std::string(to_string(s.kind)) + "_essential");
      EXPECT_TRUE(family().is_essential(spec, target_));
      ++found;
    }
  }
  EXPECT_EQ(found, target_.backend == "cuda" ? 133U : is_gpu(target_) ? 46U : 25U);
}

TEST_P(NormOn, GeneralServesEverySignature) {
  for (const char* line :
       {"norm kind=softmax rows=1 columns=1 dtype=fp16 out=bf16",
        "norm kind=rmsnorm rows=70000 columns=3 shift=1 ld_in=7",
        "norm kind=layernorm rows=2 columns=9999999 dtype=bf16,fp32 scale=1 residual=1 out=fp32",
        "norm kind=silu_mul rows=70000 columns=9999999 dtype=bf16",
        "norm kind=gelu_mul rows=3 columns=99999 interleaved=1 out=fp8 quant=row",
        "norm kind=gelu_tanh_mul rows=3 columns=999999 out=bf8 quant=block"}) {
    const Problem problem = parse_problem(line);
    const KernelSpec spec = family().general(problem, target_);
    EXPECT_EQ(family().is_legal(spec, target_).reason, "") << line;
    EXPECT_EQ(family().supports(spec, problem, target_).reason, "") << line;
  }
}

TEST_P(NormOn, TextNamesKernelAndEntries) {
  for (const KernelSpec& spec : family().preselected("bf16_softmax_essential", target_)) {
    const Source source = family().emit(spec, target_);
    const std::string name = name_of(spec);
    EXPECT_EQ(source.name, name);
    EXPECT_EQ(source.abi, kAbi);
    EXPECT_NE(source.text.find("using In = bf16;"), std::string::npos);
    EXPECT_NE(source.text.find("kKind = NormKind::softmax;"), std::string::npos);
    const bool sliced = spec.algorithm.slices > 1;
    const bool is_cuda = target_.backend == "cuda";
    const Algorithm& a = spec.algorithm;
    const bool is_long = is_cuda && !sliced && a.warp_tile.m == 1 && a.cluster_n == 1;
    EXPECT_EQ(source.entries.size(), sliced || is_long ? 2U : 1U) << name;
    if (is_cuda) {
      EXPECT_EQ(source.text.find(name + "_long(") != std::string::npos, is_long);
    }
    if (is_gpu(target_)) {
      EXPECT_EQ(source.text.find(name + "_result(") != std::string::npos, sliced);
    }
  }
}

// ---- launches ----

device::NormArguments arguments_of(const Launch& launch) {
  device::NormArguments g;
  EXPECT_EQ(launch.arguments.size(), sizeof(g));
  std::memcpy(&g, launch.arguments.data(), sizeof(g));
  return g;
}

TEST(NormBind, OneStepOfBlocksOfRows) {
  const KernelSpec spec = parse_name("norm_fp32_rmsnorm_rows_4x1024x1_4x1x1_1x1x1_scale_sm90a");
  alignas(16) float memory[64];
  const Problem problem = parse_problem("norm kind=rmsnorm rows=9 columns=6 ld_in=8 scale=1");
  NormOperands operands{.in = memory, .scale = memory + 4, .out = memory + 8};
  Launch launch = norm::family().bind(spec, problem, load_target(spec.target), operands);
  ASSERT_EQ(launch.steps.size(), 1U);
  EXPECT_EQ(launch.steps[0].grid, (std::array<unsigned, 3>{3, 1, 1}));
  EXPECT_EQ(launch.steps[0].block, (std::array<unsigned, 3>{32, 4, 1}));
  EXPECT_EQ(launch.workspace.bytes, 0U);
  EXPECT_EQ(launch.pointers.size(), 3U);
  device::NormArguments g = arguments_of(launch);
  EXPECT_EQ(g.ld_in, 8);
  EXPECT_EQ(g.ld_out, 6);
  EXPECT_EQ(g.is_aligned, 0) << "rows of out lie 24 bytes apart";
  std::get<NormProblem>(const_cast<Problem&>(problem)).ld_out = 8;
  EXPECT_EQ(arguments_of(norm::family().bind(spec, problem, load_target(spec.target), operands))
                .is_aligned,
            1);
  operands.scale = memory + 5;
  EXPECT_EQ(arguments_of(norm::family().bind(spec, problem, load_target(spec.target), operands))
                .is_aligned,
            0);
}

TEST(NormBind, RowsShareAWarpAndBlocksShareARow) {
  const auto launch = [](const char* name, const char* line) {
    const KernelSpec spec = parse_name(name);
    return norm::family().bind(spec, parse_problem(line), load_target(spec.target), NormOperands{});
  };
  const Launch lanes = launch("norm_fp32_softmax_rows_16x64x1_4x1x1_4x1x1_sm90a",
                              "norm kind=softmax rows=33 columns=64");
  EXPECT_EQ(lanes.steps[0].grid, (std::array<unsigned, 3>{3, 1, 1}));
  EXPECT_EQ(lanes.steps[0].block, (std::array<unsigned, 3>{32, 4, 1}));
  const Launch cluster = launch("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_c1x4_sm90a",
                                "norm kind=softmax rows=33 columns=32000");
  EXPECT_EQ(cluster.steps[0].grid, (std::array<unsigned, 3>{132, 1, 1}));
  EXPECT_EQ(cluster.steps[0].cluster, (std::array<unsigned, 3>{4, 1, 1}));
}

TEST(NormBind, RowsThatAreNotHeldHaveAnEntryOfTheirOwn) {
  const KernelSpec spec = parse_name("norm_fp32_softmax_rows_1x4096x1_1x8x1_1x1x1_sm90a");
  for (const std::int64_t columns : {1, 4096, 4097, 100000}) {
    const Problem problem = NormProblem{.rows = 3, .columns = columns};
    const Launch launch =
        norm::family().bind(spec, problem, load_target(spec.target), NormOperands{});
    EXPECT_EQ(launch.steps[0].entry, columns > 4096 ? 1 : 0) << columns;
  }
}

TEST(NormBind, TwoStepsShareStatistics) {
  const KernelSpec spec = parse_name("norm_fp32_softmax_rows_1x8192x1_1x8x1_1x1x1_slices32_sm90a");
  const Launch launch =
      norm::family().bind(spec, parse_problem("norm kind=softmax rows=5 columns=99999"),
                          load_target(spec.target), NormOperands{});
  ASSERT_EQ(launch.steps.size(), 2U);
  for (std::uint8_t i = 0; i < 2; ++i) {
    EXPECT_EQ(launch.steps[i].entry, i);
    EXPECT_EQ(launch.steps[i].grid, (std::array<unsigned, 3>{5, 32, 1}));
  }
  EXPECT_EQ(launch.workspace.bytes,
            device::kCounterBytes + 5 * 32 * sizeof(device::ScaledStatistics));
  EXPECT_EQ(launch.workspace.address_offset, offsetof(device::NormArguments, workspace));
}

TEST(NormBind, AmdTakesWavesOf64AndItsOwnArguments) {
  const KernelSpec spec = parse_name("norm_fp32_softmax_rows_1x8192x1_1x4x1_1x1x1_slices32_gfx942");
  const Launch launch =
      norm::family().bind(spec, parse_problem("norm kind=softmax rows=40000 columns=99999"),
                          load_target(spec.target), NormOperands{});
  ASSERT_EQ(launch.steps.size(), 2U);
  for (std::uint8_t i = 0; i < 2; ++i) {
    EXPECT_EQ(launch.steps[i].entry, i);
    EXPECT_EQ(launch.steps[i].grid, (std::array<unsigned, 3>{40000, 32, 1}));
    EXPECT_EQ(launch.steps[i].block, (std::array<unsigned, 3>{256, 1, 1}));
  }
  device::HipNormArguments g;
  ASSERT_EQ(launch.arguments.size(), sizeof g);
  std::memcpy(&g, launch.arguments.data(), sizeof g);
  EXPECT_EQ(g.blocks, 40000);
  EXPECT_EQ(g.statistics, device::kCounterBytes);
  EXPECT_EQ(launch.workspace.bytes,
            device::kCounterBytes + 40000 * 32 * sizeof(device::ScaledStatistics));
  EXPECT_EQ(launch.workspace.address_offset, offsetof(device::NormArguments, workspace));
}

// AMD counts the lanes of a grid in 32 bits.
TEST(NormBind, MoreRowsThanAmdsGridHas) {
  const KernelSpec spec = parse_name("norm_bf16_softmax_rows_4x1024x1_4x1x1_1x1x1_gfx90a");
  const Launch launch = norm::family().bind(
      spec, parse_problem("norm kind=softmax rows=5000000000 columns=1 dtype=bf16"),
      load_target(spec.target), NormOperands{});
  const auto& grid = launch.steps[0].grid;
  EXPECT_EQ(grid[2], 75U);
  EXPECT_LT(std::uint64_t{grid[0]} * 256, std::uint64_t{1} << 32);
  EXPECT_GE(std::uint64_t{grid[0]} * grid[2], 1250000000U);
}

TEST(NormBind, MoreRowsThanAGridHas) {
  const KernelSpec spec = parse_name("norm_bf16_softmax_rows_1x4096x1_1x8x1_1x1x1_sm90a");
  const Launch launch = norm::family().bind(
      spec, parse_problem("norm kind=softmax rows=5000000000 columns=1 dtype=bf16"),
      load_target(spec.target), NormOperands{});
  const auto& grid = launch.steps[0].grid;
  EXPECT_EQ(grid[2], 3U);
  EXPECT_GE(std::uint64_t{grid[0]} * grid[2], 5000000000U);
  EXPECT_LT(std::uint64_t{grid[0]} * grid[2], 5000000000U + 3);
}

TEST(NormBind, NothingToCompute) {
  const KernelSpec spec = parse_name("norm_fp32_softmax_rows_1x4096x1_0x1x1_1x1x1_avx2");
  for (const char* line :
       {"norm kind=softmax rows=0 columns=9", "norm kind=softmax rows=9 columns=0"}) {
    EXPECT_TRUE(norm::family()
                    .bind(spec, parse_problem(line), load_target(spec.target), NormOperands{})
                    .steps.empty())
        << line;
  }
  EXPECT_EQ(norm::family()
                .bind(spec, parse_problem("norm kind=softmax rows=1 columns=1"),
                      load_target(spec.target), NormOperands{})
                .max_threads,
            0);
  const KernelSpec one = parse_name("norm_fp32_softmax_rows_1x4096x1_1x1x1_1x1x1_avx2");
  EXPECT_EQ(norm::family()
                .bind(one, parse_problem("norm kind=softmax rows=1 columns=1"),
                      load_target(one.target), NormOperands{})
                .max_threads,
            1);
}

TEST_P(NormOn, OnlyWantedFeaturesAreWritten) {
  const Problem problem = parse_problem("norm kind=softmax rows=77 columns=5000");
  const std::vector<KernelSpec> specs = family().candidates(problem, target_);
  const std::size_t count = family().features().size();
  std::vector<double> all(count * specs.size());
  family().extract(problem, target_, 3, specs, all, {});
  for (std::size_t one = 0; one < count; ++one) {
    std::vector<FeatureUse> wanted(count, FeatureUse::none);
    for (const FeatureUse use : {FeatureUse::first, FeatureUse::all}) {
      wanted[one] = use;
      std::vector<double> columns(all.size(), -1);
      family().extract(problem, target_, 3, specs, columns, wanted);
      const std::size_t begin = one * specs.size();
      const std::size_t end = begin + (use == FeatureUse::first ? 1 : specs.size());
      for (std::size_t at = 0; at < columns.size(); ++at) {
        ASSERT_EQ(columns[at], at >= begin && at < end ? all[at] : -1)
            << family().features()[one].name;
      }
    }
  }
}

TEST_P(NormOn, FeaturesAreFiniteAndTheSameAlone) {
  for (const char* line : {"norm kind=rmsnorm rows=777 columns=5000 dtype=fp16 scale=1",
                           "norm kind=rmsnorm rows=0 columns=5000 dtype=fp16 scale=1",
                           "norm kind=rmsnorm rows=7 columns=0 dtype=fp16 scale=1"}) {
    const Problem problem = parse_problem(line);
    const std::vector<KernelSpec> specs = family().candidates(problem, target_);
    const std::size_t count = family().features().size();
    std::vector<double> all(count * specs.size());
    family().extract(problem, target_, 3, specs, all, {});
    for (std::size_t i = 0; i < specs.size(); ++i) {
      std::vector<double> alone(count);
      family().extract(problem, target_, 3, {&specs[i], 1}, alone, {});
      for (std::size_t f = 0; f < count; ++f) {
        ASSERT_TRUE(std::isfinite(alone[f])) << family().features()[f].name;
        ASSERT_EQ(alone[f], all[f * specs.size() + i]) << family().features()[f].name;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::norm
