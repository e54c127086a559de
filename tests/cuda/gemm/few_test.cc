// Kernels for few rows or few columns, on a GPU: rows that begin anywhere, lengths around whole
// words and parts of k, batches and epilogues, against the fp64 reference, with bit-identical
// repeats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class GpuFew : public GpuTest {
 protected:
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(random_() % limit); }

  // Few rows or few columns, of any length and distance.
  GemmProblem draw(const KernelSpec& spec) {
    const std::int64_t few = 1 + below(spec.algorithm.tile.m);
    const std::int64_t many = few + below(below(4) == 0 ? 5000 : 300);
    const std::int64_t lengths[] = {below(80), below(3000), below(2 * spec.algorithm.tile.k),
                                    spec.algorithm.tile.k + below(3) - 1};
    const std::int64_t k = lengths[below(many > 300 ? 2 : 4)];
    const bool turned = below(2) == 0;
    GemmProblem p = gemm::problem_of(std::get<GemmSignature>(spec.signature), turned ? many : few,
                                     turned ? few : many, k);
    p.batch = below(3) == 0 ? 1 + below(4) : 1;
    if (below(2) == 0) p.ld_a = k + below(20);
    if (below(2) == 0) p.ld_b = k + below(20);
    if (below(3) == 0) p.ld_out = p.n + below(5);
    p.alpha = below(3) == 0 ? 0.5F : 1;
    p.beta = below(3) == 0 ? 2 : 0;
    p.pointer_arrays = below(5) == 0;
    return p;
  }

  void check_all(const std::vector<std::string>& names, int problems) {
    std::vector<KernelSpec> specs;
    for (const std::string& name : names) specs.push_back(parse_name(name));
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      ASSERT_EQ(family_of(spec).is_legal(spec, target_).reason, "") << name_of(spec);
      for (int i = 0; i < problems; ++i) {
        check_twice(name_of(spec), draw(spec), expect_correct);
        if (HasFailure()) return;
      }
    }
  }
};

std::string stream_name(const char* dtype, const std::string& shapes,
                        const std::string& rest = "") {
  return fmt::format("gemm_{}_rcr_stream_{}{}_sm90a", dtype, shapes, rest);
}

TEST_F(GpuFew, RowsOfFp32AreCorrect) {
  std::vector<std::string> names;
  for (const char* shapes :
       {"1x8x16384_1x8x1_1x1x16", "1x16x16384_1x8x1_1x2x16", "1x32x16384_1x8x1_1x4x8",
        "1x8x16384_1x2x4_1x4x8", "1x2x16384_1x1x8_1x2x16", "1x4x16384_1x1x8_1x4x8",
        "2x16x8192_1x8x1_2x2x16", "2x4x8192_1x1x8_2x4x8", "4x32x4096_1x8x1_4x4x8",
        "4x4x4096_1x2x4_4x2x16", "4x4x4096_1x1x8_4x4x8", "3x2x128_1x1x3_3x2x4"}) {
    names.push_back(stream_name("fp32", shapes));
  }
  check_all(names, 12);
}

TEST_F(GpuFew, RowsOf16BitsAreCorrect) {
  std::vector<std::string> names;
  for (const char* dtype : {"bf16", "fp16"}) {
    for (const char* shapes :
         {"1x8x16384_1x8x1_1x1x32", "1x16x16384_1x8x1_1x2x32", "1x4x16384_1x1x8_1x4x16",
          "2x8x8192_1x2x4_2x4x16", "2x2x8192_1x1x8_2x2x32", "4x16x4096_1x8x1_4x2x32",
          "4x4x4096_1x1x8_4x4x16", "8x2x256_1x2x2_8x1x8"}) {
      names.push_back(stream_name(dtype, shapes));
    }
  }
  check_all(names, 12);
}

TEST_F(GpuFew, EpiloguesAndOtherOutputsAreCorrect) {
  check_all({stream_name("fp32", "1x16x16384_1x8x1_1x2x16", "_bias_gelu"),
             stream_name("fp32", "4x4x4096_1x1x8_4x4x8", "_multidadd2"),
             stream_name("bf16", "1x4x16384_1x1x8_1x4x16", "_outfp32"),
             stream_name("bf16", "4x16x4096_1x8x1_4x2x32", "_rowscale_colscale_bias"),
             stream_name("fp16", "2x16x8192_1x8x1_2x2x32", "_add_relu"),
             stream_name("fp16", "4x32x4096_1x8x1_4x4x16", "_multiply")},
            12);
}

// What a dispatcher chooses, of sizes that fill a GPU.
TEST_F(GpuFew, LargeProblemsAreCorrect) {
  for (const char* line :
       {"gemm m=1 n=4096 k=4096", "gemm m=1 n=4097 k=4095 dtype=bf16",
        "gemm m=4097 n=3 k=4095 dtype=fp16", "gemm m=4 n=1000 k=20001", "gemm m=1 n=20000 k=400",
        "gemm m=2 n=1001 k=1003 dtype=bf16 batch=33"}) {
    const Problem problem = parse_problem(line);
    const ReadyKernel& ready = dispatcher_->kernel_for(problem);
    EXPECT_EQ(ready.spec.algorithm.pipeline, Pipeline::stream) << line << ": " << ready.name;
    check_twice(name_of(ready.spec), problem, expect_correct);
  }
}

}  // namespace
}  // namespace tessera
