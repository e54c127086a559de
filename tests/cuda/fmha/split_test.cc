// Attention with split keys on a GPU against the fp64 reference. The target's row comes from a
// file, because the shipped row does not list the pipeline.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "cuda/gpu_test.h"
#include "host/fmha/fmha_problems.h"

namespace tessera {
namespace {

class GpuFmhaSplit : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    target_.spaces.at(Op::fmha).pipelines = {Pipeline::direct, Pipeline::splitkv};
    DispatcherOptions options;
    options.target = TESSERA_BUILD "/sm90a_with_splitkv.json";
    std::ofstream(options.target) << to_json(target_);
    options.build.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.build.worker = TESSERA_WORKER;
    dispatcher_ = std::make_unique<Dispatcher>(options);
  }

  std::vector<KernelSpec> split_kernels(const Problem& problem) {
    std::vector<KernelSpec> found;
    for (const KernelSpec& spec : family_.candidates(problem, target_)) {
      if (spec.algorithm.pipeline != Pipeline::splitkv) continue;
      if (family_.supports(spec, problem, target_)) found.push_back(spec);
    }
    return found;
  }

  void check(const KernelSpec& spec, const Problem& problem) {
    check_twice(name_of(spec), problem, expect_correct);
  }

  const Family& family_ = family_of(Op::fmha);
};

// Few queries and many keys, in what the kernels read; every other field is random.
FmhaProblem few_queries(fmha::RandomFmhas& random) {
  FmhaProblem p = fmha::without_pages(random.problem(60, 256));
  p.p_drop = 0, p.random = false;
  p.in = random.coin() ? DType::fp16 : DType::bf16;
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
    const std::vector<KernelSpec> kernels = split_kernels(problem);
    ASSERT_FALSE(kernels.empty()) << to_string(problem);
    check(random.one_of(kernels), problem);
  }
}

TEST_F(GpuFmhaSplit, SamplesAreCorrect) {
  for (const char* words : {"dtype=bf16 lse=1", "dtype=fp16 lengths=padded mask=bottom_right"}) {
    const Problem any =
        parse_problem(std::string("fmha heads=2 seqlen_q=1 seqlen_k=64 hdim=64 ") + words);
    for (const KernelSpec& spec : split_kernels(any)) {
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
    for (const KernelSpec& spec : split_kernels(problem)) check(spec, problem);
  }
}

}  // namespace
}  // namespace tessera
