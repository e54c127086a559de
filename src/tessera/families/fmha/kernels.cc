// The list of ways, which kernels there are, and what ways share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/defaults.h"
#include "tessera/spec/words_internal.h"

namespace tessera::fmha {
namespace {

bool makes_kind(const Types::Own& own, FmhaKind kind) {
  return own.kind == (kind == FmhaKind::extend ? FmhaKind::forward : kind);
}

// Why there is no row for the kernel.
std::string no_row(const Case& c) {
  std::vector<std::string> pipelines;
  for (const Way* way : Types::ways()) {
    if (way->backend != c.target.backend || !makes_kind(way->own, c.signature.kind)) continue;
    pipelines.emplace_back(to_string(way->pipeline));
  }
  if (pipelines.empty()) {
    return fmt::format("this build emits no attention with kind={} for {} targets, {} is one",
                       to_string(c.signature.kind), c.target.backend, c.target.name);
  }
  return fmt::format("the pipeline must be {} with kind={} on {}, got {}", join(pipelines, " or "),
                     to_string(c.signature.kind), c.target.name, to_string(c.algorithm.pipeline));
}

// What holds for every kernel. Rows list no pipelines for kernels that append.
constexpr Rule kCommonRules[] = {
    {[](const Case& c) {
       return c.signature.kind == FmhaKind::append
                  ? c.target.spaces.contains(Op::fmha)
                  : tile::has_pipeline(Op::fmha, c.target, c.algorithm.pipeline);
     },
     [](const Case& c) {
       if (c.signature.kind == FmhaKind::append) {
         return fmt::format("{} has no space for fmha", c.target.name);
       }
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    {[](const Case& c) { return tile::find_way<Types>(c) != nullptr; }, no_row},
};

// ---- enumeration ----

// The algorithms of kernels of a kind. Gradients are asked about those of attention, too.
std::vector<Algorithm> algorithms_of(const Target& target, FmhaKind kind) {
  return tile::algorithms_of<Types>(target, [kind](const Way& way) {
    return makes_kind(way.own, kind) ||
           (kind == FmhaKind::backward && makes_kind(way.own, FmhaKind::forward));
  });
}

constexpr auto kLengths = {FmhaLengths::equal, FmhaLengths::packed, FmhaLengths::padded};

// Each of the signatures with each value of a field.
template <class Value>
std::vector<FmhaSignature> with_each(const std::vector<FmhaSignature>& some,
                                     Value FmhaSignature::*field,
                                     std::initializer_list<Value> values) {
  std::vector<FmhaSignature> all;
  for (const FmhaSignature& signature : some) {
    for (const Value value : values) {
      all.push_back(signature);
      all.back().*field = value;
    }
  }
  return all;
}

void add_all(const std::vector<FmhaSignature>& more, std::vector<FmhaSignature>& all) {
  all.insert(all.end(), more.begin(), more.end());
}

// All of one type.
std::vector<FmhaSignature> of_plain_types(FmhaKind kind) {
  std::vector<FmhaSignature> all;
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16}) {
    all.push_back(FmhaSignature{.kind = kind, .in = in, .out = in, .dtype_bias = in});
  }
  return all;
}

// Signatures that servers need: no bias, no soft cap and no dropout.
std::vector<FmhaSignature> for_servers(std::vector<FmhaSignature> some) {
  std::erase_if(some, [](const FmhaSignature& s) {
    return s.bias != FmhaBias::none || s.soft_cap || s.dropout;
  });
  return some;
}

std::vector<FmhaSignature> paged(std::vector<FmhaSignature> some) {
  some = with_each(for_servers(std::move(some)), &FmhaSignature::pages,
                   {FmhaPages::table, FmhaPages::list});
  return with_each(some, &FmhaSignature::cache_layout,
                   {FmhaCacheLayout::linear, FmhaCacheLayout::vectorized});
}

// Signatures that append, with each embedding.
std::vector<FmhaSignature> embedded(std::vector<FmhaSignature> some) {
  using enum FmhaRotary;
  some = with_each(some, &FmhaSignature::rotary, {none, interleaved, half});
  some = with_each(some, &FmhaSignature::rotate_q, {false, true});
  std::erase_if(some, [](const FmhaSignature& s) { return !signature_reason(s).empty(); });
  return some;
}

std::vector<FmhaSignature> append_signatures(std::vector<FmhaSignature> some) {
  return embedded(with_each(some, &FmhaSignature::lengths, kLengths));
}

// What wishes must name before it is listed.
struct Named {
  bool pages = false, extend = false, eight_bits = false, kv = false, gradients = false;
};
Named named_by(std::span<const Wish> wishes) {
  Named named;
  for (const auto& [field, pattern] : wishes) {
    const bool is_kind = field == "kind" || field == "variant";
    const bool is_type = field == "dtype" || field == "in" || field == "out";
    if (field == "pages" || field == "cache_layout") named.pages = true;
    if (is_kind && pattern == "extend") named.extend = true;
    if (field == "dbias" || (is_kind && pattern != "*")) named.gradients = true;
    if (field == "kv" && pattern != "same") named.kv = true;
    if (field == "qscale" || (is_type && (pattern == "fp8" || pattern == "bf8"))) {
      named.eight_bits = true;
    }
  }
  return named;
}

// Kernels of gradients, from the kernels of attention.
std::vector<FmhaSignature> backward_signatures(const std::vector<FmhaSignature>& forward) {
  std::vector<FmhaSignature> all;
  for (FmhaSignature s : forward) {
    if (s.lse || is_eight_bits(s.in) || has_own_kv(s)) continue;
    s.kind = FmhaKind::backward;
    all.push_back(s);
    s.dbias = true;
    if (s.bias == FmhaBias::elementwise) all.push_back(s);
  }
  return all;
}

// Signatures of 8 bits, with each kind of factors and each output.
std::vector<FmhaSignature> eight_bits() {
  std::vector<FmhaSignature> all;
  for (const DType in : {DType::fp8, DType::bf8}) {
    for (const DType out : {DType::fp16, DType::bf16, DType::fp32, in}) {
      all.push_back(FmhaSignature{.in = in, .out = out, .dtype_bias = in});
    }
  }
  using enum FmhaQscale;
  return with_each(all, &FmhaSignature::qscale,
                   {none, per_tensor, per_block, kv_block, per_head, per_token});
}

// Keys of 8 bits beside queries of 16, with each kind of factors that the kind takes.
std::vector<FmhaSignature> of_own_kv(FmhaKind kind) {
  std::vector<FmhaSignature> all = of_plain_types(kind);
  all = with_each(all, &FmhaSignature::kv, {FmhaKv::fp8, FmhaKv::bf8});
  using enum FmhaQscale;
  all = with_each(all, &FmhaSignature::qscale, {none, per_tensor, kv_block, per_head, per_token});
  std::erase_if(all, [](const FmhaSignature& s) { return !signature_reason(s).empty(); });
  return all;
}

// What networks use: all of one type, with or without a mask, and lse and dropout for training.
std::vector<Signature> signatures(const Named& named) {
  std::vector<FmhaSignature> all = of_plain_types(FmhaKind::forward);
  if (named.eight_bits) add_all(eight_bits(), all);
  if (named.kv) add_all(of_own_kv(FmhaKind::forward), all);
  all = with_each(all, &FmhaSignature::lengths, kLengths);
  all = with_each(all, &FmhaSignature::bias,
                  {FmhaBias::none, FmhaBias::elementwise, FmhaBias::alibi});
  all = with_each(all, &FmhaSignature::masked, {false, true});
  all = with_each(all, &FmhaSignature::soft_cap, {false, true});
  all = with_each(all, &FmhaSignature::lse, {false, true});
  all = with_each(all, &FmhaSignature::dropout, {false, true});
  const std::vector<FmhaSignature> plain = all;
  if (named.pages) add_all(paged(plain), all);
  if (named.extend) {
    all = with_each(for_servers(std::move(all)), &FmhaSignature::kind, {FmhaKind::extend});
    all = embedded(std::move(all));
  }
  if (named.gradients) add_all(backward_signatures(plain), all);
  return {all.begin(), all.end()};
}

const FmhaSignature& fmha(const Signature& signature) { return std::get<FmhaSignature>(signature); }

// Words of other libraries' kernel sets: how sequences are told apart, whether there is a mask of
// any kind, whether scores are bent.
std::vector<std::string> mode_words() { return {"batch", "group"}; }
std::vector<std::string> mask_words() { return {"no", "generic"}; }
std::vector<std::string> logits_words() { return {"false", "true"}; }
constexpr std::array kDerived = {
    DerivedField{"dtype", known_words<DType>,
                 [](const Signature& s) { return to_string(fmha(s).in); }},
    DerivedField{"variant", known_words<FmhaKind>,
                 [](const Signature& s) { return to_string(fmha(s).kind); }},
    DerivedField{"mode", mode_words,
                 [](const Signature& s) -> std::string_view {
                   return fmha(s).lengths == FmhaLengths::equal ? "batch" : "group";
                 }},
    DerivedField{
        "mask", mask_words,
        [](const Signature& s) -> std::string_view { return fmha(s).masked ? "generic" : "no"; }},
    DerivedField{"logits", logits_words, [](const Signature& s) -> std::string_view {
                   return fmha(s).soft_cap ? "true" : "false";
                 }}};

// Two steps of a launch.
Estimate one_after_the_other(const Estimate& first, const Estimate& second) {
  Estimate both = second;
  both.seconds += first.seconds;
  both.compute_seconds += first.compute_seconds;
  both.memory_seconds += first.memory_seconds;
  both.overhead_seconds += first.overhead_seconds;
  return both;
}

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kFlashCpu,
                                      &kDirectGpu,
                                      &kFlashGpu,
                                      &kFlash8Gpu,
                                      &kBackwardFlashGpu,
                                      &kSplitGpu,
                                      &kBackwardCpu,
                                      &kBackwardDirectGpu,
                                      &kAppendCpu,
                                      &kAppendGpu,
                                      &kQr,
                                      &kQrasync,
                                      &kLatentQr,
                                      &kLatentQrasync,
                                      &kSplitHip,
                                      &kLatentSplitHip,
                                      &kDirectHip,
                                      &kBackwardQr,
                                      &kBackwardQrasync,
                                      &kBackwardHip,
                                      &kAppendHip,
                                      &kWmmaQr};
  return kAll;
}

std::span<const Rule> Types::common_rules() { return kCommonRules; }

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return fmt::format("{}: {}", name_of(spec), no_row({signature_in(spec), spec.algorithm, target}));
}

bool Types::makes(const Own& own, const FmhaSignature& s) { return makes_kind(own, s.kind); }

// Kernels of tmaws name the instruction that multiplies numbers of 8 bits, and no other. Tiles of
// AMD's matrix instructions name the heads of latent attention, and the instruction: MFMA's is
// larger than WMMA's.
bool Types::takes(const Own& own, const Algorithm& a) {
  return own.is_bytes == (a.pipeline == Pipeline::tmaws && a.warp_tile.k == kBytesOfProduct) &&
         own.is_latent == is_latent_mfma(a) &&
         own.is_wmma == (a.pipeline == Pipeline::qr && a.warp_tile == Shape3{16, 16, 16});
}

std::vector<Algorithm> Types::algorithms_for(const tessera::Problem& problem,
                                             const Target& target) {
  return algorithms_of(target, fmha_of(problem).kind);
}

// Only sums of dq are added by several blocks.
Verdict is_deterministic(const KernelSpec& spec, const Target&) {
  if (spec.algorithm.split_k != SplitK::atomic) return {};
  return {"deterministic kernels must add up dq in the order of the keys, got split_k atomic"};
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  const Named named = named_by(wishes);
  std::vector<FmhaSignature> append = append_signatures(of_plain_types(FmhaKind::append));
  if (named.kv) add_all(append_signatures(of_own_kv(FmhaKind::append)), append);
  if (named.pages) add_all(paged(append), append);
  const std::vector<Signature> of_append(append.begin(), append.end());
  std::vector<KernelSpec> specs = tile::product(family(), target, wishes, of_append,
                                                algorithms_of(target, FmhaKind::append), most);
  for (KernelSpec& spec :
       tile::product(family(), target, wishes, signatures(named),
                     algorithms_of(target, FmhaKind::backward), most - specs.size())) {
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::span<const DerivedField> derived() { return kDerived; }

// The first in the order of names that serves the problem, wherever its operands lie.
KernelSpec general(const Problem& problem, const Target& target) {
  std::string why;
  for (const KernelSpec& spec : tile::candidates<Types>(problem, target)) {
    const Way* const way = tile::find_way<Types>(spec, target);
    if (way == nullptr || !way->own.is_general) continue;
    Verdict verdict = tile::is_legal<Types>(spec, target);
    if (verdict) verdict = tile::supports<Types>(spec, problem, target);
    if (verdict) return spec;
    why = verdict.reason;
  }
  throw Error(ErrorCode::unsupported, fmt::format("fmha: {}", why));
}

std::optional<TunedLength> tuned_length(const KernelSpec& spec, const Problem& problem,
                                        const Target& target) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (p.kind != FmhaKind::forward && !extends(p)) return std::nullopt;
  const std::int64_t heads =
      tile::way_of<Types>(spec, target).own.packs_heads ? p.heads / p.heads_kv : 1;
  return TunedLength{spec.algorithm.tile.m, p.seqlen_q * heads};
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Target& target,
            const Operands& operands) {
  Launch launch = tile::bind<Types>(spec, problem, target, operands);
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_empty()) launch.pointers.push(pointer(operands, tensor.operand));
  }
  return launch;
}

std::string stage(const KernelSpec& spec, const Target& target, std::string_view entry) {
  if (entry == "_check") return "check pages";  // its suffix does not say it
  const Types::Own& own = tile::way_of<Types>(spec, target).own;
  const bool is_longer = !own.longer_stage.empty() && (extends(spec) || signature_in(spec).dbias);
  return tile::stage_of(is_longer ? own.longer_stage : own.stage, entry);
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (!goes_back(spec) && !has_queries(p)) return tile::total_of(0, 0, target.launch_us * 1e-6);
  if (!extends(spec)) return tile::estimate<Types>(spec, problem, target, threads);
  return one_after_the_other(
      append_estimate(with_strides(append_part(p)), target, units_used(threads, target)),
      tile::estimate<Types>(spec, attention_part(p), target, threads));
}

// ---- what ways share ----

bool fits_shared_memory(const Case& c) {
  return tile::find_way<Types>(c)->own.shared_bytes(c.signature, c.algorithm) <=
         c.target.shared_memory_bytes;
}

std::string shared_memory_sentence(const Case& c) {
  return fmt::format("needs {} bytes of shared memory, {} has {}",
                     tile::find_way<Types>(c)->own.shared_bytes(c.signature, c.algorithm),
                     c.target.name, c.target.shared_memory_bytes);
}

Verdict serves_heads(const KernelSpec& spec, const FmhaProblem& p, const Target&) {
  const Shape3& tile = spec.algorithm.tile;
  const int most_v = most_hdim_v(tile.k);
  if (p.hdim > tile.k) {
    return {fmt::format("tile {} serves heads of {} elements, got {} (hdim)", to_string(tile),
                        tile.k, p.hdim)};
  }
  if (p.hdim_v <= most_v) return {};
  return {fmt::format("tile {} serves values of {} elements, got {} (hdim_v)", to_string(tile),
                      most_v, p.hdim_v)};
}

double product_rate(const Target& target, DType in) {
  const Instruction* one = find_instruction(target, in, in, DType::fp32);
  const double products = one == nullptr ? 1 : double(one->shape.m) * one->shape.n * one->shape.k;
  return products * (one == nullptr ? 1 : one->per_cycle) * target.clock_ghz * 1e9;
}

double rate_or_fp32(const Target& target, DType in) {
  const bool has_own = find_instruction(target, in, in, DType::fp32) != nullptr;
  return product_rate(target, has_own ? in : DType::fp32);
}

double cpu_launch_seconds(const Target& target, double threads) {
  return threads > 1 ? target.launch_us * 1e-6 : 1e-7;
}

}  // namespace tessera::fmha
