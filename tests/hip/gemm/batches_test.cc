// GEMM's pipelines for AMD GPUs on batches and on shares of stream-K: kernels of small tiles, run
// on the emulator on random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "hip/emulated_test.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

constexpr int kBatches = 4, kShares = 3;  // problems of each kernel

class PipelinesOfGemm : public EmulatedTest {
 protected:
  PipelinesOfGemm() : EmulatedTest(Op::gemm) {}

  // Each kernel with one of the layouts that it takes, another one in each run.
  std::vector<std::string> names(const std::vector<std::string>& kernels) {
    std::vector<std::string> all;
    for (const std::string& kernel : kernels) {
      std::vector<std::string> taken;
      for (const char* layout : {"rcr", "rrr", "crr", "ccr"}) {
        const std::string name = fmt::format("gemm_fp16_{}_{}", layout, kernel);
        const KernelSpec spec = parse_name(fmt::format("{}_{}", name, target_.name));
        if (family_.is_legal(spec, target_)) taken.push_back(name);
      }
      if (taken.empty()) continue;  // no pipeline of this target
      all.push_back(taken[static_cast<std::size_t>(between(0, std::ssize(taken) - 1))]);
    }
    return all;
  }

  GemmProblem sized(const KernelSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k) {
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), m, n, k);
    if (one_in(2)) {
      for (std::int64_t* size : {&p.m, &p.n, &p.k}) *size = (*size + 1) / 2 * 2;
    }
    if (one_in(2)) p.alpha = 0.75F;
    if (one_in(2)) p.beta = -1.5F;
    return p;
  }

  // Matrices apart, side by side, or one for all batches; now and then arrays of pointers.
  GemmProblem batched(const KernelSpec& spec) {
    const bool is_stream = spec.algorithm.pipeline == Pipeline::stream;
    GemmProblem p = sized(spec, between(1, is_stream ? 4 : 80), between(1, 80), between(1, 150));
    p.batch = between(2, 5);
    p.pointer_arrays = one_in(4);
    if (p.pointer_arrays) return p;
    const GemmProblem packed = with_strides(p);
    const auto draw = [&](std::int64_t least) {
      return one_in(3) ? 0 : one_in(2) ? least : least + between(1, 70);
    };
    p.batch_stride_a = draw(packed.batch_stride_a);
    p.batch_stride_b = draw(packed.batch_stride_b);
    p.batch_stride_c = draw(packed.batch_stride_c);
    p.batch_stride_out = packed.batch_stride_out + (one_in(2) ? 0 : between(1, 70));
    return p;
  }

  // Fewer blocks than a GPU has units, so that some take whole tiles before they share.
  void take_few_blocks(std::int64_t blocks) {
    adjust_ = [blocks](Launch& launch) {
      device::HipGemmArguments arguments{};
      std::memcpy(&arguments, launch.arguments.data(), sizeof arguments);
      arguments.blocks = std::min(arguments.blocks, static_cast<int>(blocks));
      std::memcpy(launch.arguments.data(), &arguments, sizeof arguments);
      launch.steps[0].grid[0] = static_cast<unsigned>(arguments.blocks);
    };
  }
  GemmProblem shared(const KernelSpec& spec) {
    const Shape3& t = spec.algorithm.tile;
    const std::int64_t least = 2 * device::kLeastStreamSteps * t.k;
    const std::int64_t k = one_in(5) ? between(0, least) : between(least, 3 * least / 2);
    GemmProblem p = sized(spec, between(1, 3 * t.m), between(1, 2 * t.n), k);
    if (one_in(3)) p.batch = 2;
    return p;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, PipelinesOfGemm, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

TEST_P(PipelinesOfGemm, TakeBatches) {
  const std::vector<std::string> all =
      names({"compv3_64x64x32_2x2x1_16x16x32_intrawave", "compv4_64x64x32_2x2x1_32x32x16_intrawave",
             "mem_64x64x32_2x2x1_16x16x32_intrawave", "async_64x64x64_2x2x1_16x16x32_intrawave_s2",
             "async_64x64x64_2x2x1_32x32x16_intrawave_s3",
             "compv3_64x64x32_2x2x1_16x16x32_intrawave_splitordered1_streamk",
             "direct_64x64x16_2x2x1_4x4x1", "stream_4x8x4096_1x2x4_4x4x16"});
  ASSERT_GE(all.size(), 6U);
  for_each_kernel(all, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < kBatches; ++n) check(spec, source, kernel, batched(spec));
  });
}

TEST_P(PipelinesOfGemm, ShareStepsOfK) {
  const std::vector<std::string> all =
      names({"compv3_64x64x32_2x2x1_16x16x32_intrawave_splitordered1_streamk",
             "compv4_64x64x32_2x2x1_32x32x16_intrawave_splitordered1_streamk",
             "mem_32x64x32_1x4x1_16x16x32_intrawave_splitordered1_streamk",
             "async_64x64x64_2x2x1_16x16x32_intrawave_splitordered1_streamk_s2",
             "async_64x64x64_2x2x1_32x32x16_intrawave_splitordered1_streamk_s3"});
  ASSERT_GE(all.size(), 3U);
  for_each_kernel(all, [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    for (int n = 0; n < kShares; ++n) {
      take_few_blocks(between(1, 9));
      check(spec, source, kernel, shared(spec));
    }
  });
}

}  // namespace
}  // namespace tessera
