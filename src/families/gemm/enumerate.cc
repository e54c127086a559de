#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr DType kOperands[] = {DType::fp32, DType::tf32, DType::fp16, DType::bf16,
                               DType::fp8,  DType::bf8,  DType::int8};
constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                   GemmLayout::ccr};

// The chains that enumeration lists. Any other chain is served too, by the same algorithms. CK Tile
// has so many of these that four chains stand for all.
constexpr std::string_view kEpilogues[] = {
    "bias",      "bias+gelu", "multi_d_add2", "multi_d_multiply2",
    "bias+relu", "bias+silu", "add+relu",     "multiply",
};
constexpr std::size_t kCkEpilogues = 4;

// Tiles with few columns are for problems with few rows: these are also tried with A and B swapped
// and with K split over the blocks of a cluster.
constexpr int kSkinnyTile = 64;
constexpr int kSkinnySplits[] = {1, 2, 4};

// Lists in the order in which their words stand in sorted names. A word ends with '_' there, so
// that "12x768x512" comes after "120x3072x256".
template <class Value>
std::vector<Value> in_name_order(const std::vector<Value>& values) {
  std::vector<std::pair<std::string, Value>> words;
  for (const Value& value : values) words.emplace_back(std::string(to_string(value)) + "_", value);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::vector<Value> sorted;
  for (const auto& word : words) sorted.push_back(word.second);
  return sorted;
}

// ---- algorithms ----

// The variants of one tile that only GPUs have.
void add_gpu_variants(const AlgorithmSpace& space, const Algorithm& base,
                      std::vector<Algorithm>& all) {
  const bool tmaws = base.pipeline == Pipeline::tmaws;
  static const std::vector<Scheduler> kPlain = {Scheduler::standard};
  static const std::vector<Shape3> kAlone = {Shape3{}};
  const bool skinny = tmaws && base.tile.n <= kSkinnyTile;
  for (const Scheduler s : base.pipeline == Pipeline::cpasync ? kPlain : space.schedulers) {
    for (const int stages : space.stages) {
      for (const Shape3& cluster : tmaws ? space.clusters : kAlone) {
        for (const int splits : kSkinnySplits) {
          if (splits > 1 && !skinny) continue;
          Algorithm a = base;
          a.scheduler = s;
          a.stages = stages;
          a.cluster_m = cluster.m;
          a.cluster_n = cluster.n;
          a.splits = splits;
          a.split_k = splits > 1 ? SplitK::ordered : SplitK::none;
          all.push_back(a);
          a.swap_ab = true;
          if (skinny) all.push_back(a);
        }
      }
    }
  }
}

// The product of the target's value lists, in name order where only the four shapes differ.
std::vector<Algorithm> algorithms_of(const Target& target, DType operand) {
  const AlgorithmSpace& space = space_of(target);
  const auto tiles = in_name_order(space.tiles);
  const auto waves = in_name_order(space.waves);
  const auto warp_tiles = in_name_order(warp_tiles_for(space, operand));
  const bool cpu = target.backend == "cpu";
  std::vector<Algorithm> all;
  for (const Pipeline pipeline : in_name_order(space.pipelines)) {
    for (const Shape3& tile : tiles) {
      for (const Shape3& wave : waves) {
        for (const Shape3& warp_tile : warp_tiles) {
          const Algorithm a = {
              .pipeline = pipeline, .tile = tile, .wave = wave, .warp_tile = warp_tile};
          if (cpu) {
            all.push_back(a);
          } else if (tile.m % warp_tile.m == 0 && tile.n % warp_tile.n == 0) {
            add_gpu_variants(space, a, all);  // too many to list what never fits
          }
        }
      }
    }
  }
  return all;
}

void sort_by_name(std::vector<KernelSpec>& specs) {
  std::vector<std::pair<std::string, std::size_t>> names(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) names[i] = {name_of(specs[i]), i};
  std::sort(names.begin(), names.end());
  std::vector<KernelSpec> sorted;
  sorted.reserve(specs.size());
  for (const auto& name : names) sorted.push_back(std::move(specs[name.second]));
  specs = std::move(sorted);
}

// ---- signatures ----

GemmSignature standard_signature(DType operand, GemmLayout layout) {
  return std::get<GemmSignature>(signature_of(gemm_problem(operand, layout, 0, 0, 0)));
}

// The standard, the preshuffled and the fused ones of a pair of operand type and layout.
std::vector<GemmSignature> signatures_of(DType operand, GemmLayout layout, const Target& target) {
  const GemmSignature standard = standard_signature(operand, layout);
  std::vector<GemmSignature> all = {standard};
  const std::span<const std::string_view> epilogues(kEpilogues);
  for (const std::string_view text :
       target.backend == "ck" ? epilogues.first(kCkEpilogues) : epilogues) {
    GemmSignature fused = standard;
    if (fused.out == DType::int32) fused.out = fused.d = DType::fp32;  // int32 takes no epilogue
    fused.epilogue = parse_epilogue(text);
    all.push_back(fused);
  }
  all.push_back(standard);
  all.back().preshuffled_b = true;
  return all;
}

// The algorithms that are legal without an epilogue. Epilogues change nothing but the types' rules,
// so that each list is made once for all of them.
std::vector<Algorithm> legal_algorithms(const std::vector<Algorithm>& all, const Filter& filter,
                                        const GemmSignature& signature, const Target& target) {
  std::vector<Algorithm> legal;
  for (const Algorithm& a : all) {
    if (filter.accepts(a) && is_legal_quick({signature, a, target})) legal.push_back(a);
  }
  return legal;
}

bool same_but_epilogue(GemmSignature a, const GemmSignature& b) {
  a.epilogue = b.epilogue;
  return a == b;
}

void add_specs(DType operand, GemmLayout layout, const Target& target, const Filter& filter,
               std::vector<KernelSpec>& specs) {
  std::vector<Algorithm> all;
  std::vector<Algorithm> legal;
  std::optional<GemmSignature> made_for;
  for (const GemmSignature& signature : signatures_of(operand, layout, target)) {
    if (!filter.accepts(signature)) continue;
    if (all.empty()) all = algorithms_of(target, operand);
    if (!made_for || !same_but_epilogue(*made_for, signature)) {
      legal = legal_algorithms(all, filter, signature, target);
      made_for = signature;
    }
    for (const Algorithm& a : legal) specs.push_back({signature, a, target.name});
  }
}

}  // namespace

const AlgorithmSpace& space_of(const Target& target) {
  const auto found = target.spaces.find(Op::gemm);
  if (found != target.spaces.end()) return found->second;
  throw Error(ErrorCode::unsupported,
              fmt::format("gemm: the row of target {} has no space for gemm; add spaces.gemm to it",
                          target.name));
}

const std::vector<Shape3>& warp_tiles_for(const AlgorithmSpace& space, DType operand) {
  static const std::vector<Shape3> kNone;
  auto found = space.warp_tiles.find(operand);
  if (found == space.warp_tiles.end() && operand == DType::tf32) {
    found = space.warp_tiles.find(DType::fp32);
  }
  return found == space.warp_tiles.end() ? kNone : found->second;
}

std::vector<KernelSpec> enumerate(const Target& target, const SpecFilter& filter) {
  const Filter wanted(filter);
  const AlgorithmSpace& space = space_of(target);
  std::vector<KernelSpec> specs;
  for (const DType operand : kOperands) {
    if (!space.warp_tiles.contains(operand)) continue;
    for (const GemmLayout layout : kLayouts) add_specs(operand, layout, target, wanted, specs);
  }
  if (!filter.name.empty()) {
    std::erase_if(specs,
                  [&](const KernelSpec& spec) { return !wanted.accepts_name(name_of(spec)); });
  }
  sort_by_name(specs);
  return specs;
}

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  const std::vector<Algorithm> all = algorithms_of(target, signature.a);
  std::vector<KernelSpec> specs;
  specs.reserve(all.size());
  for (const Algorithm& a : all) specs.push_back({signature, a, target.name});
  if (target.backend != "cpu") sort_by_name(specs);
  return specs;
}

KernelSpec general(const Problem& problem, const Target& target) {
  const AlgorithmSpace& space = space_of(target);
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  if (target.backend == "cpu") {
    Algorithm a = {.pipeline = Pipeline::packab, .wave = {0, 0, 1}};
    for (const Shape3& warp_tile : warp_tiles_for(space, signature.a)) {
      for (const Shape3& tile : space.tiles) {
        a.tile = tile;
        a.warp_tile = warp_tile;
        if (is_legal_quick({signature, a, target})) return {signature, a, target.name};
      }
    }
  }
  // GPUs: whichever comes first of those that take the problem's sizes.
  if (target.backend != "cpu") {
    for (const Algorithm& a : algorithms_of(target, signature.a)) {
      KernelSpec spec = {signature, a, target.name};
      if (is_legal_quick({signature, a, target}) && supports(spec, problem, target)) return spec;
    }
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("gemm: {} lists no legal kernel for {} x {} with layout {}", target.name,
                  to_string(signature.a), to_string(signature.b), to_string(signature.layout)));
}

}  // namespace tessera::gemm
