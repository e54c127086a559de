// The flash kernels of attention on a GPU against the fp64 reference: random problems, scores that
// jump far above what came before, and tiles whose queries see no key.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/fmha/pipelines.h"

namespace tessera {
namespace {

class GpuFmhaFlash : public GpuFmhaPipeline {};

std::int64_t rounded(std::int64_t hdim) { return std::max<std::int64_t>(8, hdim / 8 * 8); }

// What is added to scores and what bends them, and which keys queries see.
void draw_features(fmha::RandomFmhas& random, std::int64_t longest, FmhaProblem& p) {
  p.mask = static_cast<FmhaMask>(random.integer(0, 2));
  if (p.mask != FmhaMask::none && random.coin()) {
    p.window_left = random.integer(-1, longest);
    p.window_right = random.integer(-1, longest);
  }
  p.lengths = static_cast<FmhaLengths>(random.integer(0, 2));
  if (p.lengths != FmhaLengths::equal && random.coin()) p.skip_q = random.integer(0, p.seqlen_q);
  if (random.coin()) return;
  p.bias = static_cast<FmhaBias>(random.integer(0, 2));
  if (random.coin()) p.soft_cap = static_cast<float>(random.integer(1, 60)) / 2;
}

// What the kernels compute; lengths, strides and features are random. A scale of up to 5 makes
// scores that differ by hundreds of nats.
FmhaProblem for_flash(fmha::RandomFmhas& random, std::int64_t longest) {
  FmhaProblem p;
  p.in = p.out = p.dtype_bias = random.coin() ? DType::fp16 : DType::bf16;
  p.batch = random.integer(1, 3);
  const std::int64_t group = random.integer(1, 4);
  p.heads = group * random.integer(1, 3);
  p.heads_kv = p.heads / group;
  p.seqlen_q = random.integer(1, longest), p.seqlen_k = random.integer(1, longest);
  const std::int64_t widest = random.one_of(std::array{64, 128, 192, 256});
  p.hdim = rounded(random.integer(8, widest));
  p.hdim_v = random.coin() ? std::min<std::int64_t>(p.hdim, widest == 192 ? 128 : widest)
                           : rounded(random.integer(8, widest == 192 ? 128 : widest));
  draw_features(random, longest, p);
  if (random.coin()) {
    p.scale =
        static_cast<float>(5 * std::abs(random.normal())) / std::sqrt(static_cast<float>(p.hdim));
  }
  p.lse = random.coin();
  if (p.lengths != FmhaLengths::packed && random.coin()) {  // {batch, head, token, element}
    const FmhaProblem full = with_strides(p);
    const std::int64_t row = full.hdim_v + 8 * random.integer(0, 2);
    p.out_strides = {row * p.seqlen_q * p.heads, row * p.seqlen_q, row, 1};
    p.k_strides = {full.hdim * p.seqlen_k * full.heads_kv, full.hdim * p.seqlen_k, full.hdim, 1};
  }
  return p;
}

// The keys and values in the pages of a cache, which may have too few for all tokens: then
// sequences share some.
FmhaProblem in_pages(fmha::RandomFmhas& random, FmhaProblem p) {
  p.pages = random.coin() ? FmhaPages::table : FmhaPages::list;
  p.page_size = random.one_of(std::array{8, 16, 24, 64, 128, 384, 1024});
  p.tokens_k = kPacked;
  p.k_strides = kPackedTokens;
  const std::int64_t needed = pages_needed(p);
  if (random.coin()) p.num_pages = random.integer(1, p.batch * needed + 4);
  if (p.pages == FmhaPages::table && random.coin()) p.max_pages = needed + random.integer(0, 3);
  if (p.pages == FmhaPages::table && random.coin()) p.table_stride = random.integer(0, 2 * needed);
  if (p.pages == FmhaPages::list && p.lengths != FmhaLengths::equal && random.coin()) {
    p.page_entries = random.integer(0, p.batch * needed);
  }
  if (random.coin()) {  // heads apart, with room between tokens: {page, head, token, element}
    const std::int64_t row = p.hdim + 8 * random.integer(0, 2);
    p.k_strides = {row * p.page_size * p.heads_kv, row * p.page_size, row, 1};
  }
  p.check_pages = random.coin();
  return p;
}

TEST_F(GpuFmhaFlash, RandomPagesAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 80; ++i) {
    const Problem problem = in_pages(random, for_flash(random, i % 8 == 0 ? 1200 : 300));
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, problem, random, cases));
  }
  check_all(cases);
}

// Nearly every block is repaired, by keys that are found in their pages again.
TEST_F(GpuFmhaFlash, ScoresThatJumpInPagesAreCorrect) {
  std::vector<Case> cases;
  for (const char* words : {"dtype=bf16 scale=2 pages=table page_size=16",
                            "dtype=fp16 scale=40 pages=list page_size=64 mask=bottom_right",
                            "dtype=bf16 scale=40 pages=table page_size=1024 lengths=padded"}) {
    for (const int hdim : {64, 128, 192, 256}) {
      const Problem problem = parse_problem(
          fmt::format("fmha batch=2 heads=3 seqlen_q=200 seqlen_k=900 hdim={} hdim_v={} lse=1 {}",
                      hdim, hdim == 192 ? 128 : hdim, words));
      ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::tmaws, problem, cases));
    }
  }
  check_all(cases);
}

// Half of them in pages, too. All weights but 1 of 256 are dropped, at most.
TEST_F(GpuFmhaFlash, RandomProblemsWithDropoutAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    FmhaProblem p = for_flash(random, i % 12 == 0 ? 1200 : 300);
    if (random.coin()) p = in_pages(random, p);
    p.p_drop = static_cast<float>(random.integer(1, 999)) / 1000;
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, p, random, cases));
  }
  check_all(cases);
}

TEST_F(GpuFmhaFlash, RandomProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 120; ++i) {
    const Problem problem = for_flash(random, i % 12 == 0 ? 1200 : 300);
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, problem, random, cases));
  }
  check_all(cases);
}

// With scores that differ by hundreds of nats nearly every block is repaired.
TEST_F(GpuFmhaFlash, ScoresThatJumpAreCorrect) {
  std::vector<Case> cases;
  for (const char* words : {"dtype=bf16 scale=2", "dtype=fp16 scale=2", "dtype=bf16 scale=40",
                            "dtype=fp16 scale=40 mask=bottom_right", "dtype=bf16 scale=0.001"}) {
    for (const int hdim : {64, 128, 192, 256}) {
      const Problem problem = parse_problem(
          fmt::format("fmha batch=2 heads=3 seqlen_q=200 seqlen_k=900 hdim={} hdim_v={} lse=1 {}",
                      hdim, hdim == 192 ? 128 : hdim, words));
      ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::tmaws, problem, cases));
    }
  }
  check_all(cases);
}

// The tile that ends a block's work has no keys, and no bias belongs to it. check() puts operands
// at the edges of mapped memory.
TEST_F(GpuFmhaFlash, NothingIsReadBeforeABias) {
  std::vector<Case> cases;
  for (const char* words :
       {"batch=3 heads=4 seqlen_q=864 seqlen_k=864 hdim=72 mask=bottom_right lse=1 dtype=fp16",
        "heads=4 seqlen_q=300 seqlen_k=500 hdim=64 dtype=bf16",
        "heads=2 seqlen_q=300 seqlen_k=500 hdim=128 dtype_bias=fp32 lse=1 dtype=bf16",
        "heads=2 seqlen_q=200 seqlen_k=300 hdim=192 hdim_v=128 bias_stride_q=0 dtype=bf16",
        "heads=2 seqlen_q=200 seqlen_k=300 hdim=256 soft_cap=9 dtype=fp16"}) {
    const Problem problem = parse_problem(std::string("fmha bias=elementwise ") + words);
    ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::tmaws, problem, cases));
  }
  check_all(cases);
}

// More tiles than units, so that blocks take several, whose products overlap.
TEST_F(GpuFmhaFlash, ManyTilesAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"batch=8 heads=16 heads_kv=4 seqlen_q=500 seqlen_k=300 hdim=64 dtype=bf16",
        "batch=4 heads=16 heads_kv=2 seqlen_q=777 seqlen_k=777 hdim=128 mask=top_left dtype=bf16",
        "batch=16 heads=9 seqlen_q=300 seqlen_k=130 hdim=128 mask=bottom_right dtype=fp16",
        "batch=60 heads=4 seqlen_q=300 seqlen_k=200 hdim=64 lengths=packed dtype=bf16",
        "batch=20 heads=8 heads_kv=2 seqlen_q=500 seqlen_k=400 hdim=128 lengths=padded "
        "mask=bottom_right window_left=200 dtype=bf16",
        "batch=4 heads=16 seqlen_q=500 seqlen_k=500 hdim=128 mask=top_left window_left=99 "
        "bias=alibi soft_cap=9 dtype=fp16",
        "batch=60 heads=4 seqlen_q=300 seqlen_k=200 hdim=64 lengths=packed mask=bottom_right "
        "pages=table page_size=16 dtype=bf16",
        "batch=20 heads=8 heads_kv=2 seqlen_q=500 seqlen_k=700 hdim=128 lengths=packed "
        "mask=bottom_right window_left=200 pages=list page_size=64 check_pages=1 dtype=fp16"}) {
    const Problem problem = parse_problem(std::string("fmha lse=1 ") + words);
    ASSERT_NO_FATAL_FAILURE(add_all(Pipeline::tmaws, problem, cases));
  }
  check_all(cases);
}

}  // namespace
}  // namespace tessera
