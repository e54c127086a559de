// Appending to a cache and attending to it on a GPU against the fp64 reference: any features
// together, by every pipeline that serves them.
#include <gtest/gtest.h>

#include "cuda/fmha/pipelines.h"
#include "host/fmha/extend_problems.h"

namespace tessera {
namespace {

class GpuFmhaExtend : public GpuFmhaPipeline {
 protected:
  void check_some(Pipeline pipeline, std::size_t count) {
    fmha::RandomFmhas random(random_());
    std::vector<Case> cases;
    for (std::size_t i = 0; i < 8 * count && cases.size() < count; ++i) {
      FmhaProblem p = fmha::random_extend(random, i % 4 == 0 ? 300 : 40, 130);
      if (pipeline != Pipeline::direct) make_whole(random, p);
      const std::vector<KernelSpec> found = kernels(pipeline, p);
      if (found.empty()) continue;
      cases.push_back({random.one_of(found), p});
    }
    EXPECT_EQ(cases.size(), count);
    check_all(cases);
  }

  // What kernels of tensor cores take: 16 bits, heads of whole pieces, strides of such pieces.
  static void make_whole(fmha::RandomFmhas& random, FmhaProblem& p) {
    p.in = p.out = p.dtype_bias = random.coin() ? DType::bf16 : DType::fp16;
    p.hdim = 8 * random.integer(1, 16), p.hdim_v = 8 * random.integer(1, 16);
    p.rotary_dim = p.rotary == FmhaRotary::none ? 0 : p.hdim / 4 * 2;
    p.cache_layout = FmhaCacheLayout::linear;
    p.p_drop = 0, p.random = false, p.sink = 0;
    p.scale = 0, p.num_splits = 0;
    p.q_strides = p.k_strides = p.v_strides = p.out_strides = kPackedTokens;
    p.k_new_strides = p.v_new_strides = p.q_turned_strides = kPackedTokens;
  }
};

TEST_F(GpuFmhaExtend, AnyFeaturesTogetherAreCorrect) { check_some(Pipeline::direct, 30); }
TEST_F(GpuFmhaExtend, PromptsByTensorCoresAreCorrect) { check_some(Pipeline::tmaws, 30); }
TEST_F(GpuFmhaExtend, FewQueriesAreCorrect) { check_some(Pipeline::splitkv, 30); }

}  // namespace
}  // namespace tessera
