// Features that do not depend on the candidate, and the facts that the other features start from.
#include <algorithm>
#include <array>

#include "tessera/families/fmha/append.h"
#include "tessera/families/fmha/features_internal.h"

namespace tessera::fmha {
namespace {

using enum FeatureGroup;
using P = const ProblemFacts&;

constexpr std::int64_t kFewQueries = 16;
constexpr double kFewRows = 64;

double query_count(P f) { return number(f.p.seqlen_q); }
double key_count(P f) { return number(f.p.seqlen_k); }
bool has_mask(P f) { return f.p.mask != FmhaMask::none; }
bool has_bias(P f) { return f.p.bias == FmhaBias::elementwise; }
bool has_rotary(P f) { return f.p.rotary != FmhaRotary::none; }
// A window without an end sees all keys.
double window_of(P f, std::int64_t window) {
  return has_mask(f) && window >= 0 ? number(std::min(window, f.p.seqlen_k)) : key_count(f);
}

// The words of the formulas. group: heads / heads_kv. pairs: batch heads. pairs_kv: batch heads_kv.
// rows_kv: group seqlen_q, the rows that meet the keys of a head. tokens: of all sequences. seen:
// scores that no mask hides, with the longest lengths. row_keys: seen / (pairs seqlen_q). A unit is
// a core or an SM.
constexpr auto kProblem = std::to_array<ProblemFeature>({
    // ---- sizes ----
    {{"batch", "sequences", "batch", problem}, [](P f) { return number(f.p.batch); }},
    {{"heads", "heads", "heads", problem}, [](P f) { return number(f.p.heads); }},
    {{"heads_kv", "heads", "heads_kv", problem}, [](P f) { return number(f.p.heads_kv); }},
    {{"group", "heads", "group", problem}, [](P f) { return f.group; }},
    {{"seqlen_q", "tokens", "seqlen_q", problem}, query_count},
    {{"seqlen_k", "tokens", "seqlen_k", problem}, key_count},
    {{"hdim", "elements", "hdim", problem}, [](P f) { return number(f.p.hdim); }},
    {{"hdim_v", "elements", "hdim_v", problem}, [](P f) { return number(f.p.hdim_v); }},
    {{"log2_batch", "log2", "log2(max(batch, 1))", problem},
     [](P f) { return log2_from_1(number(f.p.batch)); }},
    {{"log2_heads", "log2", "log2(heads)", problem},
     [](P f) { return log2_from_1(number(f.p.heads)); }},
    {{"log2_heads_kv", "log2", "log2(heads_kv)", problem},
     [](P f) { return log2_from_1(number(f.p.heads_kv)); }},
    {{"log2_group", "log2", "log2(group)", problem}, [](P f) { return log2_from_1(f.group); }},
    {{"log2_seqlen_q", "log2", "log2(max(seqlen_q, 1))", problem},
     [](P f) { return log2_from_1(query_count(f)); }},
    {{"log2_seqlen_k", "log2", "log2(max(seqlen_k, 1))", problem},
     [](P f) { return log2_from_1(key_count(f)); }},
    {{"log2_hdim", "log2", "log2(hdim)", problem},
     [](P f) { return log2_from_1(number(f.p.hdim)); }},
    {{"log2_hdim_v", "log2", "log2(hdim_v)", problem},
     [](P f) { return log2_from_1(number(f.p.hdim_v)); }},
    {{"log2_pairs", "log2", "log2(max(pairs, 1))", problem},
     [](P f) { return log2_from_1(f.pairs); }},
    {{"log2_pairs_kv", "log2", "log2(max(pairs_kv, 1))", problem},
     [](P f) { return log2_from_1(f.pairs_kv); }},
    {{"log2_rows_kv", "log2", "log2(max(rows_kv, 1))", problem},
     [](P f) { return log2_from_1(f.rows_kv); }},
    {{"log2_keys_over_queries", "log2", "log2_seqlen_k - log2_seqlen_q", problem},
     [](P f) { return log2_from_1(key_count(f)) - log2_from_1(query_count(f)); }},
    {{"both_hdims", "elements", "hdim + hdim_v", problem},
     [](P f) { return number(f.p.hdim) + number(f.p.hdim_v); }},
    {{"v_over_k", "1", "hdim_v / hdim", problem},
     [](P f) { return quotient(number(f.p.hdim_v), number(f.p.hdim)); }},
    {{"hdim_align", "log2", "log2 of the largest power of 2 up to 64 that divides hdim", problem},
     [](P f) { return alignment_of(f.p.hdim); }},
    {{"hdim_v_align", "log2", "the same of hdim_v", problem},
     [](P f) { return alignment_of(f.p.hdim_v); }},
    {{"hdim_mod64", "elements", "hdim mod 64", problem}, [](P f) { return number(f.p.hdim % 64); }},
    {{"hdim_v_mod64", "elements", "hdim_v mod 64", problem},
     [](P f) { return number(f.p.hdim_v % 64); }},
    {{"queries_mod64", "tokens", "seqlen_q mod 64", problem},
     [](P f) { return number(f.p.seqlen_q % 64); }},
    {{"queries_mod128", "tokens", "seqlen_q mod 128", problem},
     [](P f) { return number(f.p.seqlen_q % 128); }},
    {{"queries_mod192", "tokens", "seqlen_q mod 192", problem},
     [](P f) { return number(f.p.seqlen_q % 192); }},
    {{"keys_mod64", "tokens", "seqlen_k mod 64", problem},
     [](P f) { return number(f.p.seqlen_k % 64); }},
    {{"keys_mod128", "tokens", "seqlen_k mod 128", problem},
     [](P f) { return number(f.p.seqlen_k % 128); }},
    // ---- kinds ----
    {{"kind", "code", "forward 0, append 1, extend 2, backward 3", problem},
     [](P f) { return double(f.p.kind); }},
    {{"is_one_query", "1", "1: seqlen_q = 1", problem},
     [](P f) { return flag(f.p.seqlen_q == 1); }},
    {{"is_few_queries", "1", "1: seqlen_q <= 16", problem},
     [](P f) { return flag(f.p.seqlen_q <= kFewQueries); }},
    {{"is_few_rows", "1", "1: rows_kv <= 64", problem},
     [](P f) { return flag(f.rows_kv <= kFewRows); }},
    {{"is_square", "1", "1: seqlen_q = seqlen_k", problem},
     [](P f) { return flag(f.p.seqlen_q == f.p.seqlen_k); }},
    {{"is_grouped", "1", "1: group > 1", problem}, [](P f) { return flag(f.group > 1); }},
    {{"is_one_kv_head", "1", "1: heads_kv = 1", problem},
     [](P f) { return flag(f.p.heads_kv == 1); }},
    // ---- lengths ----
    {{"is_packed", "1", "1: lengths packed", problem},
     [](P f) { return flag(f.p.lengths == FmhaLengths::packed); }},
    {{"is_padded", "1", "1: lengths padded", problem},
     [](P f) { return flag(f.p.lengths == FmhaLengths::padded); }},
    {{"query_fill", "1", "tokens of q / (batch seqlen_q)", problem},
     [](P f) { return quotient(f.tokens_q, number(f.p.batch) * query_count(f)); }},
    {{"key_fill", "1", "tokens of k / (batch seqlen_k)", problem},
     [](P f) { return quotient(f.tokens_k, number(f.p.batch) * key_count(f)); }},
    // ---- masks ----
    {{"is_masked", "1", "1: any mask", problem}, [](P f) { return flag(has_mask(f)); }},
    {{"is_top_left", "1", "1: mask top_left", problem},
     [](P f) { return flag(f.p.mask == FmhaMask::top_left); }},
    {{"has_window", "1", "1: window_left >= 0", problem},
     [](P f) { return flag(has_mask(f) && f.p.window_left >= 0); }},
    {{"log2_window_left", "log2", "log2(1 + min(window_left, seqlen_k)); without end: seqlen_k",
      problem},
     [](P f) { return log2_of(1 + window_of(f, f.p.window_left)); }},
    {{"log2_window_right", "log2", "the same of window_right", problem},
     [](P f) { return log2_of(1 + window_of(f, f.p.window_right)); }},
    {{"log2_sink", "log2", "log2(1 + sink)", problem},
     [](P f) { return log2_of(1 + number(f.p.sink)); }},
    {{"visible", "1", "seen / (pairs seqlen_q seqlen_k)", problem},
     [](P f) { return quotient(f.seen, f.pairs * query_count(f) * key_count(f)); }},
    {{"log2_row_keys", "log2", "log2(max(row_keys, 1))", problem},
     [](P f) { return log2_from_1(f.row_keys); }},
    // ---- what else is computed ----
    {{"bias", "code", "none 0, elementwise 1, alibi 2", problem},
     [](P f) { return double(f.p.bias); }},
    {{"bias_type", "code", "as in_type; 0 without an elementwise bias", problem},
     [](P f) { return has_bias(f) ? double(f.p.dtype_bias) : 0; }},
    {{"has_dbias", "1", "1: dbias", problem}, [](P f) { return flag(f.p.dbias); }},
    {{"has_soft_cap", "1", "1: soft_cap != 0", problem},
     [](P f) { return flag(f.p.soft_cap != 0); }},
    {{"has_lse", "1", "1: lse", problem}, [](P f) { return flag(f.p.lse); }},
    {{"has_dropout", "1", "1: p_drop > 0", problem}, [](P f) { return flag(f.p.p_drop > 0); }},
    {{"stores_random", "1", "1: random", problem}, [](P f) { return flag(f.p.random); }},
    {{"skips", "1", "1: skip_q > 0", problem}, [](P f) { return flag(f.p.skip_q > 0); }},
    {{"asked_splits", "1", "num_splits", problem}, [](P f) { return number(f.p.num_splits); }},
    {{"pages", "code", "none 0, table 1, list 2", problem}, [](P f) { return double(f.p.pages); }},
    {{"is_vectorized", "1", "1: cache_layout vectorized", problem},
     [](P f) { return flag(f.p.cache_layout == FmhaCacheLayout::vectorized); }},
    {{"checks_pages", "1", "1: check_pages", problem}, [](P f) { return flag(f.p.check_pages); }},
    {{"log2_page_size", "log2", "log2(max(page_size, 1))", problem},
     [](P f) { return log2_from_1(number(f.p.page_size)); }},
    {{"qscale", "code", "none 0, per_tensor 1, per_block 2, kv_block 3", problem},
     [](P f) { return double(f.p.qscale); }},
    {{"rotary", "code", "none 0, interleaved 1, half 2", problem},
     [](P f) { return double(f.p.rotary); }},
    {{"rotary_share", "1", "rotary_dim / hdim; 0 without an embedding", problem},
     [](P f) { return has_rotary(f) ? quotient(number(f.p.rotary_dim), number(f.p.hdim)) : 0; }},
    {{"rotates_q", "1", "1: rotate_q", problem}, [](P f) { return flag(f.p.rotate_q); }},
    {{"in_type", "code", "fp32 0, tf32 1, fp16 2, bf16 3, fp8 4, bf8 5, int8 6, int32 7", problem},
     [](P f) { return double(f.p.in); }},
    {{"out_type", "code", "as in_type", problem}, [](P f) { return double(f.p.out); }},
    // ---- work ----
    {{"log2_flops", "log2", "log2(1 + flops)", problem},
     [](P f) { return log2_of(1 + f.work.flops); }},
    {{"log2_bytes", "log2", "log2(1 + bytes), bytes: every operand once", problem},
     [](P f) { return log2_of(1 + f.work.bytes); }},
    {{"log2_seen", "log2", "log2(1 + seen)", problem}, [](P f) { return log2_of(1 + f.seen); }},
    {{"log2_q_bytes", "log2", "log2(1 + bytes of q)", problem},
     [](P f) { return log2_of(1 + f.q_bytes); }},
    {{"log2_kv_bytes", "log2", "log2(1 + bytes of k and v)", problem},
     [](P f) { return log2_of(1 + f.kv_bytes); }},
    {{"kv_share", "1", "bytes of k and v / bytes", problem},
     [](P f) { return quotient(f.kv_bytes, f.work.bytes); }},
    {{"head_over_l2", "1", "bytes of k and v / max(pairs_kv, 1) / bytes of L2", problem},
     [](P f) { return quotient(f.kv_bytes / std::max(f.pairs_kv, 1.0), f.machine.l2); }},
    {{"log2_pairs_over_units", "log2", "log2_pairs - log2(units)", problem},
     [](P f) { return log2_from_1(f.pairs) - log2_of(f.machine.units); }},
    {{"log2_pairs_kv_over_units", "log2", "log2_pairs_kv - log2(units)", problem},
     [](P f) { return log2_from_1(f.pairs_kv) - log2_of(f.machine.units); }},
    {{"log2_rows_over_units", "log2", "log2(max(pairs seqlen_q, 1)) - log2(units)", problem},
     [](P f) { return log2_from_1(f.pairs * query_count(f)) - log2_of(f.machine.units); }},
    {{"fewer_pairs_than_units", "1", "1: pairs < units", problem},
     [](P f) { return flag(f.pairs < f.machine.units); }},
});

// Appending keeps the lengths of its keys, whatever lengths the new tokens have.
void put_tokens(ProblemFacts& f) {
  const FmhaProblem& p = f.p;
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const bool has_sums_of_keys = is_packed && p.pages == FmhaPages::none && !appends(p);
  f.tokens_q = is_packed ? number(p.tokens_q) : number(p.batch) * number(p.seqlen_q);
  f.tokens_k = has_sums_of_keys ? number(p.tokens_k) : number(p.batch) * number(p.seqlen_k);
  f.seen = appends(p) ? 0 : scores(p);
  f.row_keys = quotient(f.seen, f.pairs * number(p.seqlen_q));
  f.q_bytes = f.tokens_q * number(p.heads) * number(p.hdim) * size_of(p.in);
  f.kv_bytes =
      f.tokens_k * number(p.heads_kv) * (number(p.hdim) + number(p.hdim_v)) * size_of(kv_type(p));
}

}  // namespace

std::span<const ProblemFeature> problem_features() { return kProblem; }

ProblemFacts problem_facts(const FmhaProblem& problem, const Target& target, int threads) {
  ProblemFacts f;
  f.p = with_strides(problem);
  const Instruction* best = find_instruction(target, f.p.in, f.p.in, DType::fp32);
  f.machine = tile::machine_facts(target, threads, best);
  f.work = tile::work_facts(flops(f.p), bytes(f.p), f.machine);
  f.group = number(f.p.heads) / std::max(1.0, number(f.p.heads_kv));
  f.pairs = number(f.p.batch) * number(f.p.heads);
  f.pairs_kv = number(f.p.batch) * number(f.p.heads_kv);
  f.rows_kv = f.group * number(f.p.seqlen_q);
  put_tokens(f);
  return f;
}

}  // namespace tessera::fmha
