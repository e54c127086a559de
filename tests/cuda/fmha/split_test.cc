// Attention with split keys on a GPU against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "cuda/fmha/pipelines.h"

namespace tessera {
namespace {

class GpuFmhaSplit : public GpuFmhaPipeline {};

// Few queries and many keys, in what the kernels read; every other field is random.
FmhaProblem few_queries(fmha::RandomFmhas& random) {
  FmhaProblem p = fmha::of_one_type(random.problem(60, 256));
  if (random.coin()) p = fmha::without_pages(p);
  p.cache_layout = FmhaCacheLayout::linear;
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  p.p_drop = 0, p.random = false;
  p.in = random.coin() ? DType::fp16 : DType::bf16;
  p.out = random.coin() ? p.in : DType::fp32;
  if (p.bias != FmhaBias::elementwise || size_of(p.dtype_bias) == 1) p.dtype_bias = p.in;
  p.seqlen_q = random.integer(1, 9);
  p.seqlen_k = random.integer(1, 6000);
  p.heads *= random.one_of(std::array{1, 1, 4});
  p.hdim = std::max<std::int64_t>(8, p.hdim / 8 * 8);
  if (p.hdim_v != kPacked) p.hdim_v = std::max<std::int64_t>(8, p.hdim_v / 8 * 8);
  p.tokens_q = p.tokens_k = kPacked;
  p.q_strides = p.k_strides = p.v_strides = p.out_strides = p.bias_strides = kPackedTokens;
  p.skip_q = 0;
  if (random.integer(0, 3) == 0) p.k_strides[0] = 0;  // all sequences have the same keys
  if (random.integer(0, 3) == 0) p.q_strides[0] = 0;
  if (p.bias == FmhaBias::elementwise) {
    p.bias_strides[static_cast<std::size_t>(random.integer(0, 3))] = 0;
  }
  return p;
}

TEST_F(GpuFmhaSplit, RandomProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 40; ++i) {
    const Problem problem = few_queries(random);
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::splitkv, problem, random, cases));
  }
  check_all(cases);
}

// Keys and values of 8 bits beside queries of all types, with every kind of factors, which may be
// negative; pages of any size.
FmhaProblem of_bytes(fmha::RandomFmhas& random) {
  FmhaProblem p = few_queries(random);
  const auto whole = [](std::int64_t hdim) { return std::max<std::int64_t>(16, hdim / 16 * 16); };
  p.hdim = whole(p.hdim);
  if (p.hdim_v != kPacked) p.hdim_v = whole(p.hdim_v);
  const bool is_own = random.integer(0, 3) > 0;
  p.in = is_own ? random.one_of(std::array{DType::fp16, DType::bf16})
                : random.one_of(fmha::kEightBits);
  if (is_own) p.kv = random.coin() ? FmhaKv::fp8 : FmhaKv::bf8;
  p.out = random.one_of(std::array{DType::fp32, DType::fp16, DType::bf16});
  if (!is_own && random.coin()) p.out = random.one_of(fmha::kEightBits);
  if (p.bias != FmhaBias::elementwise || size_of(p.dtype_bias) == 2) p.dtype_bias = p.in;
  p.qscale = static_cast<FmhaQscale>(random.integer(0, 5));
  if (is_own && p.qscale == FmhaQscale::per_block) p.qscale = FmhaQscale::per_token;
  if (p.qscale == FmhaQscale::per_block) p.qscale_block_q = random.integer(1, 9);
  const bool of_blocks = p.qscale == FmhaQscale::per_block ||
                         (p.qscale == FmhaQscale::kv_block && p.pages == FmhaPages::none);
  if (of_blocks && random.coin()) p.qscale_block_k = random.integer(1, 200);
  return p;
}

TEST_F(GpuFmhaSplit, RandomProblemsOfBytesAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const Problem problem = of_bytes(random);
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::splitkv, problem, random, cases));
  }
  check_all(cases);
}

// Long caches in contiguous memory and in pages of 1, 16 and 128 tokens, one query and 16.
TEST_F(GpuFmhaSplit, LongCachesOfBytesAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"dtype=bf16 kv=fp8 heads=8 heads_kv=1 seqlen_q=1 seqlen_k=65536 hdim=128",
        "dtype=bf16 kv=fp8 qscale=per_tensor batch=7 heads=32 heads_kv=8 seqlen_q=1 seqlen_k=9000 "
        "hdim=128 lengths=padded pages=table page_size=16",
        "dtype=fp16 kv=bf8 qscale=per_token batch=3 heads=32 heads_kv=8 seqlen_q=16 seqlen_k=9000 "
        "hdim=128 lengths=padded mask=bottom_right pages=table page_size=1",
        "dtype=bf16 kv=fp8 qscale=per_head batch=2 heads=71 heads_kv=1 seqlen_q=1 seqlen_k=30000 "
        "hdim=64 pages=list page_size=128",
        "dtype=fp8 qscale=kv_block out=bf16 batch=2 heads=16 heads_kv=2 seqlen_q=3 seqlen_k=20000 "
        "hdim=256 mask=bottom_right pages=table page_size=64"}) {
    const Problem problem = parse_problem(std::string("fmha lse=1 ") + words);
    ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::splitkv, problem, cases));
  }
  check_all(cases);
}

// Queries of bf16 far from 1, of which rows differ: fp16 would not hold them.
TEST_F(GpuFmhaSplit, QueriesOfAnySizeMeetBytes) {
  std::vector<Case> cases;
  for (const char* scale : {"1e-6", "1", "300"}) {
    const Problem problem = parse_problem(
        fmt::format("fmha dtype=bf16 kv=fp8 batch=2 heads=16 heads_kv=2 seqlen_q=2 seqlen_k=3000 "
                    "hdim=128 mask=bottom_right lse=1 scale={}",
                    scale));
    ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::splitkv, problem, cases));
  }
  check_all(cases);
}

// Latent attention: the values are the first elements of the keys, or lie elsewhere, also where
// tokens do not begin at multiples of 16 bytes.
FmhaProblem latent(fmha::RandomFmhas& random) {
  FmhaProblem p = few_queries(random);
  p.heads_kv = random.integer(1, 2);
  p.heads = p.heads_kv * random.one_of(std::array{1, 3, 16, 17, 64, 128});
  p.bias_strides = kPackedTokens;
  p.seqlen_q = random.integer(1, 3);
  p.seqlen_k = random.integer(1, 1500);
  p.hdim = random.coin() ? 576 : random.integer(33, 72) * 8;
  p.hdim_v = random.coin() ? std::min<std::int64_t>(p.hdim, 512) : random.integer(1, 64) * 8;
  p.v_in_k = p.hdim_v <= p.hdim && random.integer(0, 3) > 0;
  p.scale = 0.05F;
  return p;
}

TEST_F(GpuFmhaSplit, RandomLatentProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 30; ++i) {
    const Problem problem = latent(random);
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::splitkv, problem, random, cases));
  }
  check_all(cases);
}

// The same of keys of 8 bits.
TEST_F(GpuFmhaSplit, RandomLatentProblemsOfBytesAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 30; ++i) {
    FmhaProblem p = latent(random);
    if (random.integer(0, 3) == 0) {
      p.in = random.one_of(fmha::kEightBits);
      p.out = DType::bf16;
    } else {
      p.kv = random.coin() ? FmhaKv::fp8 : FmhaKv::bf8;
    }
    if (p.bias != FmhaBias::elementwise || size_of(p.dtype_bias) == 2) p.dtype_bias = p.in;
    p.hdim = std::max<std::int64_t>(272, p.hdim / 16 * 16);
    p.hdim_v = std::max<std::int64_t>(16, p.hdim_v / 16 * 16);
    p.qscale =
        random.one_of(std::array{FmhaQscale::none, FmhaQscale::per_tensor, FmhaQscale::per_head});
    const Problem problem = p;
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::splitkv, problem, random, cases));
  }
  check_all(cases);
}

// Parts of less than a ring of blocks, of one block, and of none; pages that hold whole blocks of
// keys and pages that don't; more rows than a tile has.
TEST_F(GpuFmhaSplit, LatentPartsAndPagesAreCorrect) {
  int turn = 0;
  std::vector<Case> cases;
  for (const char* words :
       {"heads=16 seqlen_q=1 seqlen_k=1", "heads=16 seqlen_q=1 seqlen_k=32 v_in_k=1",
        "heads=64 seqlen_q=1 seqlen_k=100 v_in_k=1 num_splits=1",
        "heads=64 seqlen_q=1 seqlen_k=3000 v_in_k=1 num_splits=2",
        "heads=128 seqlen_q=2 seqlen_k=4096 v_in_k=1 mask=bottom_right lse=1",
        "heads=128 seqlen_q=1 seqlen_k=4096 num_splits=7 lse=1",
        "batch=3 heads=32 seqlen_q=1 seqlen_k=2000 v_in_k=1 lengths=padded lse=1",
        "batch=3 heads=16 seqlen_q=1 seqlen_k=2000 v_in_k=1 lengths=padded pages=table "
        "page_size=64",
        "batch=3 heads=16 seqlen_q=1 seqlen_k=900 v_in_k=1 lengths=padded pages=list page_size=16",
        "batch=2 heads=16 seqlen_q=1 seqlen_k=500 lengths=padded pages=table page_size=1",
        "batch=2 heads=8 seqlen_q=9 seqlen_k=700 v_in_k=1 lengths=packed mask=bottom_right",
        "heads=64 seqlen_q=1 seqlen_k=20000 v_in_k=1 mask=bottom_right window_left=99 sink=40",
        "batch=150 heads=16 seqlen_q=1 seqlen_k=300 v_in_k=1",
        "batch=70 heads=128 seqlen_q=1 seqlen_k=256 v_in_k=1 num_splits=3",
        "heads=16 seqlen_q=1 seqlen_k=1 kv=fp8", "heads=64 seqlen_q=1 seqlen_k=100 v_in_k=1 kv=fp8",
        "batch=3 heads=128 seqlen_q=2 seqlen_k=4096 v_in_k=1 mask=bottom_right lse=1 kv=fp8 "
        "qscale=per_tensor lengths=padded pages=table page_size=64",
        "batch=2 heads=16 seqlen_q=1 seqlen_k=500 lengths=padded pages=table page_size=1 kv=bf8"}) {
    const std::string line = "fmha heads_kv=1 hdim=576 hdim_v=512 scale=0.07 ";
    const Problem problem =
        parse_problem(line + (turn++ % 2 == 0 ? "dtype=bf16 " : "dtype=fp16 ") + words);
    ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::splitkv, problem, cases));
  }
  EXPECT_EQ(cases.size(), static_cast<std::size_t>(turn));
  check_all(cases);
}

// All blocks of a tile merge, twice in a row: the counters are clean again, and the bits are those
// of a launch before.
TEST_F(GpuFmhaSplit, SharesOfAllBlocksAreMerged) {
  for (const char* words :
       {"heads=64 heads_kv=4 seqlen_q=1 seqlen_k=8192 hdim=128",
        "heads=64 heads_kv=1 seqlen_q=1 seqlen_k=30000 hdim=128 lse=1",
        "batch=2 heads=16 heads_kv=2 seqlen_q=4 seqlen_k=20000 hdim=64 mask=bottom_right lse=1",
        "heads=64 heads_kv=1 seqlen_q=1 seqlen_k=16384 hdim=576 hdim_v=512 v_in_k=1 lse=1"}) {
    const Problem problem = parse_problem(std::string("fmha dtype=bf16 ") + words);
    for (const KernelSpec& spec : kernels(Pipeline::splitkv, problem)) {
      for (int i = 0; i < 3; ++i) check(spec, problem);
    }
  }
}

TEST_F(GpuFmhaSplit, SamplesAreCorrect) {
  for (const char* words : {"hdim=64 dtype=bf16 lse=1", "hdim=576 hdim_v=512 dtype=bf16 lse=1",
                            "hdim=64 dtype=fp16 lengths=padded mask=bottom_right",
                            "hdim=576 hdim_v=512 dtype=fp16 lengths=padded mask=bottom_right"}) {
    const Problem any = parse_problem(std::string("fmha heads=2 seqlen_q=1 seqlen_k=64 ") + words);
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
