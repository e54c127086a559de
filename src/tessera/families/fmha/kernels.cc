// Which kernels there are: rules, enumeration, and the kernels of a problem.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/backward_sizes.h"
#include "tessera/device/cuda/fmha/direct_sizes.h"
#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/backward_gpu.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_gpu.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/split_gpu.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/space.h"
#include "tessera/families/tile/specs.h"
#include "tessera/spec/words_internal.h"

namespace tessera::fmha {
namespace {

constexpr int kMostTile = 4096;  // rows or keys
constexpr int kLaneKeys = 32;    // direct: a lane for each key of a block
constexpr std::array kHeads = {64, 128, 256, 576};

struct Case {
  const FmhaSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

bool on_gpu(const Case& c) { return is_gpu(c.target); }
int lanes(const Case& c) { return std::max(1, c.target.vector_bytes / 4); }

std::int64_t shared_bytes(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  const int hdim_v = most_hdim_v(t.k), size = size_of(c.signature.in);
  if (c.signature.kind != FmhaKind::backward) {
    return device::fmha_direct_shared_bytes(t.m, t.k, hdim_v, size);
  }
  return device::fmha_backward_sizes(t.m, t.k, hdim_v, size).bytes;
}

bool tile_fits(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  const Shape3& w = c.algorithm.warp_tile;
  if (t.m < 1 || t.m > kMostTile || t.n < 1 || t.n > kMostTile) return false;
  if (std::find(kHeads.begin(), kHeads.end(), t.k) == kHeads.end()) return false;
  if (on_gpu(c)) return t.n == kLaneKeys && t.m % std::max(1, c.algorithm.wave.m) == 0;
  return w.m > 0 && w.n > 0 && t.m % w.m == 0 && t.n % w.n == 0 && t.k == kMostHdim;
}

std::string tile_sentence(const Case& c) {
  const std::string tile = to_string(c.algorithm.tile);
  if (on_gpu(c)) {
    return fmt::format(
        "tile must be m x {} x k, m a multiple of {} warps, k 64, 128, 256 or {}, "
        "got {}",
        kLaneKeys, c.algorithm.wave.m, kMostHdim, tile);
  }
  return fmt::format(
      "tile must be m x n x {}, at most {}, m and n multiples of warp tile {}, got "
      "{}",
      kMostHdim, kMostTile, to_string(c.algorithm.warp_tile), tile);
}

bool warp_tile_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  if (on_gpu(c)) return w == Shape3{};
  const int vectors = w.n / lanes(c);
  return w.k == 1 && w.m >= 1 && vectors >= 1 && w.n % lanes(c) == 0 &&
         w.m * vectors + vectors < c.target.vector_registers;
}

// What holds for kernels of every pipeline, and what for kernels of `flash` and `direct`, whose
// unused fields are at their defaults.
constexpr tile::Rule<Case> kCommonRules[] = {
    {[](const Case& c) { return tile::has_pipeline(Op::fmha, c.target, c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    {[](const Case& c) {
       return c.signature.kind != FmhaKind::backward || !on_gpu(c) ||
              c.algorithm.pipeline != Pipeline::splitkv;
     },
     [](const Case& c) {
       return fmt::format(
           "the pipeline must be tmaws or direct with kind=backward on a GPU, got {}",
           to_string(c.algorithm.pipeline));
     }},
};
constexpr tile::Rule<Case> kRules[] = {
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       if (!on_gpu(c)) return w == Shape3{0, 1, 1};
       return w.m >= 1 && w.m * 32 <= c.target.max_threads_per_block && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       const std::string wave = to_string(c.algorithm.wave);
       if (!on_gpu(c)) return fmt::format("wave must be 0x1x1, got {}", wave);
       return fmt::format("wave must be m x 1 x 1 warps of 32 threads, at most {} threads, got {}",
                          c.target.max_threads_per_block, wave);
     }},
    {warp_tile_fits,
     [](const Case& c) {
       const std::string warp_tile = to_string(c.algorithm.warp_tile);
       if (on_gpu(c)) return fmt::format("warp tile must be 1x1x1, got {}", warp_tile);
       return fmt::format(
           "warp tile must be m x n x 1, n a multiple of {} lanes, with less than {} "
           "registers in use, got {}",
           lanes(c), c.target.vector_registers, warp_tile);
     }},
    {tile_fits, tile_sentence},
    {[](const Case& c) { return !on_gpu(c) || shared_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory, {} has {}", shared_bytes(c),
                          c.target.name, c.target.shared_memory_bytes);
     }},
};

// ---- enumeration ----

// Whether a pipeline lists its algorithms itself, as they are no products of lists of a row. Such
// kernels do not serve every problem.
bool has_own_algorithms(Pipeline pipeline) {
  return pipeline == Pipeline::tmaws || pipeline == Pipeline::splitkv;
}

// Gradients have flash kernels of their own on a GPU, which `backward_too` adds.
std::vector<Algorithm> algorithms_of(const Target& target, bool backward_too) {
  const AlgorithmSpace& space = tile::space_of(Op::fmha, target);
  const std::vector<Shape3> one = {Shape3{}};
  const auto& warp_tiles = is_gpu(target) ? one : tile::warp_tiles_for(space, DType::fp32);
  std::vector<Algorithm> all;
  tile::for_each_shape(space, space.tiles, warp_tiles, [&](const Algorithm& a) {
    if (has_own_algorithms(a.pipeline)) return;
    all.push_back(a);
  });
  if (tile::has_pipeline(Op::fmha, target, Pipeline::tmaws)) {
    for (const Algorithm& a : flash_gpu_algorithms()) all.push_back(a);
    if (backward_too) {
      for (const Algorithm& a : flash_backward_algorithms()) all.push_back(a);
    }
  }
  if (tile::has_pipeline(Op::fmha, target, Pipeline::splitkv)) {
    for (const Algorithm& a : split_gpu_algorithms(target)) all.push_back(a);
  }
  return all;
}

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

// Signatures that servers need, which read pages: no bias, no soft cap and no dropout.
std::vector<FmhaSignature> paged(std::vector<FmhaSignature> some) {
  std::erase_if(some, [](const FmhaSignature& s) {
    return s.bias != FmhaBias::none || s.soft_cap || s.dropout;
  });
  some = with_each(some, &FmhaSignature::pages, {FmhaPages::table, FmhaPages::list});
  return with_each(some, &FmhaSignature::cache_layout,
                   {FmhaCacheLayout::linear, FmhaCacheLayout::vectorized});
}

// Signatures that append first: a server's, with each embedding.
std::vector<FmhaSignature> extended(std::vector<FmhaSignature> some) {
  std::erase_if(some, [](const FmhaSignature& s) {
    return s.bias != FmhaBias::none || s.soft_cap || s.dropout || is_eight_bits(s.in);
  });
  some = with_each(some, &FmhaSignature::kind, {FmhaKind::extend});
  using enum FmhaRotary;
  some = with_each(some, &FmhaSignature::rotary, {none, interleaved, half});
  some = with_each(some, &FmhaSignature::rotate_q, {false, true});
  std::erase_if(some, [](const FmhaSignature& s) { return !signature_reason(s).empty(); });
  return some;
}

bool names_extend(std::span<const Wish> wishes) {
  return std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) {
    return (wish.field == "kind" || wish.field == "variant") && wish.pattern == "extend";
  });
}

void add_all(const std::vector<FmhaSignature>& more, std::vector<FmhaSignature>& all) {
  all.insert(all.end(), more.begin(), more.end());
}

bool names_pages(std::span<const Wish> wishes) {
  return std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) {
    return wish.field == "pages" || wish.field == "cache_layout";
  });
}

bool names_eight_bits(std::span<const Wish> wishes) {
  return std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) {
    const bool is_type = wish.field == "dtype" || wish.field == "in" || wish.field == "out";
    return wish.field == "qscale" || (is_type && (wish.pattern == "fp8" || wish.pattern == "bf8"));
  });
}

bool names_gradients(std::span<const Wish> wishes) {
  return std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) {
    const bool is_kind = wish.field == "kind" || wish.field == "variant";
    return wish.field == "dbias" || (is_kind && wish.pattern != "*");
  });
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
  return with_each(all, &FmhaSignature::qscale, {none, per_tensor, per_block, kv_block});
}

// What networks use: all of one type, with or without a mask, and lse and dropout for training.
// Kernels that read pages, of 8 bits, and of gradients are listed where a wish asks for them.
std::vector<Signature> signatures(std::span<const Wish> wishes) {
  std::vector<FmhaSignature> all;
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16}) {
    all.push_back(FmhaSignature{.in = in, .out = in, .dtype_bias = in});
  }
  if (names_eight_bits(wishes)) {
    const std::vector<FmhaSignature> more = eight_bits();
    all.insert(all.end(), more.begin(), more.end());
  }
  all = with_each(all, &FmhaSignature::lengths,
                  {FmhaLengths::equal, FmhaLengths::packed, FmhaLengths::padded});
  all = with_each(all, &FmhaSignature::bias,
                  {FmhaBias::none, FmhaBias::elementwise, FmhaBias::alibi});
  all = with_each(all, &FmhaSignature::masked, {false, true});
  all = with_each(all, &FmhaSignature::soft_cap, {false, true});
  all = with_each(all, &FmhaSignature::lse, {false, true});
  all = with_each(all, &FmhaSignature::dropout, {false, true});
  const std::vector<FmhaSignature> plain = all;
  if (names_pages(wishes)) add_all(paged(plain), all);
  if (names_extend(wishes)) all = extended(std::move(all));
  if (names_gradients(wishes)) add_all(backward_signatures(plain), all);
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

std::vector<Algorithm> algorithms_for(const Problem& problem, const Target& target) {
  if (appends(fmha_of(problem))) return append_algorithms(target);
  return algorithms_of(target, goes_back(fmha_of(problem)));
}

}  // namespace

int most_hdim_v(int most_hdim) { return std::min(most_hdim, static_cast<int>(kMostHdimV)); }

Verdict is_legal(const KernelSpec& spec, const Target& target) {
  if (std::string why = tile::foreign_reason(Op::fmha, spec, target); !why.empty()) return {why};
  const Case c = {std::get<FmhaSignature>(spec.signature), spec.algorithm, target};
  if (appends(spec)) return {append_illegal(c.signature, c.algorithm, target)};
  if (std::string why = tile::broken_sentence(kCommonRules, c); !why.empty()) return {why};
  if (c.algorithm.pipeline == Pipeline::tmaws) {
    return {goes_back(spec) ? flash_backward_illegal(c.signature, c.algorithm, target)
                            : flash_gpu_illegal(c.signature, c.algorithm, target)};
  }
  if (!tile::unused_at_default(c.algorithm)) return {tile::unused_field(c.algorithm)};
  if (c.algorithm.pipeline == Pipeline::splitkv) {
    return {split_gpu_illegal(c.signature, c.algorithm, target)};
  }
  return {tile::broken_sentence(kRules, c)};
}

// Only sums of dq are added by several blocks.
Verdict is_deterministic(const KernelSpec& spec, const Target&) {
  if (spec.algorithm.split_k != SplitK::atomic) return {};
  return {"deterministic kernels must add up dq in the order of the keys, got split_k atomic"};
}

Verdict supports(const KernelSpec& spec, const Problem& problem, const Target&) {
  if (std::string why = tile::signature_mismatch(spec, problem); !why.empty()) return {why};
  if (appends(spec)) return {};
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (spec.algorithm.pipeline == Pipeline::tmaws) {
    return {goes_back(spec) ? flash_backward_unsupported(spec, p) : flash_gpu_unsupported(spec, p)};
  }
  if (spec.algorithm.pipeline == Pipeline::splitkv) return {split_gpu_unsupported(spec, p)};
  const int most = spec.algorithm.tile.k;
  if (p.hdim > most)
    return {fmt::format("tile {} serves heads of {} elements, got {} (hdim)",
                        to_string(spec.algorithm.tile), most, p.hdim)};
  if (p.hdim_v <= most_hdim_v(most)) return {};
  return {fmt::format("tile {} serves values of {} elements, got {} (hdim_v)",
                      to_string(spec.algorithm.tile), most_hdim_v(most), p.hdim_v)};
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  std::vector<FmhaSignature> append = append_signatures();
  if (names_pages(wishes)) add_all(paged(append), append);
  const std::vector<Signature> of_append(append.begin(), append.end());
  std::vector<KernelSpec> specs =
      tile::product(family(), target, wishes, of_append, append_algorithms(target), most);
  for (KernelSpec& spec : tile::product(family(), target, wishes, signatures(wishes),
                                        algorithms_of(target, true), most - specs.size())) {
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  return tile::legal_by_name(family(), target, combinations(target, wishes, kAll));
}

std::span<const DerivedField> derived() { return kDerived; }

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return tile::specs_for(problem, target, algorithms_for(problem, target));
}

std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return tile::legal_specs_for(family(), problem, target, algorithms_for(problem, target));
}

// The first in the order of names that serves the problem, wherever its operands lie.
KernelSpec general(const Problem& problem, const Target& target) {
  std::string why;
  for (const KernelSpec& spec : candidates(problem, target)) {
    if (has_own_algorithms(spec.algorithm.pipeline)) continue;
    Verdict verdict = is_legal(spec, target);
    if (verdict) verdict = supports(spec, problem, target);
    if (verdict) return spec;
    why = verdict.reason;
  }
  throw Error(ErrorCode::unsupported, fmt::format("fmha: {}", why));
}

}  // namespace tessera::fmha
