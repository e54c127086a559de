// Problems that exercise a kernel.
#include <algorithm>
#include <array>

#include "tessera/families/fmha/ways.h"

namespace tessera::fmha {
namespace {

// Sizes that a kernel meets whole, with edges, alone and not at all. Windows and sinks count where
// the kernel masks.
struct Sample {
  std::int64_t batch, heads, heads_kv, seqlen_q, seqlen_k;
  FmhaMask mask = FmhaMask::bottom_right;
  std::int64_t window_left = -1, window_right = 0, sink = 0;
};

std::vector<Sample> sizes_for(const Shape3& tile) {
  using enum FmhaMask;
  const std::int64_t m = std::clamp(tile.m, 1, 512), n = std::clamp(tile.n, 1, 512);
  return {
      {1, 2, 2, 2 * m, 2 * n, top_left},  // whole tiles
      {2, 3, 1, m + 3, 2 * n + 5},        // edges, and one head of keys for all
      {2, 4, 2, 7, 3 * n - 1, top_left},  // heads in groups
      {3, 8, 2, 1, 257},                  // one query
      {1, 2, 2, 0, 9},                    // no query
      {2, 1, 1, 5, 0},                    // no key
      {0, 2, 1, 4, 4},                    // no sequence
      {1, 2, 1, 2 * m + n + 9, n + 1},    // more queries than keys: the first see no key
      {1, 2, 2, m + 40, 2 * n + 40, top_left, 20, 3, 5},
      {2, 2, 1, 33, n + 77, bottom_right, 9, 0, 4},
      {1, 1, 1, 65, 2 * n + 1, bottom_right, -1, 17, 0},
      {1, 2, 1, 19, 70, top_left, 0, -1, 2},
      {5, 2, 2, 24, 31},  // many short sequences
  };
}

// Broadcast over the batch, over heads, over queries, and not at all, in turn.
void set_bias_strides(std::size_t turn, FmhaProblem& p) {
  if (p.bias == FmhaBias::elementwise && turn % 4 < 3) p.bias_strides[turn % 4] = 0;
  if (p.bias == FmhaBias::alibi && turn % 2 == 1) p.slope_stride = p.heads;
}

// The longest heads with one query, which is soon done. Kernels of latent attention have long ones
// only, whose values may be the first elements of keys; on AMD GPUs they always are.
void set_head_sizes(const KernelSpec& spec, std::size_t turn, FmhaProblem& p) {
  const int longest = spec.algorithm.tile.k;
  const bool is_mfma = is_latent_mfma(spec.algorithm);
  const bool has_long = is_mfma || is_latent(spec.algorithm);
  const std::int64_t usual = has_long ? most_hdim_v(longest) : std::clamp(longest, 1, 128);
  p.v_in_k = has_long && p.kind == FmhaKind::forward && (is_mfma || turn % 2 == 1);
  const std::int64_t shorter = has_long ? usual / 4 * 3 : usual / 2;
  p.hdim = turn % 3 == 1 ? std::max<std::int64_t>(1, shorter - 3) : usual;
  if (turn % 4 == 2) p.hdim_v = std::max<std::int64_t>(1, usual / 2);
  if (p.seqlen_q == 1) p.hdim = longest, p.hdim_v = most_hdim_v(longest);
}

// Runs of 16 bytes need whole ones.
void round_to_runs(FmhaProblem& p) {
  if (p.cache_layout != FmhaCacheLayout::vectorized) return;
  const std::int64_t run = 16 / size_of(kv_type(p));
  for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
}

// Pages of one token, of a few and of more than there are, in a cache that has others, too.
void set_pages(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  static constexpr std::array<std::int64_t, 5> kSizes = {16, 1, 64, 5, 1024};
  p.pages = s.pages, p.cache_layout = s.cache_layout;
  if (p.pages == FmhaPages::none) return;
  p.page_size = kSizes[turn % kSizes.size()];
  round_to_runs(p);
  p.check_pages = turn % 3 == 0;
  if (turn % 2 == 0) return;
  const bool has_one_more = p.pages == FmhaPages::table;
  if (has_one_more) p.max_pages = pages_needed(p) + 1, p.table_stride = p.max_pages + 2;
  const bool is_shared = s.kind == FmhaKind::forward;
  p.num_pages = p.batch * (pages_needed(p) + (has_one_more && !is_shared ? 1 : 0)) + 3;
}

// Room for the new tokens, a place of its own for each, and heads whose elements form pairs.
void set_extended(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  if (s.kind != FmhaKind::extend) return;
  p.seqlen_k = std::max(p.seqlen_k, p.seqlen_q);
  p.rotary = s.rotary, p.rotate_q = s.rotate_q;
  if (s.rotary == FmhaRotary::none) return;
  p.hdim = std::max<std::int64_t>(2, p.hdim / 2 * 2);
  if (turn % 2 == 1) p.rotary_dim = p.hdim / 4 * 2;
}

// Blocks of all lengths, of which pages have no use.
void set_blocks(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  static constexpr std::array<std::int64_t, 4> kBlockRows = {32, 1, 7, 1000};
  p.qscale = s.qscale;
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  if (of_queries && turn % 3 != 0) p.qscale_block_q = kBlockRows[turn % kBlockRows.size()];
  if (!of_queries && (p.qscale != FmhaQscale::kv_block || scales_pages(p))) return;
  if (turn % 4 != 0) p.qscale_block_k = kBlockRows[(turn + 1) % kBlockRows.size()];
}

FmhaProblem problem_of(const KernelSpec& spec, const Sample& sample, std::size_t turn) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  FmhaProblem p{.kind = s.kind, .in = s.in, .out = s.out, .dtype_bias = s.dtype_bias, .kv = s.kv};
  p.lengths = s.lengths, p.bias = s.bias, p.lse = s.lse, p.dbias = s.dbias;
  p.batch = sample.batch, p.heads = sample.heads, p.heads_kv = sample.heads_kv;
  p.seqlen_q = sample.seqlen_q, p.seqlen_k = sample.seqlen_k;
  if (s.masked) {
    p.mask = sample.mask;
    p.window_left = sample.window_left, p.window_right = sample.window_right, p.sink = sample.sink;
  }
  if (s.soft_cap) p.soft_cap = 2;
  if (s.dropout) p.p_drop = turn % 2 == 0 ? 0.25F : 0.9F;
  p.random = s.random;
  if (s.lengths != FmhaLengths::equal && turn % 5 == 4) p.skip_q = 2;
  set_head_sizes(spec, turn, p);
  set_extended(s, turn, p);
  set_pages(s, turn, p);
  set_blocks(s, turn, p);
  set_bias_strides(turn, p);
  return p;
}

// For kernels that move pieces of 16 bytes. 192 goes with 128.
FmhaProblem in_pieces(FmhaProblem p) {
  const std::int64_t unit = is_eight_bits(kv_type(p)) ? 16 : 8;
  const auto whole = [unit](std::int64_t size) { return std::max(unit, size / unit * unit); };
  p.hdim = whole(p.hdim);
  p.hdim_v = p.hdim_v == kPacked ? p.hdim : std::min<std::int64_t>(128, whole(p.hdim_v));
  return p;
}

// For kernels that keep no keys outside of a window, too.
FmhaProblem simplified(FmhaProblem p) {
  p.sink = 0;
  return in_pieces(p);
}

// For kernels whose copies take boxes of tokens of a page, and whose blocks have one factor each.
FmhaProblem in_boxes(FmhaProblem p) {
  p = simplified(p);
  p.qscale_block_q = p.qscale_block_k = kPacked;
  p.page_size = (p.page_size + 7) / 8 * 8;
  return p;
}

// ---- appending ----

// Sizes with edges, alone and not at all; `room` is of the cache.
struct AppendSample {
  std::int64_t batch, heads, heads_kv, tokens, room, hdim, hdim_v;
  std::int64_t rotary_dim = 0, positions = kPacked;
};
constexpr AppendSample kAppendSamples[] = {
    {2, 8, 2, 1, 70, 128, 128},        // one new token
    {3, 4, 4, 19, 40, 64, 64},         // several
    {1, 32, 8, 5, 33, 128, 96},        // many rows of a token
    {1, 2, 1, 130, 131, 80, 128, 64},  // a part of each head
    {2, 3, 3, 7, 9, 37, 5, 22},        // neither sizes nor rows at multiples of 16 bytes
    {2, 2, 1, 12, 5, 64, 64},          // more new tokens than room
    {2, 6, 2, 9, 60, 48, 48, 48, 13},  // than rows of the tables
    {1, 5, 5, 4, 8, 576, 512, 64},     // the longest heads
    {70, 1, 1, 3, 11, 8, 8, 4},        // many short sequences
    {1, 2, 2, 0, 9, 16, 16},           // no token
    {0, 2, 1, 3, 4, 16, 16},           // no sequence
    {2, 2, 2, 3, 0, 16, 16},           // no room
};

// Pages of one token, of a few and of more than there is room, as many as the sequences need, so
// that each token has a place of its own, and some more.
void set_append_pages(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  static constexpr std::int64_t kSizes[] = {16, 1, 5, 64, 1024};
  p.pages = s.pages, p.cache_layout = s.cache_layout;
  if (p.pages == FmhaPages::none) return;
  p.page_size = kSizes[turn % std::size(kSizes)];
  round_to_runs(p);
  p.check_pages = turn % 3 == 0;
  p.num_pages = p.batch * pages_needed(p) + static_cast<std::int64_t>(turn % 2) * 3;
  if (turn % 2 == 0 || p.pages == FmhaPages::list) return;
  p.max_pages = pages_needed(p), p.table_stride = p.max_pages + 2;
}

FmhaProblem append_problem_of(const FmhaSignature& s, const AppendSample& sample) {
  FmhaProblem p{.kind = s.kind, .in = s.in, .out = s.out, .dtype_bias = s.dtype_bias, .kv = s.kv};
  p.qscale = s.qscale;
  p.lengths = s.lengths;
  p.rotary = s.rotary, p.rotate_q = s.rotate_q;
  p.batch = sample.batch, p.heads = sample.heads, p.heads_kv = sample.heads_kv;
  p.seqlen_q = sample.tokens, p.seqlen_k = sample.room;
  p.hdim = sample.hdim, p.hdim_v = sample.hdim_v;
  if (s.rotary == FmhaRotary::none) return p;
  p.rotary_dim = sample.rotary_dim, p.rotary_positions = sample.positions;
  return p;
}

// New rows with gaps between them, most at odd elements; a cache with heads before tokens, and the
// elements of v far apart.
void spread_append(FmhaProblem& p) {
  const std::int64_t both = p.hdim + p.hdim_v + 1;
  p.k_new_strides = p.v_new_strides = {p.seqlen_q * p.heads_kv * both, both, p.heads_kv * both, 1};
  if (p.lengths == FmhaLengths::packed) p.k_new_strides[0] = p.v_new_strides[0] = kPacked;
  if (p.cache_layout == FmhaCacheLayout::vectorized) return;
  const std::int64_t room = p.pages == FmhaPages::none ? p.seqlen_k : p.page_size;
  p.k_strides = {p.heads_kv * room * p.hdim, room * p.hdim, p.hdim, 1};
  p.v_strides = {p.heads_kv * p.hdim_v * room, p.hdim_v * room, 1, room};
}

std::vector<Problem> append_samples(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  std::vector<Problem> problems;
  for (const AppendSample& sample : kAppendSamples) {
    FmhaProblem p = append_problem_of(s, sample);
    set_append_pages(s, problems.size(), p);
    if (problems.size() % 3 == 2) spread_append(p);
    problems.emplace_back(p);
  }
  return problems;
}

}  // namespace

std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  if (appends(spec)) return append_samples(spec);
  std::vector<Problem> problems;
  std::size_t turn = 0;
  for (const Sample& sample : sizes_for(spec.algorithm.tile)) {
    const FmhaProblem p = problem_of(spec, sample, turn++);
    for (const FmhaProblem& one : {p, in_pieces(p), simplified(p), in_boxes(p)}) {
      if (!tile::supports<Types>(spec, one, target)) continue;
      problems.emplace_back(one);
      break;
    }
  }
  return problems;
}

}  // namespace tessera::fmha
