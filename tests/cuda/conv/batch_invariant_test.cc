// Images have the same bits whatever the other images are, on a GPU.
#include "cuda/batch_invariant.h"

namespace tessera {
namespace {

class GpuConvBatchInvariant : public GpuBatchInvariant {};

TEST_F(GpuConvBatchInvariant, ImagesHaveTheSameBits) {
  for (const char* layer : {"c=64 k=128 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1", "c=64 k=256 h=28 w=28",
                            "c=96 k=96 g=96 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
                            "c=128 k=128 g=32 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1"}) {
    auto p = std::get<ConvProblem>(
        parse_problem(fmt::format("conv direction=forward n=32 dtype=bf16 {}", layer)));
    Whole w = compute(p);
    const Tensors tensors = tensors_of(p);
    const std::int64_t from = static_cast<std::int64_t>(tensors[0].bytes()) / p.n;
    const std::int64_t to = p.k * 28 * 28 * 2;
    for (const std::int64_t n : {1, 2, 5, 16}) {
      const std::int64_t first = draw(0, 32 - n);
      ConvOperands o = std::get<ConvOperands>(w.placed.operands);
      o.in = behind(o.in, first * from), o.out = behind(o.out, first * to);
      p.n = n;
      expect_same(p, w, o, first * to, n * to);
    }
  }
}

}  // namespace
}  // namespace tessera
