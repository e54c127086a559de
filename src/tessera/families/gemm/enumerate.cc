#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>

#include "tessera/base/error.h"
#include "tessera/families/gemm/amx_internal.h"
#include "tessera/families/gemm/fitted_internal.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/gemm/small_internal.h"
#include "tessera/families/gemm/stream_gpu_internal.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/sets.h"
#include "tessera/families/tile/specs.h"

namespace tessera::gemm {
namespace {

constexpr DType kOperands[] = {DType::fp32, DType::tf32, DType::fp16, DType::bf16,
                               DType::fp8,  DType::bf8,  DType::int8};
constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                   GemmLayout::ccr};

// The epilogues that enumeration lists. The same algorithms serve any other epilogue too. AMD's
// GPUs have so many types and algorithms that only the first four epilogues are listed for them.
constexpr std::string_view kEpilogues[] = {
    "bias",      "bias+gelu", "multi_d_add2", "multi_d_multiply2",
    "bias+relu", "bias+silu", "add+relu",     "multiply",
};
constexpr std::size_t kHipEpilogues = 4;

// Tiles of at most kSkinnyTile columns are for problems with few rows or columns, so they are also
// tried with A and B swapped. K is split over the blocks of a cluster. For long sums with few tiles
// K is cut in slices as well.
struct Parts {
  int splits, slices;
};
constexpr Parts kParts[] = {{2, 1}, {4, 1}, {8, 1}, {4, 4}, {8, 4}, {4, 16}, {8, 16}};
constexpr Parts kRepackedParts[] = {{4, 1}, {8, 4}};
constexpr int kFmaSlices[] = {2, 4, 8, 16, 32};
constexpr int kHipSlices[] = {2, 4, 8, 16};
constexpr int kHipAtomicSlices[] = {4, 16};
constexpr int kMostSliced = 64 * 64;  // outputs of a tile; larger tiles are not sliced
constexpr int kMostHipSliced = 128 * 128;

const AlgorithmSpace& space_of(const Target& target) { return tile::space_of(Op::gemm, target); }

// ---- algorithms ----

// The ways to divide K. Kernels with repack get fewer ways, because only odd problems need them.
std::span<const Parts> parts_for(const Algorithm& a) {
  if (a.scheduler == Scheduler::pingpong) return {};
  if (!a.repack) return kParts;
  return std::span(kRepackedParts).first(a.tile.n <= kSkinnyTile ? 2 : 1);
}

void add_parts(Algorithm a, std::vector<Algorithm>& all) {
  all.push_back(a);
  a.split_k = SplitK::ordered;
  for (const Parts& parts : parts_for(a)) {
    a.splits = parts.splits;
    a.slices = parts.slices;
    all.push_back(a);
  }
}

// The variants of one tile that tmaws kernels have.
void add_tmaws(const AlgorithmSpace& space, const Algorithm& base, std::vector<Algorithm>& all) {
  const bool skinny = base.tile.n <= kSkinnyTile;
  const bool pingpong = base.scheduler == Scheduler::pingpong;
  for (const int stages : space.stages) {
    Algorithm a = base;
    a.stages = stages;
    for (const Shape3& cluster : space.clusters) {
      if (cluster.m * cluster.n == 1) continue;  // added below with more variants
      a.cluster_m = cluster.m;
      a.cluster_n = cluster.n;
      all.push_back(a);
    }
    a.cluster_m = a.cluster_n = 1;
    for (const bool repack : {false, true}) {
      if (repack && skinny && pingpong) continue;
      a.repack = repack;
      for (const bool swap : {false, true}) {
        a.swap_ab = swap;
        if (!swap || (skinny && !pingpong)) add_parts(a, all);
      }
    }
  }
}

// Kernels of fp32, whose warp tile has k = 1, are also listed with K in slices.
void add_cpasync(const AlgorithmSpace& space, const Algorithm& base, std::vector<Algorithm>& all) {
  for (const int stages : space.stages) {
    all.push_back(base);
    all.back().stages = stages;
  }
  if (base.warp_tile.k != 1 || base.tile.m * base.tile.n > kMostSliced) return;
  for (const int slices : kFmaSlices) {
    all.push_back(base);
    all.back().stages = space.stages.front();
    all.back().split_k = SplitK::ordered;
    all.back().slices = slices;
  }
}

// The stages that a pipeline of AMD's GPUs takes, as its row has them.
bool takes_stages(const Target& target, Pipeline pipeline, int stages) {
  const auto found = target.pipeline_limits.find(pipeline);
  return found != target.pipeline_limits.end() && stages >= found->second.min_stages &&
         stages <= found->second.max_stages;
}

// Large tiles are also listed with blocks that take one tile after the other, small ones with K in
// slices.
void add_mfma(const Target& target, const Algorithm& base, std::vector<Algorithm>& all) {
  const AlgorithmSpace& space = space_of(target);
  for (const int stages : space.stages) {
    if (!takes_stages(target, base.pipeline, stages)) continue;
    Algorithm a = base;
    a.scheduler = Scheduler::intrawave;
    a.stages = stages;
    all.push_back(a);
    const int outputs = a.tile.m * a.tile.n;
    if (outputs >= kMostHipSliced) {
      a.persistent = true;
      all.push_back(a);
      a.persistent = false;
    }
    if (outputs > kMostHipSliced) continue;
    const auto add = [&](SplitK kind, std::span<const int> counts) {
      a.split_k = kind;
      for (const int slices : counts) {
        a.slices = slices;
        all.push_back(a);
      }
    };
    add(SplitK::ordered, kHipSlices);
    add(SplitK::atomic, kHipAtomicSlices);
  }
}

// Adds the algorithms with the shapes of `base` (tile, wave, warp tile, pipeline). The checks here
// drop illegal shapes early, because testing all of them by the rules would take too long.
void add_variants(const Target& target, const Algorithm& base, std::vector<Algorithm>& all) {
  const Shape3& tile = base.tile;
  const Shape3& warp_tile = base.warp_tile;
  if (base.pipeline == Pipeline::small) return;  // add_small() knows its shapes
  const bool is_tmaws = base.pipeline == Pipeline::tmaws;
  if (is_tmaws && (warp_tile.n != tile.n || base.wave.n != 1)) return;
  if (!is_gpu(target)) {
    if (is_tile_block(warp_tile) == (base.pipeline == Pipeline::amx)) all.push_back(base);
    return;
  }
  if (base.pipeline == Pipeline::stream) return;  // add_stream_kernels() knows its shapes
  if (tile.m % warp_tile.m != 0 || tile.n % warp_tile.n != 0) return;
  const AlgorithmSpace& space = space_of(target);
  if (base.pipeline == Pipeline::cpasync) {
    const bool over_warps =
        tile.m % (base.wave.m * warp_tile.m) == 0 && tile.n % (base.wave.n * warp_tile.n) == 0;
    if (warp_tile.m < device::kWgmmaRows && over_warps) add_cpasync(space, base, all);
  } else if (is_tmaws) {
    if (warp_tile.m != device::kWgmmaRows) return;
    for (const Scheduler scheduler : space.schedulers) {
      const bool pingpong = scheduler == Scheduler::pingpong;
      if (pingpong && base.wave.m != 2) continue;
      if (tile.m % (device::kWgmmaRows * (pingpong ? 1 : base.wave.m)) != 0) continue;
      Algorithm a = base;
      a.scheduler = scheduler;
      add_tmaws(space, a, all);
    }
  } else if (tile::is_mfma(base.pipeline)) {
    add_mfma(target, base, all);
  }
}

// The rows of GPUs list tiles for 16-bit operands. Other operands keep the number of bytes along k.
Shape3 tile_for(const Shape3& tile, const Target& target, DType operand) {
  if (!is_gpu(target)) return tile;
  return {tile.m, tile.n, tile.k * 2 / size_of(operand)};
}

// The product of the target's value lists. Algorithms that differ in their shapes only are in name
// order.
std::vector<Algorithm> algorithms_of(const Target& target, DType operand) {
  const AlgorithmSpace& space = space_of(target);
  std::vector<Shape3> tiles;
  for (const Shape3& tile : space.tiles) tiles.push_back(tile_for(tile, target, operand));
  std::vector<Algorithm> all;
  tile::for_each_shape(space, tiles, warp_tiles_for(space, operand),
                       [&](const Algorithm& shape) { add_variants(target, shape, all); });
  const bool on_hip = target.backend == "hip";
  if (on_hip && tile::has_pipeline(Op::gemm, target, Pipeline::direct)) {
    all.push_back(kGeneralOnHip);
  }
  return all;
}

// ---- signatures ----

GemmSignature standard_signature(DType operand, GemmLayout layout) {
  return std::get<GemmSignature>(signature_of(gemm_problem(operand, layout, 0, 0, 0)));
}

GemmSignature with_chain(GemmSignature signature, const Epilogue& chain) {
  const bool fused = num_ops(chain) > 0;
  // int32 takes no epilogue.
  if (fused && signature.out == DType::int32) signature.out = signature.d = DType::fp32;
  signature.epilogue = chain;
  return signature;
}

// The signatures of an operand type and a layout: standard, one for each listed epilogue,
// preshuffled.
std::vector<GemmSignature> signatures_of(DType operand, GemmLayout layout, const Target& target) {
  const GemmSignature standard = standard_signature(operand, layout);
  std::vector<GemmSignature> all = {standard};
  const std::span<const std::string_view> epilogues(kEpilogues);
  for (const std::string_view text :
       target.backend == "hip" ? epilogues.first(kHipEpilogues) : epilogues) {
    all.push_back(with_chain(standard, parse_epilogue(text)));
  }
  all.push_back(standard);
  all.back().preshuffled_b = true;
  return all;
}

// Wishes as enumeration reads them. When a wish names an epilogue, which need not be a listed one,
// `chains` holds every epilogue that the wishes accept; otherwise it is empty.
struct Wanted {
  WishList fields;
  WishList fields_but_variant;
  std::vector<Epilogue> chains;
};

bool is_chain(const Wish& wish) {
  return wish.field == "epilogue" && !wish.pattern.empty() &&
         wish.pattern.find('*') == std::string::npos;
}

Wanted read_wishes(std::span<const Wish> wishes) {
  std::vector<Wish> but_variant(wishes.begin(), wishes.end());
  std::erase_if(but_variant, [](const Wish& wish) { return wish.field == "variant"; });
  Wanted wanted = {WishList(family(), wishes), WishList(family(), but_variant), {}};
  const auto add = [&](const Epilogue& chain) {
    auto& all = wanted.chains;
    if (std::find(all.begin(), all.end(), chain) == all.end()) all.push_back(chain);
  };
  for (const Wish& wish : wishes) {
    if (is_chain(wish)) add(parse_epilogue(wish.pattern));
  }
  if (wanted.chains.empty()) return wanted;
  for (const std::string_view text : kEpilogues) {
    if (wanted.fields.accepts_word("epilogue", text)) add(parse_epilogue(text));
  }
  return wanted;
}

// Whether an epilogue named by a wish is given to kernels of the bare signature. Standard kernels
// take it when the wishes accept "standard" or "multi_d", preshuffled kernels only when a wish
// accepts "preshuffle".
bool takes_chain(const WishList& wanted, const GemmSignature& bare) {
  constexpr std::string_view kField = "variant";
  if (bare.preshuffled_b) return wanted.has(kField) && wanted.accepts_word(kField, "preshuffle");
  return wanted.accepts_word(kField, "standard") || wanted.accepts_word(kField, "multi_d");
}

std::vector<GemmSignature> wanted_signatures(DType operand, GemmLayout layout, const Target& target,
                                             const Wanted& wanted) {
  std::vector<GemmSignature> all = signatures_of(operand, layout, target);
  if (wanted.chains.empty()) {
    std::erase_if(all, [&](const GemmSignature& s) { return !wanted.fields.accepts(s); });
    return all;
  }
  std::vector<GemmSignature> chained;
  for (const GemmSignature& bare : all) {
    if (num_ops(bare.epilogue) > 0 || !takes_chain(wanted.fields, bare)) continue;
    for (const Epilogue& chain : wanted.chains) {
      const GemmSignature signature = with_chain(bare, chain);
      if (wanted.fields_but_variant.accepts(signature)) chained.push_back(signature);
    }
  }
  return chained;
}

bool same_but_epilogue(GemmSignature a, const GemmSignature& b) {
  a.epilogue = b.epilogue;
  return a == b;
}

std::vector<Algorithm> legal_algorithms(const std::vector<Algorithm>& all,
                                        const GemmSignature& signature, const Target& target) {
  std::vector<Algorithm> legal;
  for (const Algorithm& a : all) {
    if (is_legal_quick({signature, a, target})) legal.push_back(a);
  }
  return legal;
}

// The listed epilogues do not change which algorithms are legal, so each list of algorithms is made
// once for all of them. An epilogue that a wish names may be illegal, so its list is made anew.
void add_specs(std::span<const GemmSignature> signatures, const std::vector<Algorithm>& all,
               const Target& target, const Wanted& wanted, std::vector<KernelSpec>& specs) {
  std::vector<Algorithm> legal;
  const GemmSignature* made_for = nullptr;
  for (const GemmSignature& signature : signatures) {
    const bool same = made_for != nullptr && same_but_epilogue(*made_for, signature);
    if (!same || !wanted.chains.empty()) legal = legal_algorithms(all, signature, target);
    made_for = &signature;
    for (const Algorithm& a : legal) specs.push_back({signature, a, target.name});
  }
}

// The algorithms, and those of which each layout has its own: for short calls, fitted ones, and
// those for few rows.
std::vector<Algorithm> with_own(const std::vector<Algorithm>& all, const GemmSignature& signature,
                                const Target& target, const Wanted& wanted) {
  std::vector<Algorithm> more = all;
  add_small(signature, target, more);
  std::erase_if(more, [&](const Algorithm& a) {
    return a.pipeline == Pipeline::small && !wanted.fields.accepts(a);
  });
  std::vector<Algorithm> fitted;
  add_fitted(signature, target, all_fitted_sides(), fitted);
  add_all_stream_kernels(target, signature.a, fitted);
  std::copy_if(fitted.begin(), fitted.end(), std::back_inserter(more),
               [&](const Algorithm& a) { return wanted.fields.accepts(a); });
  return more;
}

// Calls visit(signatures, algorithms) for each pair of operand type and layout, with the signatures
// and algorithms that pass the wishes.
template <class Visit>
void for_each_wanted(const Target& target, const Wanted& wanted, Visit&& visit) {
  const AlgorithmSpace& space = space_of(target);
  for (const DType operand : kOperands) {
    if (!space.warp_tiles.contains(operand)) continue;
    std::vector<Algorithm> all;
    for (const GemmLayout layout : kLayouts) {
      const auto signatures = wanted_signatures(operand, layout, target, wanted);
      if (signatures.empty()) continue;
      if (all.empty()) {
        all = algorithms_of(target, operand);
        std::erase_if(all, [&](const Algorithm& a) { return !wanted.fields.accepts(a); });
      }
      visit(signatures, with_own(all, signatures.front(), target, wanted));
    }
  }
}

// The two cpasync shapes, for small and for large problems, that are used when nothing better is
// known.
constexpr int kSmallSide = 64;
constexpr int kGeneralStages = 3;
bool is_general(const Algorithm& a, const GemmProblem& p) {
  if (a.pipeline == Pipeline::direct) return true;
  const bool small = p.m <= kSmallSide || p.n <= kSmallSide;
  const int side = small ? 64 : 128;
  const Shape3 wave = small ? Shape3{2, 2, 1} : Shape3{2, 4, 1};
  return a.pipeline == Pipeline::cpasync && a.tile.m == side && a.tile.n == side &&
         a.wave == wave && a.stages == kGeneralStages;
}

// A legal kernel that supports the problem: a general one if there is one, otherwise the first.
std::optional<KernelSpec> general_gpu(const GemmSignature& signature, const Problem& problem,
                                      const Target& target) {
  std::optional<KernelSpec> any;
  for (const Algorithm& a : algorithms_of(target, signature.a)) {
    const bool best = is_general(a, std::get<GemmProblem>(problem));
    if (any && !best) continue;
    KernelSpec spec = {signature, a, target.name};
    if (!is_legal_quick({signature, a, target}) || !supports(spec, problem, target)) continue;
    if (best) return spec;
    any = std::move(spec);
  }
  return any;
}

// The algorithms of CPUs differ in their shapes only.
tile::ListOrder order_on(const Target& target) {
  return is_gpu(target) ? tile::ListOrder::any : tile::ListOrder::by_name;
}

std::vector<Algorithm> algorithms_for(const Problem& problem, const Target& target) {
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  std::vector<Algorithm> all = algorithms_of(target, signature.a);
  add_small(signature, target, all);
  const auto& p = std::get<GemmProblem>(problem);
  if (is_gpu(target)) add_stream_kernels(target, signature.a, std::min(p.m, p.n), all);
  if (std::min(p.m, p.n) > kSkinnyTile) {
    const std::vector<int> sides = p.m <= p.n ? fitted_sides(p.m) : std::vector<int>();
    add_fitted(signature, target, sides, all);
  }
  // When no operand needs repacking, a kernel with repack does the same as the one without.
  const TmawsCopies copies = tmaws_copies(p);
  if (!copies.a && !copies.b) std::erase_if(all, [](const Algorithm& a) { return a.repack; });
  return all;
}

}  // namespace

std::vector<KernelSpec> enumerate(const Target& target, std::span<const Wish> wishes) {
  const Wanted wanted = read_wishes(wishes);
  std::vector<KernelSpec> specs;
  for_each_wanted(target, wanted, [&](const auto& signatures, const auto& algorithms) {
    add_specs(signatures, algorithms, target, wanted, specs);
  });
  std::erase_if(specs, [&](const KernelSpec& spec) { return !wanted.fields.accepts_name(spec); });
  tile::sort_by_name(specs);
  return specs;
}

std::vector<KernelSpec> combinations(const Target& target, std::span<const Wish> wishes,
                                     std::size_t most) {
  const Wanted wanted = read_wishes(wishes);
  std::vector<KernelSpec> specs;
  for_each_wanted(target, wanted, [&](const auto& signatures, const auto& algorithms) {
    for (const GemmSignature& signature : signatures) {
      for (const Algorithm& a : algorithms) {
        if (specs.size() == most) return;
        KernelSpec spec = {signature, a, target.name};
        if (wanted.fields.accepts_name(spec)) specs.push_back(std::move(spec));
      }
    }
  });
  return specs;
}

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return tile::specs_for(problem, target, algorithms_for(problem, target), order_on(target));
}

std::vector<KernelSpec> legal_candidates(const Problem& problem, const Target& target) {
  return tile::legal_specs_for(family(), problem, target, algorithms_for(problem, target),
                               order_on(target));
}

KernelSpec general(const Problem& problem, const Target& target) {
  const AlgorithmSpace& space = space_of(target);
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  if (!is_gpu(target)) {
    Algorithm a = {.pipeline = Pipeline::packab, .wave = {0, 0, 1}};
    for (const Shape3& warp_tile : warp_tiles_for(space, signature.a)) {
      for (const Shape3& tile : space.tiles) {
        a.tile = tile;
        a.warp_tile = warp_tile;
        if (is_legal_quick({signature, a, target})) return {signature, a, target.name};
      }
    }
  }
  if (is_gpu(target)) {
    if (std::optional<KernelSpec> spec = general_gpu(signature, problem, target)) return *spec;
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("gemm: {} lists no legal kernel for {} x {} with layout {}", target.name,
                  to_string(signature.a), to_string(signature.b), to_string(signature.layout)));
}

std::vector<KernelSpec> preselected(std::string_view set, const Target& target) {
  return tile::preselected(Op::gemm, set, target, is_legal);
}
std::vector<std::string> preselected_names() { return tile::preselected_names(Op::gemm); }
bool is_essential(const KernelSpec& spec, const Target& target) {
  return tile::is_essential(Op::gemm, spec, target);
}

}  // namespace tessera::gemm
