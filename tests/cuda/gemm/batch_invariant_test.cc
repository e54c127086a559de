// Rows of products have the same bits whatever the other rows are, on a GPU.
#include "cuda/batch_invariant.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 8192;

class GpuGemmBatchInvariant : public GpuBatchInvariant {
 protected:
  void check_rows(GemmProblem p, Whole& w, std::int64_t m, const std::string& kernel = "") {
    const std::int64_t first = draw(0, (kRows - m) / 8) * 8, row = p.n * size_of(p.out);
    GemmOperands o = std::get<GemmOperands>(w.placed.operands);
    o.a = behind(o.a, first * p.k * size_of(p.a)), o.out = behind(o.out, first * row);
    p.m = m;
    expect_same(p, w, o, first * row, m * row, kernel);
  }
};

TEST_F(GpuGemmBatchInvariant, RowsHaveTheSameBits) {
  for (const DType type : {DType::bf16, DType::fp16, DType::fp32, DType::fp8}) {
    for (const std::int64_t k : {512, 4096}) {
      const GemmProblem p = gemm_problem(type, GemmLayout::rcr, kRows, 1024, k);
      Whole w = compute(p);
      for (const std::int64_t m : {1, 2, 7, 16, 33, 64, 129, 1000, 4096}) check_rows(p, w, m);
    }
  }
}

// Kernels whose orders of sums have the same words.
TEST_F(GpuGemmBatchInvariant, KernelsOfOneOrderGiveEqualBits) {
  for (const DType type : {DType::bf16, DType::fp8}) {
    GemmProblem p = gemm_problem(type, GemmLayout::rcr, kRows, 1024, 4096);
    Whole w = compute(p);
    p.m = 48;
    std::vector<Considered> others = dispatcher_->explain(p).considered;
    std::erase_if(others, [](const Considered& c) { return !c.refusal.empty(); });
    std::shuffle(others.begin(), others.end(), random_);
    if (others.size() > 8) others.resize(8);
    for (const Considered& c : others) check_rows(p, w, p.m, c.name);
  }
}

}  // namespace
}  // namespace tessera
