// Kernels for groups of unequal sizes on a GPU, with scales of blocks and without: random groups of
// every kind, empty ones, one that has everything, against the fp64 reference; rows of no group bit
// for bit; numbers that do not fit; NaN in a neighbour; and graphs that are replayed with other
// sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/driver_calls.h"
#include "cuda/gpu_test.h"
#include "grouped.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

constexpr const char* kGroupings[] = {"contiguous", "indexed", "masked", "alongk"};

class GpuGrouped : public GpuTest {
 protected:
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return grouped::draw(random_, low, high);
  }

  // The kernels of names in which {} stands for the grouping; every one with each grouping.
  std::vector<KernelSpec> kernels(const std::vector<const char*>& patterns) {
    std::vector<KernelSpec> specs;
    for (const char* pattern : patterns) {
      for (const char* grouping : kGroupings) {
        specs.push_back(
            parse_name(fmt::format("gemm_{}_sm90a", fmt::format(fmt::runtime(pattern), grouping))));
        const Verdict legal = family_of(Op::gemm).is_legal(specs.back(), target_);
        const bool is_laid = legal.reason.find("where groups do not begin") == std::string::npos;
        if (!is_laid) specs.pop_back();  // the copy engine does not read such layouts
        EXPECT_EQ(is_laid ? legal.reason : "", "") << pattern << grouping;
      }
    }
    return specs;
  }

  // Sizes around whole tiles, in whole units.
  GemmProblem problem(const KernelSpec& spec, std::int64_t unit) {
    const Shape3& tile = spec.algorithm.tile;
    const auto size = [&](std::int64_t most) { return unit * draw(1, std::max(most / unit, 2L)); };
    const auto& signature = std::get<GemmSignature>(spec.signature);
    const bool has_matrices = gemm::group_matrices(signature.grouping).out;
    const std::int64_t most_rows = has_matrices ? 200 : draw(0, 2) == 0 ? 900 : 300;
    GemmProblem p = gemm::problem_of(signature, size(most_rows),
                                     size(std::max(tile.m, tile.n) + 100), size(tile.k * 3 + 60));
    p.groups = draw(0, 4) == 0 ? draw(1, has_matrices ? 30 : 300) : draw(1, 9);
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && draw(0, 1) == 1;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    if (p.out == DType::int8) p.alpha = 0x1p-9F;
    return p;
  }

  // Strides that are longer than the sizes, and C.
  void loosen(GemmProblem& p, std::int64_t unit) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += unit * draw(0, 5);
    const std::int64_t rows = std::max({p.m, p.n, p.k});
    const std::int64_t more = unit * draw(0, 3);
    p.batch_stride_a = rows * p.ld_a + more, p.batch_stride_b = rows * p.ld_b + more;
    p.batch_stride_c = rows * p.ld_c + more, p.batch_stride_out = rows * p.ld_out + more;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += unit * draw(0, 5);
      p.batch_stride_d[i] = draw(0, 3) == 0 ? 0 : rows * p.ld_d[i];
    }
    p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
    if (p.scale_a != GemmScale::none) {
      loosen_scales(p, scale_blocks(p.scale_a, p.m, p.k), p.stride_scale_a_m, p.stride_scale_a_k,
                    p.batch_stride_scale_a);
    }
    if (p.scale_b != GemmScale::none) {
      loosen_scales(p, scale_blocks(p.scale_b, p.n, p.k), p.stride_scale_b_n, p.stride_scale_b_k,
                    p.batch_stride_scale_b);
    }
  }

  // Scales of rows side by side or of k side by side, and a matrix of them for each group or one
  // for all.
  void loosen_scales(const GemmProblem& p, const ScaleBlock& count, std::int64_t& along_rows,
                     std::int64_t& along_k, std::int64_t& groups) {
    const std::int64_t width = p.scale_quads ? 4 : 1;
    const std::int64_t steps = (count.k + width - 1) / width;
    if (draw(0, 1) == 0) {
      along_k = width * draw(1, 2), along_rows = along_k * (steps + draw(0, 3));
    } else {
      along_rows = width, along_k = width * (count.rows + draw(0, 3));
    }
    groups = draw(0, 3) == 0 ? 0 : along_rows * (count.rows + 1) + along_k * (steps + 1);
  }

  static std::vector<std::byte> bytes_of_out(const measure::OwnedOperands& owned) {
    const runtime::AlignedBuffer& output = owned.storage.at(owned.outputs.front());
    const auto* const bytes = static_cast<const std::byte*>(output.data());
    return {bytes, bytes + output.size()};
  }
  // Where out begins in its buffer, which has guard bytes.
  static std::size_t guard_of(const measure::OwnedOperands& owned) {
    const auto* const out =
        static_cast<const std::byte*>(std::get<GemmOperands>(owned.operands).out);
    const void* const start = owned.storage.at(owned.outputs.front()).data();
    return static_cast<std::size_t>(out - static_cast<const std::byte*>(start));
  }

  void expect_right(const GemmProblem& p, const measure::OwnedOperands& owned,
                    const std::vector<std::byte>& before) {
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(p, owned);
    const auto& o = std::get<GemmOperands>(owned.operands);
    if (o.out == nullptr) return;
    EXPECT_EQ(grouped::touched(p, o, before.data() + guard_of(owned)), 0U)
        << "elements of no group changed";
  }

  // Twice, at both edges of memory, with equal bits.
  void check(const std::string& kernel, const GemmProblem& p, bool fresh_numbers = true) {
    const std::uint64_t seed = random_();
    const Problem problem = p;
    const std::string words = fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed);
    SCOPED_TRACE(words);
    say(words);
    family_of(Op::gemm).validate(problem);
    measure::OwnedOperands owned = measure::random_operands(problem, seed);
    if (fresh_numbers) grouped::fill_numbers(p, owned.operands, random_);
    measure::reset_outputs(owned);
    const std::vector<std::byte> before =
        owned.outputs.empty() ? std::vector<std::byte>() : bytes_of_out(owned);
    const std::vector<std::byte> first = run_at(Edge::first, kernel, problem, owned);
    expect_right(p, owned, before);
    const std::vector<std::byte> last = run_at(Edge::last, kernel, problem, owned);
    EXPECT_EQ(last, first) << "a repeat gave other bits";
    EXPECT_EQ(measure::gaps_intact(owned), "");
  }

  void send_other_numbers(const GemmProblem& p, measure::OwnedOperands& owned,
                          const measure::PlacedOperands& placed) {
    grouped::fill_numbers(p, owned.operands, random_);
    const auto numbers = [&](const Operands& operands) {
      return gemm::numbers_of(p, std::get<GemmOperands>(operands));
    };
    place_.backend->copy_to_device(
        const_cast<std::int32_t*>(numbers(placed.operands)), numbers(owned.operands),
        static_cast<std::size_t>((p.group_int64 ? 8 : 4) * gemm::numbers_count(p)), place_.options);
  }

  // The places of A and of B, or of A alone, that belong to group 2 of NanStaysInItsGroup.
  static void fill_with_nan(const GemmProblem& p, const GemmOperands& o) {
    const auto fill = [](const void* data, DType dtype, std::int64_t index) {
      const auto size = static_cast<std::size_t>(size_of(dtype));
      auto* const to = static_cast<std::byte*>(const_cast<void*>(data));
      std::memset(to + index * static_cast<std::int64_t>(size), 0xff, size);
    };
    const bool along_k = p.grouping == GemmGrouping::along_k;
    const bool has_matrices = p.grouping == GemmGrouping::masked;
    const bool a_rows = a_is_row_major(p.layout), b_rows = b_is_row_major(p.layout);
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t k = 0; k < p.k; ++k) {
        const std::int64_t place = along_k ? k : row;
        if (place >= 101 || (place < 37 && !has_matrices)) continue;
        const std::int64_t at = a_rows ? row * p.ld_a + k : k * p.ld_a + row;
        fill(o.a, p.a, at + (has_matrices ? 2 * p.batch_stride_a : 0));
      }
    }
    for (std::int64_t k = 37; k < 101 && along_k; ++k) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        fill(o.b, p.b, b_rows ? k * p.ld_b + column : column * p.ld_b + k);
      }
    }
  }

  void check_all(const std::vector<const char*>& patterns, std::int64_t unit, int problems) {
    const std::vector<KernelSpec> specs = kernels(patterns);
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      for (int i = 0; i < problems; ++i) {
        GemmProblem p = problem(spec, unit);
        if (i % 2 == 1) loosen(p, unit);
        // Where rows lie at whole units, their numbers may be any.
        if (i % 4 == 3) p.m -= draw(0, unit - 1), p.n -= draw(0, unit - 1);
        p.check_groups = draw(0, 3) == 0, p.group_int64 = draw(0, 1) == 0;
        if (family_of(Op::gemm).supports(spec, p, target_)) check(name_of(spec), p, i > 0);
        if (HasFailure()) return;
      }
    }
  }

  // Captures a launch and replays it with other sizes of groups.
  void replay(const std::vector<KernelSpec>& specs) {
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      SCOPED_TRACE(name_of(spec));
      GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), 416, 272, 416);
      p.groups = 7, p.check_groups = draw(0, 1) == 1, p.group_int64 = draw(0, 1) == 1;
      measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
      measure::PlacedOperands placed = measure::place_operands(owned, place_);
      RunOptions options{.force = name_of(spec)};
      dispatcher_->run(Problem(p), placed.operands, options);
      const CurrentContext context;
      call<void**, unsigned>("cuStreamCreate", &options.launch.stream, 1);
      dispatcher_->run(Problem(p), placed.operands, options);
      void* const stream = options.launch.stream;
      void* graph = nullptr;
      void* runnable = nullptr;
      call<void*, int>("cuStreamBeginCapture_v2", stream, 0);
      dispatcher_->run(Problem(p), placed.operands, options);
      call<void*, void**>("cuStreamEndCapture", stream, &graph);
      call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &runnable, graph, 0);
      for (int replay = 0; replay < 4; ++replay) {
        send_other_numbers(p, owned, placed);
        measure::reset_outputs(owned);
        const std::vector<std::byte> before = bytes_of_out(owned);
        measure::send_outputs(owned, placed, place_);
        call<void*, void*>("cuGraphLaunch", runnable, stream);
        call<void*>("cuStreamSynchronize", stream);
        measure::fetch_outputs(owned, placed, place_);
        expect_right(p, owned, before);
      }
      call<void*>("cuGraphExecDestroy", runnable);
      call<void*>("cuGraphDestroy", graph);
      call<void*>("cuStreamDestroy_v2", stream);
    }
  }

  // Group 2 has NaN.
  void expect_nan_stays(const std::vector<KernelSpec>& specs) {
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      const auto& signature = std::get<GemmSignature>(spec.signature);
      GemmProblem p = gemm::problem_of(signature, 160, 96, 272);
      p.groups = 4;
      const auto room = static_cast<int>(p.grouping == GemmGrouping::along_k ? p.k : p.m);
      const std::vector<std::int32_t> ends = {37, 37, 101, room};
      measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
      const auto& o = std::get<GemmOperands>(owned.operands);
      auto* const numbers = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
      for (std::int64_t i = 0; i < gemm::numbers_count(p); ++i) {
        numbers[i] = p.grouping == GemmGrouping::indexed ? (i < 37    ? 0
                                                            : i < 101 ? 2
                                                                      : 3)
                                                         : ends[static_cast<std::size_t>(i)];
      }
      fill_with_nan(with_strides(p), o);
      measure::reset_outputs(owned);
      const std::vector<std::byte> before = bytes_of_out(owned);
      SCOPED_TRACE(name_of(spec));
      run_at(Edge::last, name_of(spec), p, owned);
      expect_right(p, owned, before);
    }
  }
};

TEST_F(GpuGrouped, KernelsByWarpsAreCorrect) {
  check_all({"fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groups{}_s3",
             "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groups{}_bias_gelu_s3",
             "tf32_rrr_cpasync_64x64x32_2x2x1_16x8x8_groups{}_s3",
             "fp16_ccr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_multidadd2_s3",
             "bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_s3",
             "bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_groups{}_s3",
             "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_rowscale_colscale_bias_clamp_s3",
             "fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groups{}_s3",
             "fp8_bf8_rrr_cpasync_64x64x128_2x2x1_16x8x16_outbf16_groups{}_s3",
             "int8_rcr_cpasync_64x64x128_2x2x1_16x8x32_groups{}_s3",
             "int8_crr_cpasync_64x64x128_2x2x1_16x8x32_outint8_groups{}_s3"},
            1, 6);
}

TEST_F(GpuGrouped, KernelsByTheCopyEngineAreCorrect) {
  check_all({"bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groups{}_cooperative_s4",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
             "bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_outfp32_groups{}_cooperative_s4",
             "bf16_rrr_tmaws_64x256x64_2x1x1_64x256x16_groups{}_pingpong_s4",
             "bf16_crr_tmaws_64x128x64_2x1x1_64x128x16_groups{}_pingpong_s4",
             "fp16_ccr_tmaws_192x128x64_3x1x1_64x128x16_groups{}_bias_gelu_cooperative_s4",
             "bf16_rcr_tmaws_64x16x64_1x1x1_64x16x16_groups{}_cooperative_s8_swap",
             "bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16_groups{}_bias_silu_cooperative_s8_swap",
             "bf16_rcr_tmaws_128x64x64_2x1x1_64x64x16_groups{}_cooperative_s5_swap",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_multidadd2_cooperative_s4",
             "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_rowscale_colscale_cooperative_s4",
             "fp8_rcr_tmaws_128x256x128_2x1x1_64x256x32_groups{}_cooperative_s4",
             "fp8_rcr_tmaws_64x128x128_2x1x1_64x128x32_outbf16_groups{}_pingpong_s4",
             "int8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_cooperative_s4",
             "tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_groups{}_cooperative_s4"},
            16, 8);
}

// What a dispatcher chooses.
TEST_F(GpuGrouped, ChosenKernelsAreCorrect) {
  for (const char* line :
       {"gemm m=2000 n=1536 k=1024 dtype=bf16 groups=37 grouping=contiguous",
        "gemm m=2000 n=1000 k=512 dtype=bf16 groups=300 grouping=indexed epilogue=bias",
        "gemm m=64 n=1536 k=2048 dtype=bf16 groups=30 grouping=masked",
        "gemm m=512 n=384 k=5000 dtype=bf16 layout=crr groups=9 grouping=along_k out=fp32",
        "gemm m=1500 n=512 k=1024 dtype=fp8 groups=12 grouping=contiguous out=bf16",
        "gemm m=300 n=77 k=131 groups=20 grouping=contiguous",
        "gemm m=900 n=33 k=35 dtype=bf16 groups=20000 grouping=contiguous",
        "gemm m=100 n=200 k=65 dtype=bf16 groups=6 grouping=along_k beta=1"}) {
    const Problem problem = parse_problem(line);
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    check(name_of(ready.spec), std::get<GemmProblem>(problem), false);
    if (HasFailure()) return;
  }
}

// What the numbers say that do not fit is written, and nothing else.
TEST_F(GpuGrouped, NumbersThatDoNotFitAreReported) {
  const std::vector<KernelSpec> specs =
      kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
               "fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4"});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    SCOPED_TRACE(name_of(spec));
    const auto& signature = std::get<GemmSignature>(spec.signature);
    const bool has_matrices = gemm::group_matrices(signature.grouping).out;
    const bool along_k = signature.grouping == GemmGrouping::along_k;
    GemmProblem p = gemm::problem_of(signature, has_matrices ? 24 : 3000, 16, along_k ? 3000 : 40);
    p.groups = 2500, p.check_groups = true, p.group_int64 = draw(0, 1) == 0;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    auto& o = std::get<GemmOperands>(owned.operands);
    const std::int64_t count = gemm::numbers_count(p);
    for (int i = 0; i < 3; ++i)
      grouped::put_number(p, o, draw(1, count - 1), draw(0, 1) * 9000 - 5);
    const device::BadGroup bad = device::first_bad_group(gemm::group_arguments(with_strides(p), o));
    ASSERT_TRUE(bad.found);
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = bytes_of_out(owned);
    EXPECT_EQ(run_at(Edge::last, name_of(spec), p, owned), before);
    EXPECT_EQ(o.bad_group[0], 1);
    EXPECT_EQ(o.bad_group[1], bad.place);
    EXPECT_EQ(o.bad_group[2], bad.number);
    EXPECT_EQ(o.bad_group[3], bad.bound);
  }
}

// A graph is replayed with other sizes of groups.
TEST_F(GpuGrouped, IsCapturedAndReplayedWithOtherSizes) {
  replay(kernels({"bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
                  "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
                  "bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16_groups{}_cooperative_s8_swap"}));
}

// NaN in one group reaches no other one.
TEST_F(GpuGrouped, NanStaysInItsGroup) {
  expect_nan_stays(kernels({"bf16_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3",
                            "bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_cooperative_s4",
                            "bf16_rcr_tmaws_64x128x64_2x1x1_64x128x16_groups{}_pingpong_s4",
                            "fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_groups{}_cooperative_s5"}));
}

// ---- with scales of blocks ----

class GpuGroupedScaled : public GpuGrouped {};

TEST_F(GpuGroupedScaled, KernelsByWarpsAreCorrect) {
  check_all(
      {"fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
       "fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groups{}_scalea1x32_scaleb1x32_bye8m0_s3",
       "fp8_bf8_rrr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea128x128_scaleb1x32_s3",
       "bf8_crr_cpasync_64x64x64_2x2x1_16x8x16_outbf16_groups{}_scalea1x128_bye8m0_bias_gelu_s3",
       "bf8_fp8_ccr_cpasync_64x64x64_2x2x1_16x8x16_outfp32_groups{}_scaleb128x128_multidadd2_s3",
       "fp8_rcr_cpasync_64x64x32_2x2x1_16x8x16_groups{}_scalea1x128_scaleb1x128_bye8m0_s3"},
      1, 8);
}

constexpr const char* kScaledKernels[] = {
    "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_128x96x128_2x1x1_64x96x32_groups{}_scalea1x128_scaleb1x128_cooperative_s4",
    "fp8_rcr_tmaws_256x64x128_2x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_64x64x128_1x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s4",
    "fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_groups{}_scalea1x128_scaleb128x128_cooperative_s5_"
    "swap",
    "fp8_rcr_tmaws_64x16x128_1x1x1_64x16x32_groups{}_scalea1x128_scaleb1x128_cooperative_s6_swap",
    "fp8_rcr_tmaws_64x8x128_1x1x1_64x8x32_groups{}_scalea1x128_scaleb128x128_cooperative_s8_swap"};

TEST_F(GpuGroupedScaled, KernelsByTheCopyEngineAreCorrect) {
  check_all({std::begin(kScaledKernels), std::end(kScaledKernels)}, 16, 8);
}

TEST_F(GpuGroupedScaled, TypesAndEpiloguesAreCorrect) {
  check_all(
      {"bf8_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outfp32_groups{}_scalea1x128_"
       "scaleb128x128_cooperative_s4",
       "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_groups{}_scalea1x128_scaleb128x128_"
       "bias_gelu_cooperative_s4",
       "fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_scalea1x128_scaleb1x128_multidadd2_"
       "cooperative_s4",
       "fp8_rcr_tmaws_64x32x128_1x1x1_64x32x32_outbf16_groups{}_scalea1x128_scaleb128x128_"
       "rowscale_colscale_cooperative_s6_swap"},
      16, 6);
}

// What a dispatcher chooses.
TEST_F(GpuGroupedScaled, ChosenKernelsAreCorrect) {
  for (const char* words :
       {"m=2000 n=1536 k=1024 groups=37 grouping=contiguous scale_a=1x128 scale_b=128x128",
        "m=2000 n=1024 k=512 groups=300 grouping=indexed scale_a=1x128 scale_b=128x128",
        "m=64 n=1536 k=2048 groups=30 grouping=masked scale_a=1x128 scale_b=128x128",
        "m=4 n=1536 k=2048 groups=30 grouping=masked scale_a=1x128 scale_b=128x128",
        "m=512 n=384 k=5008 groups=9 grouping=along_k scale_a=1x128 scale_b=1x128 out=fp32",
        "m=300 n=77 k=131 groups=20 grouping=contiguous scale_a=1x32 scale_b=1x32 "
        "scale_type=e8m0"}) {
    const Problem problem = parse_problem(fmt::format("gemm a=fp8 {}", words));
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    check(name_of(ready.spec), std::get<GemmProblem>(problem), false);
    if (HasFailure()) return;
  }
}

TEST_F(GpuGroupedScaled, IsCapturedAndReplayedWithOtherSizes) {
  replay(kernels({"fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
                  kScaledKernels[0], kScaledKernels[5]}));
}

TEST_F(GpuGroupedScaled, NanStaysInItsGroup) {
  expect_nan_stays(
      kernels({"fp8_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               "fp8_crr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_scalea1x32_scaleb1x128_s3",
               kScaledKernels[0], kScaledKernels[1], kScaledKernels[5]}));
}

// Rows of a group whose scales are NaN spoil no other group's, which may share tiles with them.
TEST_F(GpuGroupedScaled, NanAmongScalesStaysInItsRows) {
  const std::vector<KernelSpec> specs =
      kernels({"fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_groups{}_scalea1x128_scaleb128x128_s3",
               kScaledKernels[0], kScaledKernels[5]});
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const auto& signature = std::get<GemmSignature>(spec.signature);
    if (signature.grouping == GemmGrouping::along_k) continue;  // all groups have these rows
    GemmProblem p = with_strides(gemm::problem_of(signature, 160, 96, 272));
    p.groups = 5;
    measure::OwnedOperands owned = measure::random_operands(Problem(p), random_());
    grouped::fill_numbers(p, owned.operands, random_);
    const auto& o = std::get<GemmOperands>(owned.operands);
    auto* const scales = static_cast<float*>(const_cast<void*>(o.scale_a));
    for (std::int64_t row = draw(0, 80), last = row + draw(1, 70); row < last; ++row) {
      scales[row * p.stride_scale_a_m + draw(0, 2) * p.stride_scale_a_k] = NAN;
    }
    measure::reset_outputs(owned);
    const std::vector<std::byte> before = bytes_of_out(owned);
    SCOPED_TRACE(name_of(spec));
    run_at(Edge::last, name_of(spec), p, owned);
    expect_right(p, owned, before);
  }
}

}  // namespace
}  // namespace tessera
