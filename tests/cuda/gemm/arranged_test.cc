// Contractions and operands with several sources on a GPU: any number of dimensions in any order,
// with gaps and strides of 0, every type, against the fp64 reference, with bit-identical repeats.
#include "arranged.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"

namespace tessera {
namespace {

class GpuArranged : public GpuTest {
 protected:
  GemmProblem draw_arranged(DType type, std::int64_t most) {
    constexpr const char* kChains[] = {"none", "bias", "add", "row_scale+relu", "multi_d_add2"};
    constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                       GemmLayout::ccr};
    GemmProblem p = gemm_problem(type, kLayouts[arranged::draw(random_, 0, 3)], 1, 1, 1);
    if (type == DType::int8) p.out = p.d = DType::fp32;
    p.epilogue = parse_epilogue(kChains[arranged::draw(random_, 0, 4)]);
    return arranged::problem_of(random_, std::get<GemmSignature>(signature_of(p)), most);
  }
};

TEST_F(GpuArranged, RandomProblemsAreCorrect) {
  for (const DType type :
       {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    for (int i = 0; i < 6; ++i) {
      const GemmProblem p = draw_arranged(type, 150);
      family_of(Op::gemm).validate(p);
      check_twice(name_of(dispatcher_->kernel_for(p).spec), p, expect_correct);
      if (HasFailure()) return;
    }
  }
}

// Every way that has a kernel for the problem runs it.
TEST_F(GpuArranged, EveryWayServesDimensionsThatDoNotMerge) {
  const Problem p = parse_problem(
      "gemm batch=6 m=128 n=96 k=64 dtype=bf16 "
      "dims=g2:65536:49152:1,g3:64:64:2,m128:192:576,n96:192:6,k64:1:1");
  std::set<Pipeline> seen;
  for (const KernelSpec& spec : family_of(Op::gemm).legal_candidates(p, dispatcher_->target())) {
    if (!family_of(Op::gemm).supports(spec, p, dispatcher_->target())) continue;
    if (!seen.insert(spec.algorithm.pipeline).second) continue;
    check_twice(name_of(spec), p, expect_correct);
    if (HasFailure()) return;
  }
  EXPECT_GE(seen.size(), 2U);
}

}  // namespace
}  // namespace tessera
