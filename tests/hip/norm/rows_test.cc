// Normalisations for AMD GPUs: essential kernels and others, compiled, counted, and run instruction
// by instruction on the emulator on random rows, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "hip/emulated_test.h"
#include "scaled_rows.h"
#include "tessera/device/hip/norm/norm_arguments.h"
#include "tessera/families/norm/norm.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostElements = 12000;  // of a problem: the emulator takes its time
constexpr int kNormProblems = 2;               // of a kernel

// Beside the essential ones: rows of several waves and of one, types that differ, slices, flags, as
// many elements a lane as registers are for.
constexpr const char* kOthers[] = {
    "norm_fp32_softmax_rows_4x256x1_4x1x1_1x1x1_outbf16",
    "norm_fp16_softmax_rows_1x16384x1_1x16x1_1x1x1_outbf16",
    "norm_bf16_softmax_rows_1x8192x1_1x4x1_1x1x1_outfp32_slices8",
    "norm_fp32_bf16_rmsnorm_rows_4x1024x1_4x1x1_1x1x1_scale_shift",
    "norm_bf16_fp32_rmsnorm_rows_4x512x1_4x1x1_1x1x1_scale_residual_slices8",
    "norm_fp16_rmsnorm_rows_1x2048x1_1x4x1_1x1x1_outfp32_shift",
    "norm_fp32_layernorm_rows_1x16384x1_1x16x1_1x1x1",
    "norm_fp32_layernorm_rows_1x16384x1_1x4x1_1x1x1_scale_shift_residual",
    "norm_bf16_fp32_layernorm_rows_4x4096x1_4x1x1_1x1x1_outfp32_scale_shift_residual",
    "norm_fp32_fp16_layernorm_rows_1x1024x1_1x4x1_1x1x1_scale_shift_residual_slices8",
};

class EmulatedNorm : public EmulatedTest {
 protected:
  EmulatedNorm() : EmulatedTest(Op::norm) {}

  NormProblem problem_for(const KernelSpec& spec, std::int64_t rows, std::int64_t columns) const {
    auto p = std::get<NormProblem>(family_.samples(spec, target_).front());
    p.rows = rows;
    p.columns = columns;
    return p;
  }
  // Rows that the registers hold and rows that they don't; a third of them begin at multiples of 16
  // bytes.
  NormProblem random_problem(const KernelSpec& spec) {
    NormProblem p = problem_for(spec, 1, 1);
    const std::int64_t most = 9 * std::int64_t{spec.algorithm.tile.n} / 4;
    p.columns = between(1, between(0, 1) == 0 ? most : 600);
    if (between(0, 2) == 0) p.columns = (p.columns + 7) / 8 * 8;
    p.rows = std::clamp<std::int64_t>(kMostElements / p.columns, 1, between(1, 9));
    if (p.columns % 8 == 0) return p;
    for (std::int64_t* ld : {&p.ld_in, &p.ld_residual, &p.ld_out, &p.ld_sum}) {
      if (between(0, 1) == 0) *ld = p.columns + between(0, 40);
    }
    if (is_gated(p.kind) && p.ld_in != kPacked) p.ld_in += p.columns;
    return p;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, EmulatedNorm,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedNorm, KernelsAreLeanAndCorrect) {
  const bool has_long_waves = target_.warp_size == 64;
  std::vector<std::string> others(std::begin(kOthers), std::end(kOthers));
  std::erase_if(others, [&](const std::string& name) {  // too long for lanes of shorter waves
    const KernelSpec spec = parse_name(fmt::format("{}_{}", name, target_.name));
    return !has_long_waves && !family_.is_legal(spec, target_);
  });
  ASSERT_GE(others.size(), 8U);
  std::vector<std::string> names = some(others, kUsualOthers);
  std::vector<KernelSpec> shipped;
  for (const std::string& set : family_.preselected_names()) {
    try {
      for (KernelSpec& spec : family_.preselected(set, target_)) shipped.push_back(std::move(spec));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
    }
  }
  ASSERT_EQ(shipped.size(), has_long_waves ? 46U : 3U);
  for (const KernelSpec& spec : sampled(shipped)) {
    names.push_back(name_of(spec).substr(0, name_of(spec).rfind('_')));
  }
  for_each_kernel(names, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < kNormProblems; ++n) check(spec, source, kernel, random_problem(spec));
  });
}

// Outputs of 8 bits, in the target's own encoding: rows that registers hold and others, rows whose
// squares overflow, scales that are given and written.
TEST_P(EmulatedNorm, QuantisedOutputsAreCorrect) {
  std::vector<std::string> names;
  for (const char* quant : {"tensor", "row", "block"}) {
    names.push_back(
        fmt::format("norm_bf16_rmsnorm_rows_1x2048x1_1x4x1_1x1x1_outfp8_scale_quant{}", quant));
    names.push_back(fmt::format(
        "norm_fp32_layernorm_rows_4x256x1_4x1x1_1x1x1_outbf8_shift_residual_quant{}", quant));
  }
  for_each_kernel(names, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (const bool is_scaled : {false, true}) {
      NormProblem p = is_scaled ? problem_for(spec, 20, between(1, 500)) : random_problem(spec);
      p.scales_by_column = p.quant == NormQuant::block && between(0, 1) == 0;
      check(spec, source, kernel, p, [&](const Operands& operands) {
        if (is_scaled) testing_support::scale_rows(p, operands, between(0, p.columns - 1));
      });
    }
  });
}

TEST_P(EmulatedNorm, ElementwiseRowsAreCorrect) {
  std::vector<std::string> names = {
      "norm_bf16_silumul_rows_1x2048x1_1x4x1_1x1x1",
      "norm_fp32_gelumul_rows_4x256x1_4x1x1_1x1x1_outbf16",
      "norm_fp16_gelutanhmul_rows_4x512x1_4x1x1_1x1x1_interleaved",
      "norm_fp32_silumul_rows_1x1024x1_1x4x1_1x1x1_interleaved",
      "norm_bf16_silumul_rows_1x2048x1_1x4x1_1x1x1_outfp8_quanttensor",
      "norm_bf16_silumul_rows_4x512x1_4x1x1_1x1x1_outfp8_quantrow_interleaved",
      "norm_fp32_gelumul_rows_1x1024x1_1x4x1_1x1x1_outbf8_quantrow",
      "norm_bf16_silumul_rows_1x2048x1_1x4x1_1x1x1_outfp8_quantblock",
      "norm_bf16_copy_rows_1x2048x1_1x4x1_1x1x1_outfp8_quantblock",
      "norm_fp16_copy_rows_4x512x1_4x1x1_1x1x1_outbf8_quantrow",
      "norm_fp32_copy_rows_1x1024x1_1x4x1_1x1x1_outfp8_quanttensor",
      "norm_fp32_copy_rows_4x256x1_4x1x1_1x1x1_outbf16"};
  for_each_kernel(names, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    NormProblem p = random_problem(spec);
    p.scales_by_column = p.quant == NormQuant::block && between(0, 1) == 0;
    check(spec, source, kernel, p);
  });
}

// Rows are in layers where there are more than a grid has lanes. The last layer has too many.
TEST_P(EmulatedNorm, RowsAreInLayers) {
  adjust_ = [](Launch& launch) {
    constexpr std::int64_t kBlocks = 2;
    std::memcpy(launch.arguments.data() + offsetof(device::HipNormArguments, blocks), &kBlocks,
                sizeof kBlocks);
    for (Step& step : launch.steps) step.grid = {kBlocks, step.grid[1], (step.grid[0] + 1) / 2};
  };
  for_each_kernel({"norm_fp32_rmsnorm_rows_4x256x1_4x1x1_1x1x1_scale",
                   "norm_fp32_layernorm_rows_1x1024x1_1x4x1_1x1x1_residual_slices8"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    check(spec, source, kernel, problem_for(spec, 19, 300));
                  });
}

// Rows whose squares overflow or vanish, of one step and of slices.
TEST_P(EmulatedNorm, RowsWhoseSquaresFp32Lacks) {
  for_each_kernel({"norm_fp32_rmsnorm_rows_4x256x1_4x1x1_1x1x1_scale",
                   "norm_bf16_layernorm_rows_1x2048x1_1x4x1_1x1x1_outfp32_scale_shift",
                   "norm_fp32_layernorm_rows_1x1024x1_1x4x1_1x1x1_residual_slices8"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    NormProblem p = problem_for(spec, 36, between(100, 700));
                    if (between(0, 1) == 0) p.epsilon = 0;
                    check(spec, source, kernel, p, [&](const Operands& operands) {
                      testing_support::scale_rows(p, operands, between(0, p.columns - 1));
                    });
                  });
}

// An element, the first elements or all elements of a row.
void put_specials(const NormProblem& p, const Operands& operands, std::int64_t place) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {kInf,  -kInf,  std::numeric_limits<float>::quiet_NaN(),
                            3e38F, -3e38F, 0.0F};
  auto* in = static_cast<float*>(const_cast<void*>(std::get<NormOperands>(operands).in));
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t last = row >= 12 ? p.columns - 1 : place;
    for (std::int64_t c = row >= 6 ? 0 : place; c <= last; ++c) {
      in[row * p.columns + c] = specials[row % 6];
    }
  }
}

TEST_P(EmulatedNorm, SpecialValues) {
  std::vector<std::string> names;
  for (const char* kind : {"softmax", "rmsnorm", "layernorm"}) {
    for (const char* end : {"", "_slices8"}) {
      names.push_back(fmt::format("norm_fp32_{}_rows_1x1024x1_1x4x1_1x1x1{}", kind, end));
    }
  }
  for_each_kernel(names, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (const std::int64_t columns : {5, 1100}) {
      const NormProblem p = problem_for(spec, 18, columns);
      check(spec, source, kernel, p,
            [&](const Operands& operands) { put_specials(p, operands, between(0, columns - 1)); });
    }
  });
}

}  // namespace
}  // namespace tessera
