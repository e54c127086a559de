// Problems that append: a list to learn from, and problems that exercise a kernel.
#include <algorithm>

#include "tessera/families/draw.h"
#include "tessera/families/fmha/append.h"

namespace tessera::fmha {
namespace {

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
// that each token has a place of its own, and some more. Runs of 16 bytes need whole ones.
void set_append_pages(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  static constexpr std::int64_t kSizes[] = {16, 1, 5, 64, 1024};
  p.pages = s.pages, p.cache_layout = s.cache_layout;
  if (p.pages == FmhaPages::none) return;
  p.page_size = kSizes[turn % std::size(kSizes)];
  if (p.cache_layout == FmhaCacheLayout::vectorized) {
    const std::int64_t run = 16 / size_of(p.in);
    for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
  }
  p.check_pages = turn % 3 == 0;
  p.num_pages = p.batch * pages_needed(p) + static_cast<std::int64_t>(turn % 2) * 3;
  if (turn % 2 == 0 || p.pages == FmhaPages::list) return;
  p.max_pages = pages_needed(p), p.table_stride = p.max_pages + 2;
}

FmhaProblem append_problem_of(const FmhaSignature& s, const AppendSample& sample) {
  FmhaProblem p{.kind = s.kind, .in = s.in, .out = s.out, .dtype_bias = s.dtype_bias};
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

}  // namespace

void draw_append(Draw& draw, FmhaProblem& p) {
  static constexpr std::int64_t kHeads[] = {8, 16, 32, 32, 40, 64};
  static constexpr std::int64_t kGroups[] = {1, 1, 4, 8, 8};
  static constexpr std::int64_t kHdims[] = {64, 64, 80, 96, 128, 128, 128, 192, 256};
  p.kind = FmhaKind::append;
  p.heads = draw.one_of(kHeads);
  p.heads_kv = p.heads / draw.one_of(kGroups);
  p.hdim = draw.one_of(kHdims);
  p.batch = std::int64_t{1} << draw.between(0, 7);
  p.seqlen_q = draw.below(2) == 0 ? draw.between(1, 4) : draw.log_uniform(4, 13);
  p.seqlen_k = p.seqlen_q + draw.log_uniform(6, 14);
  const std::int64_t kind = draw.below(4);
  if (kind > 0) p.rotary = kind == 1 ? FmhaRotary::interleaved : FmhaRotary::half;
  if (kind > 0 && draw.below(4) == 0) p.rotary_dim = p.hdim / 4 * 2;
  p.rotate_q = kind > 0 && draw.below(2) == 0;
  if (draw.below(4) == 0) p.lengths = FmhaLengths::packed;
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

}  // namespace tessera::fmha
