// Attention with split keys on a GPU against the fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cuda/fmha/pipelines.h"

namespace tessera {
namespace {

class GpuFmhaSplit : public GpuFmhaPipeline {};

// Few queries and many keys, in what the kernels read; every other field is random.
FmhaProblem few_queries(fmha::RandomFmhas& random) {
  FmhaProblem p = random.problem(60, 256);
  if (random.coin()) p = fmha::without_pages(p);
  p.cache_layout = FmhaCacheLayout::linear;
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  p.p_drop = 0, p.random = false;
  p.in = random.coin() ? DType::fp16 : DType::bf16;
  p.out = random.coin() ? p.in : DType::fp32;
  p.qscale = FmhaQscale::none, p.qscale_block_q = p.qscale_block_k = kPacked;
  if (p.bias != FmhaBias::elementwise) p.dtype_bias = p.in;
  p.seqlen_q = random.integer(1, 9);
  p.seqlen_k = random.integer(1, 6000);
  p.heads *= random.one_of(std::array{1, 1, 4});
  p.hdim = std::max<std::int64_t>(8, p.hdim / 8 * 8);
  if (p.hdim_v != kPacked) p.hdim_v = std::max<std::int64_t>(8, p.hdim_v / 8 * 8);
  p.tokens_q = p.tokens_k = kPacked;
  p.q_strides = p.k_strides = p.v_strides = p.out_strides = p.bias_strides = kPackedTokens;
  p.skip_q = 0;
  return p;
}

TEST_F(GpuFmhaSplit, RandomProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  for (int i = 0; i < 40; ++i) {
    const Problem problem = few_queries(random);
    const std::vector<KernelSpec> some = kernels(Pipeline::splitkv, problem);
    ASSERT_FALSE(some.empty()) << to_string(problem);
    check(random.one_of(some), problem);
  }
}

TEST_F(GpuFmhaSplit, SamplesAreCorrect) {
  for (const char* words : {"dtype=bf16 lse=1", "dtype=fp16 lengths=padded mask=bottom_right"}) {
    const Problem any =
        parse_problem(std::string("fmha heads=2 seqlen_q=1 seqlen_k=64 hdim=64 ") + words);
    for (const KernelSpec& spec : kernels(Pipeline::splitkv, any)) {
      for (const Problem& problem : family_.samples(spec, target_)) check(spec, problem);
    }
  }
}

// Long caches, whose tiles many blocks merge.
TEST_F(GpuFmhaSplit, LongCachesAreCorrect) {
  for (const char* words :
       {"heads=8 heads_kv=1 seqlen_q=1 seqlen_k=131072 hdim=128",
        "batch=2 heads=16 heads_kv=2 seqlen_q=4 seqlen_k=40000 hdim=64 mask=bottom_right",
        "batch=7 heads=8 heads_kv=2 seqlen_q=1 seqlen_k=20000 hdim=128 lengths=padded"}) {
    const Problem problem = parse_problem(std::string("fmha dtype=bf16 lse=1 ") + words);
    for (const KernelSpec& spec : kernels(Pipeline::splitkv, problem)) check(spec, problem);
  }
}

}  // namespace
}  // namespace tessera
