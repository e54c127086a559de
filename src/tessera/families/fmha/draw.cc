// Lists of problems to learn from and of those that learning never sees, and problems that exercise
// a kernel.
//
// A list follows from its name, the kind of target (CPU or GPU), its peak and the types, and from
// nothing else. On CPUs a problem has at most 2^31 operations and 2^28 bytes; on GPUs at most 2^31
// bytes and 4.4 ms at the target's peak.
#include <algorithm>
#include <array>

#include "tessera/families/draw.h"
#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/split_gpu.h"
#include "tessera/families/refusals.h"
#include "tessera/families/tile/usual.h"

namespace tessera::fmha {
namespace {

constexpr double kCpuFlops = 0x1p31;
constexpr double kCpuBytes = 0x1p28;
constexpr double kGpuSeconds = 4.4e-3;
constexpr double kGpuBytes = 0x1p31;

// ---- parts of a problem ----

void set_heads(Draw& draw, FmhaProblem& p) {
  static constexpr std::int64_t kHeads[] = {1, 4, 8, 12, 16, 16, 24, 32, 32, 40, 64, 128};
  static constexpr std::int64_t kGroups[] = {1, 1, 1, 2, 4, 4, 8, 8, 16};
  p.heads = draw.one_of(kHeads);
  const std::int64_t group = draw.one_of(kGroups);
  if (p.heads % group == 0 && group > 1) p.heads_kv = p.heads / group;
}

// {192, 128} and {576, 512} are those of latent attention.
void set_hdims(Draw& draw, FmhaProblem& p) {
  static constexpr std::int64_t kHdims[] = {32, 64, 64, 64, 80, 96, 128, 128, 128, 128, 192, 256};
  p.hdim = draw.one_of(kHdims);
  const std::int64_t kind = draw.below(24);
  if (p.hdim == 192 || kind == 0) p.hdim = 192, p.hdim_v = 128;
  if (kind == 1) p.hdim = 576, p.hdim_v = 512, p.heads_kv = 1;
  if (kind == 2) p.hdim = draw.between(1, 256), p.hdim_v = draw.between(1, 256);
}

// Two thirds are multiples of 64.
std::int64_t length(Draw& draw, int low, int high) {
  const std::int64_t any = draw.log_uniform(low, high);
  return any > 64 && draw.below(3) > 0 ? any / 64 * 64 : any;
}

void set_mask(Draw& draw, FmhaProblem& p) {
  const std::int64_t kind = draw.below(8);
  if (kind < 3) return;
  p.mask = kind == 3 ? FmhaMask::top_left : FmhaMask::bottom_right;
  if (kind < 7) return;
  p.window_left = draw.log_uniform(5, 12);
  if (draw.below(3) == 0) p.sink = draw.between(1, 64);
  if (draw.below(4) == 0) p.window_right = draw.log_uniform(5, 12);
}

void set_lengths(Draw& draw, FmhaProblem& p) {
  const std::int64_t kind = draw.below(8);
  if (kind < 2) p.lengths = kind == 0 ? FmhaLengths::packed : FmhaLengths::padded;
}

void set_extras(Draw& draw, FmhaProblem& p) {
  const std::int64_t kind = draw.below(16);
  if (kind < 2) p.bias = FmhaBias::alibi;
  if (kind == 2 || kind == 3) p.bias = FmhaBias::elementwise;
  if (kind == 3) p.bias_strides[0] = 0;
  if (draw.below(12) == 0) p.soft_cap = 30;
  p.lse = draw.below(4) == 0;
}

// Only for numbers of 8 bits, so that the lists of other types stay what they are.
void set_scales(Draw& draw, FmhaProblem& p) {
  if (!is_eight_bits(p.in) || p.kind != FmhaKind::forward) return;
  p.qscale = static_cast<FmhaQscale>(draw.below(4));
  if (draw.below(3) == 0) p.out = p.in;
}

// ---- kinds of problems ----

void draw_prefill(Draw& draw, FmhaProblem& p) {
  set_heads(draw, p);
  set_hdims(draw, p);
  p.seqlen_q = p.seqlen_k = length(draw, 5, 15);
  const std::int64_t kind = draw.below(6);
  if (kind == 0) p.seqlen_k += length(draw, 5, 14);  // a later part of a text
  if (kind == 1) p.seqlen_k = length(draw, 4, 13);   // of another text
  p.batch = std::int64_t{1} << draw.between(0, 5);
  set_mask(draw, p);
  set_lengths(draw, p);
}

// One query, or those of a guess.
void draw_decode(Draw& draw, FmhaProblem& p) {
  set_heads(draw, p);
  set_hdims(draw, p);
  p.seqlen_q = draw.below(4) == 0 ? draw.between(2, 16) : 1;
  p.seqlen_k = length(draw, 6, 18);
  p.batch = draw.below(4) == 0 ? draw.between(1, 128) : std::int64_t{1} << draw.between(0, 7);
  if (p.seqlen_q > 1 || draw.below(8) == 0) p.mask = FmhaMask::bottom_right;
  if (p.mask != FmhaMask::none && draw.below(8) == 0) p.window_left = draw.log_uniform(7, 13);
  if (draw.below(3) == 0) p.lengths = FmhaLengths::padded;
}

void draw_wide(Draw& draw, FmhaProblem& p) {
  draw.below(3) == 0 ? draw_decode(draw, p) : draw_prefill(draw, p);
  set_extras(draw, p);
}

void draw_gradients(Draw& draw, FmhaProblem& p) {
  draw_prefill(draw, p);
  set_extras(draw, p);
  p.kind = FmhaKind::backward;
  p.lse = false;
  p.dbias = p.bias == FmhaBias::elementwise && draw.below(2) == 0;
}

struct Set {
  std::string_view name;
  void (*draw)(Draw&, FmhaProblem&);
};
constexpr std::array<Set, 5> kSets = {{{"wide", draw_wide},
                                       {"prefill", draw_prefill},
                                       {"decode", draw_decode},
                                       {"append", draw_append},
                                       {"backward", draw_gradients}}};
constexpr std::array<std::string_view, kSets.size()> kSetNames = {
    kSets[0].name, kSets[1].name, kSets[2].name, kSets[3].name, kSets[4].name};

struct Bounds {
  double flops, bytes;
};

Bounds bounds_of(const FmhaProblem& types, const Target& target) {
  if (!is_gpu(target)) return {kCpuFlops, kCpuBytes};
  const Instruction* best = find_instruction(target, types.in, types.in, DType::fp32);
  if (best == nullptr) best = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  const double peak = best == nullptr ? 1e12 : peak_of(*best, target, target.units);
  return {kGpuSeconds * peak, kGpuBytes};
}

// ---- samples ----

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
// only, whose values may be the first elements of keys.
void set_head_sizes(const KernelSpec& spec, std::size_t turn, FmhaProblem& p) {
  const int longest = spec.algorithm.tile.k;
  const bool has_long = spec.algorithm.pipeline == Pipeline::splitkv && is_latent(spec.algorithm);
  const std::int64_t usual = has_long ? most_hdim_v(longest) : std::clamp(longest, 1, 128);
  p.v_in_k = has_long && p.kind == FmhaKind::forward && turn % 2 == 1;
  const std::int64_t shorter = has_long ? usual / 4 * 3 : usual / 2;
  p.hdim = turn % 3 == 1 ? std::max<std::int64_t>(1, shorter - 3) : usual;
  if (turn % 4 == 2) p.hdim_v = std::max<std::int64_t>(1, usual / 2);
  if (p.seqlen_q == 1) p.hdim = longest, p.hdim_v = most_hdim_v(longest);
}

// Pages of one token, of a few and of more than there are, in a cache that has others, too. Runs of
// 16 bytes need whole ones.
void set_pages(const FmhaSignature& s, std::size_t turn, FmhaProblem& p) {
  static constexpr std::array<std::int64_t, 5> kSizes = {16, 1, 64, 5, 1024};
  p.pages = s.pages, p.cache_layout = s.cache_layout;
  if (p.pages == FmhaPages::none) return;
  p.page_size = kSizes[turn % kSizes.size()];
  if (p.cache_layout == FmhaCacheLayout::vectorized) {
    const std::int64_t run = 16 / size_of(p.in);
    for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
  }
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
  static constexpr std::array<std::int64_t, 4> kRows = {32, 1, 7, 1000};
  p.qscale = s.qscale;
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  if (of_queries && turn % 3 != 0) p.qscale_block_q = kRows[turn % kRows.size()];
  if (!of_queries && (p.qscale != FmhaQscale::kv_block || scales_pages(p))) return;
  if (turn % 4 != 0) p.qscale_block_k = kRows[(turn + 1) % kRows.size()];
}

FmhaProblem problem_of(const KernelSpec& spec, const Sample& sample, std::size_t turn) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  FmhaProblem p{.kind = s.kind, .in = s.in, .out = s.out, .dtype_bias = s.dtype_bias};
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
  const auto whole = [](std::int64_t size) { return std::max<std::int64_t>(8, size / 8 * 8); };
  p.hdim = whole(p.hdim);
  p.hdim_v = p.hdim_v == kPacked ? p.hdim : std::min<std::int64_t>(128, whole(p.hdim_v));
  return p;
}

// For kernels that keep no keys outside of a window, too.
FmhaProblem simplified(FmhaProblem p) {
  p.sink = 0;
  return in_pieces(p);
}

}  // namespace

std::span<const std::string_view> problem_sets() { return kSetNames; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  const auto found = std::find_if(kSets.begin(), kSets.end(),
                                  [set](const Set& known) { return known.name == set; });
  if (found == kSets.end()) refuse_problem_set(set, kSetNames);
  const FmhaProblem types = fmha_of(family().retyped(FmhaProblem{}, words));
  const Bounds bounds = bounds_of(types, target);
  const auto stream = static_cast<std::uint64_t>(found - kSets.begin()) + 1;
  return tile::draw_problems(side == ProblemSide::unseen ? 100 : 300, side,
                             [&](std::uint64_t i) -> std::optional<Problem> {
                               Draw numbers(stream, i);
                               FmhaProblem p = types;
                               found->draw(numbers, p);
                               set_scales(numbers, p);
                               if (flops(p) > bounds.flops || bytes(p) > bounds.bytes) {
                                 return std::nullopt;
                               }
                               return p;
                             });
}

std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  if (appends(spec)) return append_samples(spec);
  std::vector<Problem> problems;
  std::size_t turn = 0;
  for (const Sample& sample : sizes_for(spec.algorithm.tile)) {
    const FmhaProblem p = problem_of(spec, sample, turn++);
    for (const FmhaProblem& one : {p, in_pieces(p), simplified(p)}) {
      if (!supports(spec, one, target)) continue;
      problems.emplace_back(one);
      break;
    }
  }
  return problems;
}

}  // namespace tessera::fmha
