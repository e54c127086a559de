// Kernels with tiles that fit a problem's rows, and stream-K, compile without spilling a register,
// whatever their epilogue. No GPU is needed.
#include <algorithm>

#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/tmaws.h"

namespace tessera {
namespace {

class FittedKernels : public NvrtcTest {
 protected:
  // The legal ones of these sides.
  std::vector<Source> sources(DType dtype, GemmLayout layout, const char* epilogue,
                              std::vector<int> sides) const {
    GemmProblem p = gemm_problem(dtype, layout, 64, 64, 64);
    p.epilogue = parse_epilogue(epilogue);
    const auto signature = std::get<GemmSignature>(signature_of(p));
    std::vector<Algorithm> all;
    gemm::add_fitted({signature, target_, nullptr}, all);
    std::erase_if(all, [&](const Algorithm& a) {
      return a.swap_ab && std::find(sides.begin(), sides.end(), a.tile.n) == sides.end();
    });
    std::vector<Source> sources;
    for (const Algorithm& a : all) {
      const KernelSpec spec = {signature, a, target_.name};
      if (gemm::family().is_legal(spec, target_))
        sources.push_back(gemm::family().emit(spec, target_));
    }
    EXPECT_GT(sources.size(), 4U);
    return sources;
  }
};

TEST_F(FittedKernels, OfManySidesDoNotSpill) {
  expect_no_spills(
      sources(DType::bf16, GemmLayout::rcr, "none", {72, 96, 120, 160, 200, 208, 240}));
}

TEST_F(FittedKernels, OfOtherTypesDoNotSpill) {
  expect_no_spills(sources(DType::fp8, GemmLayout::rcr, "none", {72, 240}));
  expect_no_spills(sources(DType::int8, GemmLayout::rcr, "none", {112, 208}));
  expect_no_spills(sources(DType::tf32, GemmLayout::rcr, "none", {72, 240}));
  expect_no_spills(sources(DType::fp16, GemmLayout::ccr, "none", {72, 240}));
}

TEST_F(FittedKernels, WithEpiloguesDoNotSpill) {
  for (const char* epilogue : {"bias+gelu", "multi_d_add2", "row_scale+col_scale"}) {
    expect_no_spills(sources(DType::bf16, GemmLayout::rcr, epilogue, {160, 192}));
  }
}

}  // namespace
}  // namespace tessera
