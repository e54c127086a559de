// Every kernel that ships for a GPU, on a GPU: random odd shapes through the dispatcher, against
// the fp64 reference, with poisoned outputs and bit-identical repeats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cuda/gpu_test.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

GemmProblem problem_of(const KernelSpec& spec, const Shape& shape) {
  return gemm::problem_of(std::get<GemmSignature>(spec.signature), shape.m, shape.n, shape.k);
}

class GpuGemm : public GpuTest {
 protected:
  std::vector<KernelSpec> essential() const {
    const Family& family = family_of(Op::gemm);
    std::set<std::string> names;
    std::vector<KernelSpec> specs;
    for (const std::string& set : family.preselected_names()) {
      if (!matches_wildcard("*_essential", set)) continue;
      try {
        for (KernelSpec& spec : family.preselected(set, target_)) {
          if (names.insert(name_of(spec)).second) specs.push_back(std::move(spec));
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
      }
    }
    return specs;
  }

  // Where the kernel follows pointers: batches by arrays of them, without and with C.
  void add_pointer_arrays(const KernelSpec& spec, std::vector<GemmProblem>& problems) {
    if (problems.empty()) return;
    GemmProblem p = problems.front();
    p.batch = 3;
    p.pointer_arrays = true;
    if (p.preshuffled_b || !family_of(spec).supports(spec, p, target_)) return;
    problems.push_back(p);
    p.m = problems.back().m + 1;  // the next batch begins at another alignment
    p.beta = 1;
    p.batch = 2;
    if (family_of(spec).supports(spec, p, target_)) problems.push_back(p);
  }

  // As odd as the kernel takes it: sizes that are multiples of 1, else 4, 8 or 16.
  std::vector<GemmProblem> problems_for(const KernelSpec& spec, int count) {
    std::vector<GemmProblem> problems;
    for (const std::int64_t unit : {1, 4, 8, 16}) {
      for (int i = 0; i < count; ++i) {
        const auto odd = [&](int limit) {
          return unit * static_cast<std::int64_t>(1 + 2 * (random_() % (limit / unit / 2)));
        };
        // Slices of K need a tile of it each.
        const Algorithm& a = spec.algorithm;
        const int k = a.slices > 1 ? a.splits * a.slices * a.tile.k : 0;
        Shape shape = {odd(600), odd(600), odd(900) + k};
        if (a.pipeline == Pipeline::stream) (i % 2 == 0 ? shape.m : shape.n) = 1 + i % a.tile.m;
        const GemmProblem p = problem_of(spec, shape);
        if (family_of(spec).supports(spec, p, target_)) problems.push_back(p);
      }
      if (!problems.empty()) break;
    }
    add_pointer_arrays(spec, problems);
    return problems;
  }

  void check(const KernelSpec& spec, const GemmProblem& p) {
    const Problem problem = p;
    const std::uint64_t seed = random_();
    const std::string kernel = name_of(spec);
    SCOPED_TRACE(fmt::format("{} on '{}', seed {}", kernel, to_string(problem), seed));
    measure::OwnedOperands owned = measure::random_operands(problem, seed);
    if (p.pointer_arrays && p.k > 0) {  // two batches read the same B
      const void* const b = std::get<GemmOperands>(owned.operands).b;
      auto** const pointers = static_cast<const void**>(const_cast<void*>(b));
      pointers[1] = pointers[0];
    }
    const std::vector<std::byte> first = run_packed(Edge::first, spec, problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(family_of(spec).unpacked(problem), owned);
    const std::vector<std::byte> last = run_packed(Edge::last, spec, problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    if (spec.algorithm.split_k == SplitK::atomic) return;
    EXPECT_EQ(last, first) << "a repeat gave other bits";
  }

  std::vector<std::byte> run_packed(Edge edge, const KernelSpec& spec, const Problem& problem,
                                    measure::OwnedOperands& owned) {
    measure::PlacedOperands placed = place(owned, edge);
    Operands operands = placed.operands;
    const std::string kernel = name_of(spec);
    const ReadyKernel& ready = dispatcher_->kernel_for(problem, {.force = kernel});
    const runtime::DeviceBuffer packed =
        measure::pack_operand(*ready.loaded, spec, problem, *ready.target, operands, place_);
    return run(problem, owned, placed, operands, kernel);
  }
};

TEST_F(GpuGemm, EveryEssentialKernelIsCorrectOnOddShapes) {
  constexpr int kShapes = 3;
  const std::vector<KernelSpec> specs = essential();
  ASSERT_GT(specs.size(), 50U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  int checked = 0;
  for (const KernelSpec& spec : specs) {
    const std::vector<GemmProblem> problems = problems_for(spec, kShapes);
    EXPECT_FALSE(problems.empty()) << name_of(spec) << " serves none of the shapes tried";
    for (const GemmProblem& problem : problems) {
      check(spec, problem);
      ++checked;
    }
  }
  fmt::print("{} kernels, {} problems\n", specs.size(), checked);
}

// What enumeration lists only in some combinations: one kernel of each way of adding up slices, of
// each way of repacking, and of each place where bias and functions are applied.
TEST_F(GpuGemm, SlicesRepackedOperandsAndEpiloguesAreCorrect) {
  constexpr int kShapes = 4;
  constexpr const char* kNames[] = {
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_cooperative_splitordered1_slices4_s6_sm90a",
      "gemm_bf16_rrr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_splitordered1_slices2_s3_sm90a",
      "gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered4_slices16_s8_swap_"
      "sm90a",
      "gemm_fp16_ccr_tmaws_64x64x64_1x1x1_64x64x16_bias_gelu_cooperative_splitordered2_slices3_s6_"
      "sm90a",
      "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_bias_gelu_cooperative_s4_sm90a",
      "gemm_fp16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_silu_pingpong_s6_sm90a",
      "gemm_bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16_bias_tanh_pingpong_s4_sm90a",
      "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_bias_add_pingpong_s6_sm90a",
      "gemm_fp16_rrr_tmaws_128x256x64_2x1x1_64x256x16_gelu_add_cooperative_s4_c2x1_sm90a",
      "gemm_bf16_rcr_tmaws_128x160x64_2x1x1_64x160x16_multidadd2_pingpong_s5_sm90a",
      "gemm_fp16_rcr_tmaws_64x32x64_1x1x1_64x32x16_bias_multidadd2_cooperative_s6_sm90a",
      "gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_multiply_cooperative_splitordered2_slices3_s6_"
      "sm90a",
      "gemm_bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16_cooperative_splitatomic1_slices16_s6_sm90a",
      "gemm_bf16_rcr_tmaws_64x32x64_1x1x1_64x32x16_cooperative_splitatomic4_slices5_s6_repack_"
      "sm90a",
      "gemm_int8_rcr_tmaws_128x128x128_2x1x1_64x128x32_cooperative_splitatomic1_slices4_s4_sm90a",
      "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s3_repack_sm90a",
      "gemm_bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_sm90a",
      "gemm_fp8_rrr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_repack_sm90a",
      "gemm_fp8_bf8_crr_tmaws_128x128x128_2x1x1_64x128x32_presh_pingpong_s6_repack_sm90a",
      "gemm_int8_ccr_tmaws_64x64x128_1x1x1_64x64x32_cooperative_s4_repack_sm90a",
      "gemm_tf32_crr_tmaws_128x128x32_2x1x1_64x128x8_pingpong_s6_repack_sm90a",
      "gemm_fp32_ccr_cpasync_64x64x32_2x2x1_8x4x1_bias_gelu_splitordered1_slices3_s3_sm90a",
      "gemm_fp32_crr_cpasync_16x64x32_2x1x1_4x4x1_multidadd2_splitordered1_slices32_s3_sm90a",
  };
  for (const char* name : kNames) {
    const KernelSpec spec = parse_name(name);
    ASSERT_EQ(family_of(spec).is_legal(spec, target_).reason, "") << name;
    const std::vector<GemmProblem> problems = problems_for(spec, kShapes);
    EXPECT_FALSE(problems.empty()) << name << " serves none of the shapes tried";
    for (GemmProblem problem : problems) {
      check(spec, problem);
      if (problem.pointer_arrays) continue;
      problem.batch = 3;
      if (family_of(spec).supports(spec, problem, target_)) check(spec, problem);
    }
  }
}

TEST_F(GpuGemm, KernelsThatTheDispatcherChoosesAreCorrect) {
  for (const DType dtype :
       {DType::bf16, DType::fp16, DType::fp8, DType::int8, DType::tf32, DType::fp32}) {
    for (const GemmLayout layout :
         {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
      for (const Shape& shape : {Shape{1, 77, 333}, Shape{129, 257, 65}, Shape{512, 384, 256}}) {
        const Problem problem = gemm_problem(dtype, layout, shape.m, shape.n, shape.k);
        const ReadyKernel& ready = dispatcher_->kernel_for(problem);
        check(ready.spec, std::get<GemmProblem>(problem));
      }
    }
  }
}

TEST_F(GpuGemm, PointersOfTheHostAreRefused) {
  const Problem problem = gemm_problem(DType::bf16, GemmLayout::rcr, 64, 64, 64);
  const measure::OwnedOperands owned = measure::random_operands(problem, 1);
  try {
    dispatcher_->run(problem, owned.operands);
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("is not memory of a GPU; copy the operand to device "),
              std::string::npos)
        << error.what();
  }
}

TEST_F(GpuGemm, RunVerifiesOnTheDevice) {
  for (const bool pointer_arrays : {false, true}) {
    GemmProblem problem = gemm_problem(DType::bf16, GemmLayout::rcr, 130, 70, 90);
    problem.batch = pointer_arrays ? 3 : 1;
    problem.pointer_arrays = pointer_arrays;
    run_and_verify(problem);
  }
}

}  // namespace
}  // namespace tessera
