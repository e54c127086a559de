// Sequences have the same bits whatever the other sequences are, and in chunks of a prefill, on a
// GPU.
#include "cuda/batch_invariant.h"

namespace tessera {
namespace {

class GpuFmhaBatchInvariant : public GpuBatchInvariant {
 protected:
  // Sequence `b` of padded ones by itself, with room for its own lengths only.
  void check_sequence(FmhaProblem p, Whole& w, std::int64_t b) {
    const auto& host = std::get<FmhaOperands>(w.owned.operands);
    FmhaOperands o = std::get<FmhaOperands>(w.placed.operands);
    const std::int64_t of_q = p.seqlen_q * p.heads * p.hdim * 2;
    const std::int64_t of_k = p.seqlen_k * p.heads_kv * p.hdim * 2;
    const std::int64_t queries = host.seqlens_q[b];
    if (queries == 0 || host.seqlens_k[b] == 0) return;
    o.q = behind(o.q, b * of_q), o.out = behind(o.out, b * of_q);
    o.k = behind(o.k, b * of_k), o.v = behind(o.v, b * of_k);
    o.seqlens_q += b, o.seqlens_k += b;
    p.batch = 1;
    p.seqlen_q = queries, p.seqlen_k = host.seqlens_k[b];
    expect_same(p, w, o, b * of_q, queries * p.heads * p.hdim * 2);
  }

  void check(FmhaProblem p, std::int64_t least) {
    p.lengths = FmhaLengths::padded, p.mask = FmhaMask::bottom_right;
    Whole w{measure::random_operands(p, random_()), {}, {}, 0};
    auto& o = std::get<FmhaOperands>(w.owned.operands);
    auto* const queries = const_cast<std::int32_t*>(o.seqlens_q);
    auto* const keys = const_cast<std::int32_t*>(o.seqlens_k);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      queries[b] = static_cast<std::int32_t>(draw(least, p.seqlen_q));
      keys[b] = static_cast<std::int32_t>(draw(queries[b], p.seqlen_k));
    }
    say(fmt::format("{} on '{}'", dispatcher_->explain(p).name, to_string(Problem(p))));
    w = recomputed(p, std::move(w));
    expect_correct(p, w.owned);
    for (std::int64_t b = 0; b < p.batch; ++b) check_sequence(p, w, b);
  }
};

TEST_F(GpuFmhaBatchInvariant, DecodingSequencesHaveTheSameBits) {
  for (const std::int64_t queries : {1, 4}) {
    for (const std::int64_t heads_kv : {8, 32}) {
      check(fmha_problem(DType::bf16, 7, 32, heads_kv, queries, 9000, 128), 1);
    }
  }
}

TEST_F(GpuFmhaBatchInvariant, SequencesHaveTheSameBits) {
  check(fmha_problem(DType::bf16, 5, 16, 4, 700, 2000, 128), 17);
  check(fmha_problem(DType::fp16, 5, 8, 8, 300, 300, 64), 17);
}

TEST_F(GpuFmhaBatchInvariant, ChunksOfAPrefillGiveTheSameBits) {
  constexpr std::int64_t kChunk = 384, kTokens = 4 * kChunk;  // a multiple of tiles of 128 and 192
  for (const std::int64_t hdim : {64, 128}) {
    FmhaProblem p = fmha_problem(DType::bf16, 1, 8, 2, kTokens, kTokens, hdim);
    p.mask = FmhaMask::bottom_right;
    Whole w = compute(p);
    const std::int64_t token = p.heads * p.hdim * 2;
    for (std::int64_t first = 0; first < kTokens; first += kChunk) {
      FmhaOperands o = std::get<FmhaOperands>(w.placed.operands);
      o.q = behind(o.q, first * token), o.out = behind(o.out, first * token);
      p.seqlen_q = kChunk, p.seqlen_k = first + kChunk;
      expect_same(p, w, o, first * token, kChunk * token);
    }
  }
}

}  // namespace
}  // namespace tessera
