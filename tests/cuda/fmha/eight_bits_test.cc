// The flash kernels of 8 bits on a GPU against the fp64 reference: every kind of factors and
// output, scores that jump, negative and zero factors, and many tiles.
#include <gtest/gtest.h>

#include "cuda/fmha/eight_bits.h"

namespace tessera {
namespace {

class GpuFmhaEightBits : public GpuFmhaPipeline {
 protected:
  void add(const std::string& words, std::vector<Case>& cases) const {
    add_all(Pipeline::tmaws, parse_problem("fmha " + words), cases);
  }
};

TEST_F(GpuFmhaEightBits, RandomProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const Problem problem = for_eight_bits(random, i % 12 == 0 ? 1200 : 300);
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, problem, random, cases));
  }
  check_all(cases);
}

// In pages of all sizes, which several sequences may share. Factors of keys are those of tensors or
// of blocks of the sequence.
TEST_F(GpuFmhaEightBits, RandomPagesAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 50; ++i) {
    FmhaProblem p = for_eight_bits(random, i % 8 == 0 ? 1200 : 300);
    p.pages = random.coin() ? FmhaPages::table : FmhaPages::list;
    p.page_size = random.one_of(std::array{8, 16, 24, 64, 128, 384, 1024});
    p.k_strides = kPackedTokens;
    if (p.qscale == FmhaQscale::kv_block) p.qscale = FmhaQscale::per_tensor;
    if (std::max(p.hdim, p.hdim_v) > 192 || (p.hdim_v != kPacked && p.hdim_v > 128)) {
      p.qscale = FmhaQscale::none;
    }
    if (p.qscale != FmhaQscale::per_block) p.qscale_block_q = p.qscale_block_k = kPacked;
    if (random.coin()) p.num_pages = random.integer(1, p.batch * pages_needed(p) + 4);
    p.check_pages = random.coin();
    ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, p, random, cases));
  }
  check_all(cases);
}

// Scores bent by a soft cap, ALiBi and an element-wise bias, for which only short heads have room.
TEST_F(GpuFmhaEightBits, BentScoresAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"dtype=fp8 bias=alibi soft_cap=9 qscale=per_tensor", "dtype=bf8 out=bf16 soft_cap=5",
        "dtype=fp8,fp32 out=bf16 bias=elementwise mask=top_left qscale=per_tensor"}) {
    ASSERT_NO_FATAL_FAILURE(add(
        std::string("batch=2 heads=4 heads_kv=2 seqlen_q=300 seqlen_k=333 hdim=64 lse=1 ") + words,
        cases));
  }
  check_all(cases);
}

// With weights of fp16 many blocks are repaired where scores differ by tens of nats.
TEST_F(GpuFmhaEightBits, ScoresThatJumpAreCorrect) {
  std::vector<Case> cases;
  for (const char* words : {"dtype=fp8 scale=0.7", "dtype=bf8 out=bf16 scale=2 mask=bottom_right",
                            "dtype=fp8 out=fp32 scale=-0.6", "dtype=fp8 scale=0.0001"}) {
    for (const int hdim : {64, 128, 192, 256}) {
      ASSERT_NO_FATAL_FAILURE(
          add(fmt::format("batch=2 heads=3 seqlen_q=200 seqlen_k=900 hdim={} hdim_v={} lse=1 {}",
                          hdim, hdim == 192 ? 128 : hdim, words),
              cases));
    }
  }
  check_all(cases);
}

// More tiles than units, so that blocks take several, whose products overlap.
TEST_F(GpuFmhaEightBits, ManyTilesAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"batch=8 heads=16 heads_kv=4 seqlen_q=500 seqlen_k=300 hdim=64 dtype=fp8 out=bf16",
        "batch=4 heads=16 heads_kv=2 seqlen_q=777 seqlen_k=777 hdim=128 mask=top_left dtype=fp8 "
        "qscale=per_tensor",
        "batch=8 heads=9 seqlen_q=300 seqlen_k=520 hdim=128 mask=bottom_right dtype=bf8 "
        "qscale=per_block",
        "batch=60 heads=4 seqlen_q=300 seqlen_k=200 hdim=64 lengths=packed dtype=fp8 out=fp8 "
        "qscale=kv_block",
        "batch=20 heads=8 heads_kv=2 seqlen_q=500 seqlen_k=400 hdim=128 lengths=padded "
        "mask=bottom_right window_left=200 dtype=fp8",
        "batch=4 heads=16 seqlen_q=500 seqlen_k=500 hdim=256 mask=top_left window_left=99 "
        "dtype=fp8 out=bf16 qscale=per_block"}) {
    ASSERT_NO_FATAL_FAILURE(add(std::string("lse=1 ") + words, cases));
  }
  check_all(cases);
}

}  // namespace
}  // namespace tessera
