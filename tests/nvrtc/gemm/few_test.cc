// Kernels for few rows or few columns compile without spilling a register, whatever their epilogue.
// No GPU is needed.
#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/ways.h"

namespace tessera {
namespace {

class FewRowsKernels : public NvrtcTest {
 protected:
  // Sources of the shapes with at least so many rows: shapes with more rows need more registers.
  std::vector<Source> sources(DType dtype, const char* epilogue, int rows) const {
    GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, 1, 64, 64);
    p.epilogue = parse_epilogue(epilogue);
    const auto signature = std::get<GemmSignature>(signature_of(p));
    std::vector<Algorithm> all;
    gemm::kStreamGpu.own.add_own({signature, target_, nullptr}, all);
    std::vector<Source> sources;
    EXPECT_EQ(all.size(), 21U);
    for (const Algorithm& a : all) {
      if (a.tile.m < rows) continue;
      const KernelSpec spec = {signature, a, target_.name};
      EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name_of(spec);
      sources.push_back(gemm::family().emit(spec, target_));
    }
    EXPECT_GE(sources.size(), 7U);
    return sources;
  }
};

TEST_F(FewRowsKernels, OfEveryTypeDoNotSpill) {
  expect_no_spills(sources(DType::bf16, "none", 1));
  expect_no_spills(sources(DType::fp32, "bias+gelu", 4));
  expect_no_spills(sources(DType::fp16, "multi_d_add2", 4));
}

}  // namespace
}  // namespace tessera
