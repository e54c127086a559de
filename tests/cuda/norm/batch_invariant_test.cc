// Rows of normalisations have the same bits whatever the other rows are, on a GPU.
#include "cuda/batch_invariant.h"

namespace tessera {
namespace {

class GpuNormBatchInvariant : public GpuBatchInvariant {};

TEST_F(GpuNormBatchInvariant, RowsHaveTheSameBits) {
  for (const NormKind kind : {NormKind::softmax, NormKind::rmsnorm, NormKind::layernorm}) {
    for (const std::int64_t columns : {256, 4096, 50'000}) {
      NormProblem p{.kind = kind, .in = DType::bf16, .weight = DType::bf16, .out = DType::bf16};
      p.rows = 2048, p.columns = columns, p.scale = kind != NormKind::softmax;
      Whole w = compute(p);
      for (const std::int64_t rows : {1, 2, 7, 64, 1000}) {
        const std::int64_t first = draw(0, 2048 - rows) * columns * 2;
        NormOperands o = std::get<NormOperands>(w.placed.operands);
        o.in = behind(o.in, first), o.out = behind(o.out, first);
        p.rows = rows;
        expect_same(p, w, o, first, rows * columns * 2);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
