// Which kernels there are: rules, enumeration, and the kernels of a problem.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/space.h"
#include "tessera/families/tile/specs.h"
#include "tessera/spec/words_internal.h"

namespace tessera::norm {
namespace {

constexpr int kLeastTile = 256;
constexpr int kMostTile = 32768;
constexpr int kMostSlices = 256;
constexpr std::int64_t kMostSlicedRows = 65536;
constexpr int kVectorBytes = 16;    // that a thread of a GPU moves at once
constexpr int kMoreRegisters = 40;  // than the values that a thread holds

struct Case {
  const NormSignature& signature;
  const Algorithm& algorithm;
  const Target& target;
};

int threads_of(const Case& c) { return c.algorithm.wave.m * c.algorithm.wave.n * kWarp; }

bool wave_fits(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  if (!is_gpu(c.target)) return w.m <= 1 && w.n == 1 && w.k == 1;
  const int most = c.target.max_threads_per_block;
  return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m <= most && w.n <= most && threads_of(c) <= most;
}

// What a tile must be: rows, and a multiple of columns.
int tile_rows(const Case& c) { return is_gpu(c.target) ? c.algorithm.wave.m : 1; }
int tile_unit(const Case& c) {
  if (!is_gpu(c.target)) return std::max(1, c.target.vector_bytes / 4);
  return c.algorithm.wave.n * kWarp * kVectorBytes / size_of(c.signature.in);
}

int registers_of_thread(const Case& c) {
  return std::min(c.target.registers_per_thread, c.target.registers_per_unit / threads_of(c));
}

constexpr tile::Rule<Case> kRules[] = {
    {[](const Case& c) { return tile::has_pipeline(Op::norm, c.target, c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    {[](const Case& c) { return tile::unused_at_default(c.algorithm); },
     [](const Case& c) { return tile::unused_field(c.algorithm); }},
    {[](const Case& c) { return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostSlices; },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostSlices,
                          c.algorithm.slices);
     }},
    {[](const Case& c) { return c.algorithm.warp_tile == Shape3{}; },
     [](const Case& c) {
       return fmt::format("warp tile must be 1x1x1, got {}", to_string(c.algorithm.warp_tile));
     }},
    {wave_fits,
     [](const Case& c) {
       const std::string wave = to_string(c.algorithm.wave);
       if (!is_gpu(c.target)) return fmt::format("wave must be 1x1x1 or 0x1x1, got {}", wave);
       return fmt::format("wave must be m x n x 1 warps of {} threads, at most {} in all, got {}",
                          kWarp, c.target.max_threads_per_block, wave);
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m == tile_rows(c) && t.k == 1 && t.n >= kLeastTile && t.n <= kMostTile &&
              t.n % tile_unit(c) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile must be {} x n x 1, n a multiple of {} from {} to {}, got {}",
                          tile_rows(c), tile_unit(c), kLeastTile, kMostTile,
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       return !is_gpu(c.target) || registers_needed(c.algorithm) <= registers_of_thread(c);
     },
     [](const Case& c) {
       return fmt::format("needs {} registers a thread, {} has {} for each of {} threads",
                          registers_needed(c.algorithm), c.target.name, registers_of_thread(c),
                          threads_of(c));
     }},
};

// ---- enumeration ----

// The target's space. On GPUs a block has as many rows as its warps stand for.
std::vector<Algorithm> algorithms_of(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::norm, target);
  std::vector<Algorithm> all;
  tile::for_each_shape(space, space.tiles, {Shape3{}}, [&](Algorithm a) {
    if (is_gpu(target)) a.tile.m = a.wave.m;
    for (const int slices : {1, 8, 32, 128}) {
      a.slices = slices;
      if (slices == 1 || a.wave.m <= 1) all.push_back(a);
    }
  });
  return all;
}

// What networks use: all of one type, or half precision with weights or probabilities in fp32.
std::vector<Signature> signatures() {
  std::vector<Signature> all;
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16}) {
    for (const DType other : {in, DType::fp32}) {
      all.push_back(NormSignature{.in = in, .weight = in, .out = other});
      for (const NormKind kind : {NormKind::rmsnorm, NormKind::layernorm}) {
        for (const bool residual : {false, true}) {
          all.push_back(
              NormSignature{kind, in, other, in, true, kind == NormKind::layernorm, residual});
        }
      }
      if (in == DType::fp32) break;
    }
  }
  return all;
}

std::string_view dtype_of(const Signature& signature) {
  return to_string(std::get<NormSignature>(signature).in);
}
constexpr std::array kDerived = {DerivedField{"dtype", known_words<DType>, dtype_of}};

}  // namespace

// By a thread of a GPU.
int registers_needed(const Algorithm& a) {
  return a.tile.n / (kWarp * std::max(1, a.wave.n)) + kMoreRegisters;
}

Verdict is_legal(const KernelSpec& spec, const Target& target) {
  if (std::string why = tile::foreign_reason(Op::norm, spec, target); !why.empty()) return {why};
  const Case c = {std::get<NormSignature>(spec.signature), spec.algorithm, target};
  return {tile::broken_sentence(kRules, c)};
}

Verdict supports(const KernelSpec& spec, const Problem& problem, const Target&) {
  if (std::string why = tile::signature_mismatch(spec, problem); !why.empty()) return {why};
  const std::int64_t rows = std::get<NormProblem>(problem).rows;
  if (spec.algorithm.slices == 1 || rows <= kMostSlicedRows) return {};
  return {fmt::format("slices serve at most {} rows, got {}", kMostSlicedRows, rows)};
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  return tile::product(family(), target, wishes, signatures(), algorithms_of(target), most);
}

std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  return tile::legal_by_name(family(), target, combinations(target, wishes, kAll));
}

std::span<const DerivedField> derived() { return kDerived; }

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return tile::specs_for(problem, target, algorithms_of(target));
}

std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return tile::legal_specs_for(family(), problem, target, algorithms_of(target));
}

KernelSpec general(const Problem& problem, const Target& target) {
  Algorithm a = {
      .pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {0, 1, 1}, .warp_tile = {}};
  if (is_gpu(target)) a.wave = {1, 8, 1};
  KernelSpec spec = {signature_of(problem), a, target.name};
  if (const Verdict verdict = is_legal(spec, target); !verdict) {
    throw Error(ErrorCode::unsupported, fmt::format("norm: {}", verdict.reason));
  }
  return spec;
}

}  // namespace tessera::norm
