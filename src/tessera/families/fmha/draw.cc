// Lists of problems to learn from and of those that learning never sees.
//
// A list follows from its name, the kind of target (CPU or GPU), its peak and the types, and from
// nothing else. On CPUs a problem has at most 2^31 operations and 2^28 bytes. On GPUs it has at
// most 4.4 ms at the target's peak, a 160th of that where only kernels without tensor cores may
// serve it, and at most 2^30 bytes (2^31 where a list says so).
//
// Kernels of one model are as many as the algorithms times the signatures of its lists. So the
// lists `forward`, `decode` and `backward` have attention alone, and few signatures: with or
// without a mask, and one way besides `equal` to say lengths. What else a problem may have is in
// `wide`.
#include <algorithm>
#include <array>

#include "tessera/families/draw.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/rule_counts.h"
#include "tessera/families/tile/defaults.h"

namespace tessera::fmha {
namespace {

constexpr double kGpuBytes = 0x1p30;
constexpr double kWithoutTensorCores = 1.0 / 160;
constexpr std::int64_t kLongest = 16384;  // of prompts and of training; caches have 131072

// ---- heads ----

struct Heads {
  std::int64_t heads, heads_kv, hdim, hdim_v;
};
// The heads of published networks, as their configurations say.
constexpr auto kNetHeads = std::to_array<Heads>({
    {12, 12, 64, 64},      // BERT base, GPT-2, ViT-B
    {16, 16, 64, 64},      // BERT large, ViT-L
    {20, 20, 64, 64},      // Whisper large
    {25, 25, 64, 64},      // GPT-2 XL
    {16, 16, 80, 80},      // ViT-H
    {32, 32, 96, 96},      // Phi-3 mini
    {32, 32, 128, 128},    // Llama 2 7B
    {40, 40, 128, 128},    // Llama 2 13B
    {32, 8, 128, 128},     // Llama 3 8B, Mistral 7B
    {64, 8, 128, 128},     // Llama 3 70B
    {28, 4, 128, 128},     // Qwen2.5 7B
    {71, 1, 64, 64},       // Falcon 7B
    {16, 16, 256, 256},    // Gemma 7B
    {128, 128, 192, 128},  // DeepSeek-V3
});

void set_sizes(const Heads& from, FmhaProblem& p) {
  p.heads = from.heads, p.hdim = from.hdim;
  if (from.heads_kv != from.heads) p.heads_kv = from.heads_kv;
  if (from.hdim_v != from.hdim) p.hdim_v = from.hdim_v;
}

// Draws the heads of any network, or of its share on one of several GPUs.
void set_any_heads(Draw& draw, FmhaProblem& p) {
  static constexpr std::int64_t kHeads[] = {1, 2, 4, 8, 12, 16, 16, 24, 32, 32, 40, 64, 128};
  static constexpr std::int64_t kGroups[] = {1, 1, 1, 2, 4, 4, 8, 8, 16};
  static constexpr std::int64_t kHdims[] = {32, 64, 64, 64, 80, 96, 128, 128, 128, 128, 192, 256};
  p.heads = draw.one_of(kHeads);
  const std::int64_t group = draw.one_of(kGroups);
  if (p.heads % group == 0 && group > 1) p.heads_kv = p.heads / group;
  p.hdim = draw.one_of(kHdims);
  const std::int64_t kind = draw.below(24);
  if (kind == 0 || p.hdim == 192) p.hdim = 192, p.hdim_v = 128;
  if (kind == 1) p.hdim = draw.between(40, 256), p.hdim_v = kPacked;
  if (kind == 2) p.hdim = 8 * draw.between(4, 32), p.hdim_v = kPacked;
}

void set_heads(Draw& draw, FmhaProblem& p) {
  const bool is_of_net = draw.below(2) == 0;
  is_of_net ? set_sizes(draw.one_of(kNetHeads), p) : set_any_heads(draw, p);
}

// ---- lengths ----

// Two thirds are multiples of 64.
std::int64_t any_length(Draw& draw, int low, int high) {
  const std::int64_t any = draw.log_uniform(low, high);
  return any > 64 && draw.below(3) > 0 ? any / 64 * 64 : any;
}

// A few short ones, powers of 2, and others, up to 2^most.
std::int64_t text_length(Draw& draw, int most) {
  const std::int64_t kind = draw.below(8);
  if (kind == 0) return draw.log_uniform(0, 6);
  if (kind < 4) return std::int64_t{1} << draw.between(7, most);
  return any_length(draw, 5, most);
}

std::int64_t sequences(Draw& draw, int most) {
  if (draw.below(4) == 0) return draw.between(1, std::int64_t{1} << most);
  return std::int64_t{1} << draw.between(0, most);
}

// Draws lengths of images, captions and sounds.
void set_encoder(Draw& draw, FmhaProblem& p) {
  static constexpr std::int64_t kLengths[] = {77,  128, 197, 256,  257,  384,
                                              512, 577, 729, 1024, 1500, 4096};
  p.seqlen_q = p.seqlen_k = draw.one_of(kLengths);
  p.batch = sequences(draw, 7);
}

void set_mask(Draw& draw, FmhaProblem& p) {
  const std::int64_t kind = draw.below(8);
  if (kind < 3) return;
  p.mask = kind == 3 ? FmhaMask::top_left : FmhaMask::bottom_right;
  if (kind < 7) return;
  p.window_left = draw.log_uniform(5, 12);
  if (draw.below(4) == 0) p.window_right = draw.log_uniform(5, 12);
}

// Sequences of some lengths, which fill from an eighth of the most to all.
void pack(Draw& draw, FmhaProblem& p) {
  p.lengths = FmhaLengths::packed;
  const std::int64_t eighths = draw.between(1, 8);
  p.tokens_q = std::max(p.seqlen_q, p.batch * p.seqlen_q * eighths / 8);
  p.tokens_k = std::max(p.seqlen_k, p.batch * p.seqlen_k * eighths / 8);
}

// A text of its own, of a server or of training.
void set_text(Draw& draw, FmhaProblem& p) {
  p.seqlen_q = p.seqlen_k = text_length(draw, 14);
  p.batch = sequences(draw, 6);
  set_mask(draw, p);
  if (draw.below(4) == 0) pack(draw, p);
}

// ---- kinds of problems ----

void draw_forward(Draw& draw, FmhaProblem& p) {
  set_heads(draw, p);
  const std::int64_t kind = draw.below(8);
  if (kind < 4) return set_text(draw, p);
  if (kind == 4) return set_encoder(draw, p);
  p.batch = sequences(draw, 5);
  p.seqlen_q = kind == 5 ? draw.between(2, 64) : text_length(draw, 13);
  if (kind == 7) {  // of another text
    p.seqlen_k = text_length(draw, 12);
    return;
  }
  p.seqlen_k = std::min(kLongest, p.seqlen_q + text_length(draw, 14));  // a later part of a text
  p.mask = FmhaMask::bottom_right;
}

// One query, or as many as somebody guessed ahead.
void draw_decode(Draw& draw, FmhaProblem& p) {
  constexpr Heads kLatent = {128, 1, 576, 512};  // DeepSeek-V3
  draw.below(16) == 0 ? set_sizes(kLatent, p) : set_heads(draw, p);
  p.seqlen_q = draw.below(4) == 0 ? draw.between(2, 16) : 1;
  p.seqlen_k = std::max(p.seqlen_q, text_length(draw, 17));
  p.batch = sequences(draw, 7);
  if (p.seqlen_q > 1 || draw.below(8) == 0) p.mask = FmhaMask::bottom_right;
  if (p.mask != FmhaMask::none && draw.below(8) == 0) p.window_left = draw.log_uniform(7, 13);
  if (draw.below(3) == 0) p.lengths = FmhaLengths::padded;
}

void draw_backward(Draw& draw, FmhaProblem& p) {
  p.kind = FmhaKind::backward;
  set_heads(draw, p);
  const std::int64_t kind = draw.below(8);
  if (kind < 6) return set_text(draw, p);
  if (kind == 6) return set_encoder(draw, p);
  p.batch = sequences(draw, 5);
  p.seqlen_q = text_length(draw, 13);
  p.seqlen_k = text_length(draw, 12);
}

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

// Only numbers of 8 bits have factors.
void set_scales(Draw& draw, FmhaProblem& p) {
  if (!is_eight_bits(p.in) || p.kind != FmhaKind::forward) return;
  p.qscale = static_cast<FmhaQscale>(draw.below(4));
  if (draw.below(3) == 0) p.out = p.in;
}

// All that attention may have besides.
void draw_wide(Draw& draw, FmhaProblem& p) {
  draw.below(3) == 0 ? draw_decode(draw, p) : draw_forward(draw, p);
  if (p.window_left >= 0 && draw.below(3) == 0) p.sink = draw.between(1, 64);
  if (p.lengths == FmhaLengths::equal && draw.below(8) == 0) p.lengths = FmhaLengths::padded;
  const std::int64_t kind = draw.below(16);
  if (kind < 2) p.bias = FmhaBias::alibi;
  if (kind == 2 || kind == 3) p.bias = FmhaBias::elementwise;
  if (kind == 3) p.bias_strides[0] = 0;
  if (draw.below(12) == 0) p.soft_cap = 30;
  p.lse = draw.below(4) == 0;
}

// ---- lists ----

struct Counts {
  std::size_t learned, unseen;
};
constexpr Counts kUsualCounts = {300, 100}, kOfModel = {600, 300};

struct Set {
  std::string_view name;
  void (*draw)(Draw&, FmhaProblem&);
  Counts on_gpu = kUsualCounts;
  double gpu_bytes = kGpuBytes;
};
constexpr std::array<Set, 5> kSets = {{{"wide", draw_wide},
                                       {"forward", draw_forward, kOfModel},
                                       {"decode", draw_decode, kOfModel},
                                       {"append", draw_append, kUsualCounts, 0x1p31},
                                       {"backward", draw_backward, kOfModel}}};
constexpr std::array<std::string_view, kSets.size()> kSetNames = {
    kSets[0].name, kSets[1].name, kSets[2].name, kSets[3].name, kSets[4].name};

// Whether kernels for such heads may have tensor cores.
bool suits_tensor_cores(const FmhaProblem& given) {
  const FmhaProblem p = with_strides(given);
  const std::int64_t longest = goes_back(p) ? 128 : 256;
  return p.hdim % 8 == 0 && p.hdim_v % 8 == 0 && std::max(p.hdim, p.hdim_v) <= longest;
}

bool fits(const FmhaProblem& p, const tile::DrawBounds& bounds, bool on_gpu) {
  const double share = on_gpu && !appends(p) && !suits_tensor_cores(p) ? kWithoutTensorCores : 1;
  return flops(p) <= bounds.flops * share && bytes(p) <= bounds.bytes;
}

}  // namespace

std::span<const std::string_view> problem_sets() { return kSetNames; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  const auto found = std::find_if(kSets.begin(), kSets.end(),
                                  [set](const Set& known) { return known.name == set; });
  if (found == kSets.end()) refuse_problem_set(set, kSetNames);
  const FmhaProblem types = fmha_of(family().retyped(FmhaProblem{}, words));
  const tile::DrawBounds bounds = tile::draw_bounds(
      target, find_instruction(target, types.in, types.in, DType::fp32), found->gpu_bytes);
  const bool on_gpu = is_gpu(target);
  const auto stream = static_cast<std::uint64_t>(found - kSets.begin()) + 1;
  const Counts& counts = on_gpu ? found->on_gpu : kUsualCounts;
  return tile::draw_problems(side == ProblemSide::unseen ? counts.unseen : counts.learned, side,
                             [&](std::uint64_t i) -> std::optional<Problem> {
                               Draw numbers(stream, i);
                               FmhaProblem p = types;
                               found->draw(numbers, p);
                               set_scales(numbers, p);
                               if (!fits(p, bounds, on_gpu)) return std::nullopt;
                               return p;
                             });
}

}  // namespace tessera::fmha
