// Kernels for few rows or few columns compile without spilling a register, whatever their epilogue.
// No GPU is needed.
#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/stream_gpu_internal.h"

namespace tessera {
namespace {

class FewRowsKernels : public NvrtcTest {
 protected:
  std::vector<Source> sources(DType dtype, const char* epilogue) const {
    GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, 1, 64, 64);
    p.epilogue = parse_epilogue(epilogue);
    const auto signature = std::get<GemmSignature>(signature_of(p));
    std::vector<Algorithm> all;
    gemm::add_all_stream_kernels(target_, dtype, all);
    std::vector<Source> sources;
    for (const Algorithm& a : all) {
      const KernelSpec spec = {signature, a, target_.name};
      EXPECT_EQ(gemm::is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(gemm::emit(spec, target_));
    }
    EXPECT_EQ(sources.size(), 21U);
    return sources;
  }
};

TEST_F(FewRowsKernels, OfEveryTypeDoNotSpill) {
  expect_no_spills(sources(DType::bf16, "none"));
  expect_no_spills(sources(DType::fp32, "bias+gelu"));
  expect_no_spills(sources(DType::fp16, "multi_d_add2"));
}

}  // namespace
}  // namespace tessera
