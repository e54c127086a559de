// The rules of every kernel, and those that several ways have.
#include "tessera/families/gemm/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/cuda/abi.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/candidates.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

constexpr int kMaxWave = 1024;  // threads of a CPU along one dimension
constexpr std::int64_t kMaxPackedBytes = std::int64_t{1} << 30;
constexpr int kMaxWarps = 64;   // warps along one side of a block
constexpr int kMaxSlices = 64;  // slices of K that are added through device memory

// Of a block of A and a block of B. The k of a product of tiles is a row of words.
std::int64_t panel_bytes(const Case& c, int words_of_step) {
  const Shape3& t = c.algorithm.tile;
  const std::int64_t elements = std::int64_t{t.k} * t.m + std::int64_t{t.k} * t.n;
  return elements / c.algorithm.warp_tile.k * words_of_step * 4;
}

constexpr int kMaxTile = 65536;

// ---- rules of every machine ----

bool all_at_least(const Shape3& shape, int least) {
  return shape.m >= least && shape.n >= least && shape.k >= least;
}
bool all_at_most(const Shape3& shape, int most) {
  return shape.m <= most && shape.n <= most && shape.k <= most;
}

std::string not_a_multiple(const Shape3& tile, const Shape3& unit) {
  constexpr std::string_view kRule = "tile_{0} {1} is not a multiple of warp_tile_{0} {2}";
  if (tile.m % unit.m != 0) return fmt::format(fmt::runtime(kRule), 'm', tile.m, unit.m);
  if (tile.n % unit.n != 0) return fmt::format(fmt::runtime(kRule), 'n', tile.n, unit.n);
  return fmt::format(fmt::runtime(kRule), 'k', tile.k, unit.k);
}

bool lists_pipeline(const Case& c) {
  const AlgorithmSpace* space = find_space(c);
  if (space == nullptr) return false;
  const auto& all = space->pipelines;
  return std::find(all.begin(), all.end(), c.algorithm.pipeline) != all.end();
}

const Types::Own* find_own(const Case& c) {
  const Way* const way = c.by_cktile ? nullptr : tile::find_way<Types>(c);
  return way == nullptr ? nullptr : &way->own;
}

bool runs_groups(const Case& c) {
  const Types::Own* const own = find_own(c);
  return own != nullptr && own->bind_groups != nullptr;
}

bool runs_lists(const Case& c) {
  const Types::Own* const own = find_own(c);
  return own != nullptr && own->runs_lists;
}

// What signatures may have that only some ways serve.
struct Ask {
  bool (*asks)(const GemmSignature&);
  bool (*serves)(const Types::Own&);
  std::string_view what;
};
bool binds_scaled(const Types::Own& own) { return own.bind_scaled != nullptr; }
bool binds_outputs(const Types::Own& own) { return own.bind_outputs != nullptr; }
constexpr Ask kAsks[] = {
    {has_scales, binds_scaled, "block scales"},
    {[](const GemmSignature& s) { return s.gate != GemmGate::none; }, binds_outputs, "gates"},
    {[](const GemmSignature& s) { return s.indexing != GemmIndexing::none; }, binds_outputs,
     "rows by index"},
    {[](const GemmSignature& s) { return s.quant != NormQuant::none; }, binds_outputs,
     "quantised outputs"},
    {[](const GemmSignature& s) { return has_scales(s) && has_outputs(s); },
     [](const Types::Own& own) { return own.scales_outputs; },
     "block scales beside a gate, rows by index or quantised outputs"},
};

const Ask* unserved(const Case& c) {
  if (!has_extras(c.signature)) return nullptr;
  const Types::Own* const own = find_own(c);
  for (const Ask& ask : kAsks) {
    if (ask.asks(c.signature) && (own == nullptr || !ask.serves(*own))) return &ask;
  }
  return nullptr;
}

constexpr Rule kCommon[] = {
    {[](const Case& c) { return lists_pipeline(c); },
     [](const Case& c) {
       const bool only_ck =
           !c.by_cktile && lists_pipeline({c.signature, c.algorithm, c.target, true});
       return fmt::format("{} has no pipeline {}{}", c.target.name, to_string(c.algorithm.pipeline),
                          only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return static_cast<bool>(types_fit(c.signature)); },
     [](const Case& c) { return types_fit(c.signature).reason; }},
    {[](const Case& c) { return static_cast<bool>(epilogue_fits(c.signature)); },
     [](const Case& c) { return epilogue_fits(c.signature).reason; }},
    {[](const Case& c) {
       return all_at_least(c.algorithm.tile, 1) && all_at_most(c.algorithm.tile, kMaxTile);
     },
     [](const Case& c) {
       return fmt::format("tile sizes must be between 1 and {}, got {}", kMaxTile,
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return all_at_least(c.algorithm.warp_tile, 1); },
     [](const Case& c) {
       return fmt::format("warp tile sizes must be at least 1, got {}",
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const Shape3& tile = c.algorithm.tile;
       const Shape3& unit = c.algorithm.warp_tile;
       return tile.m % unit.m == 0 && tile.n % unit.n == 0 && tile.k % unit.k == 0;
     },
     [](const Case& c) { return not_a_multiple(c.algorithm.tile, c.algorithm.warp_tile); }},
    {[](const Case& c) { return c.by_cktile || tile::find_way<Types>(c) != nullptr; },
     [](const Case& c) {
       return fmt::format("{} is not a pipeline of {}", to_string(c.algorithm.pipeline),
                          backend_facts(c.target).plural);
     }},
    {[](const Case& c) { return c.signature.grouping == GemmGrouping::none || runs_groups(c); },
     [](const Case& c) {
       return fmt::format("{} has no {} kernels for groups of unequal sizes, got grouping={}",
                          c.target.name, to_string(c.algorithm.pipeline),
                          to_string(c.signature.grouping));
     }},
    {[](const Case& c) { return c.signature.grouping != GemmGrouping::lists || runs_lists(c); },
     [](const Case& c) {
       return fmt::format(
           "{} has no {} kernels for groups with sizes and pointers of their own, got "
           "grouping=lists",
           c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) {
       return !has_extras(c.signature) || static_cast<bool>(extras_fit(c.signature));
     },
     [](const Case& c) { return extras_fit(c.signature).reason; }},
    {[](const Case& c) { return !c.signature.preshuffled_b || !has_outputs(c.signature); },
     [](const Case&) {
       return std::string(
           "preshuffle must be 0 with a gate, rows by index or quantised outputs, got 1");
     }},
    {[](const Case& c) {
       return !has_outputs(c.signature) || c.algorithm.wave.k == 1 ||
              !backend_facts(c.target).waves_are_threads;
     },
     [](const Case& c) {
       return fmt::format(
           "threads do not share the k of products with a gate, rows by index or quantised "
           "outputs: wave_k must be 1, got {}",
           c.algorithm.wave.k);
     }},
    {[](const Case& c) { return !c.signature.arranged || !c.by_cktile; },
     [](const Case&) { return std::string("CK Tile's kernels arrange no operands"); }},
    {[](const Case& c) {
       const GemmSignature& s = c.signature;
       return !s.arranged ||
              (s.grouping == GemmGrouping::none && !s.preshuffled_b && !has_extras(s));
     },
     [](const Case&) {
       return std::string(
           "arranged operands go with no groups, packed B, scales of blocks, gates, rows by index "
           "or quantised outputs");
     }},
    {[](const Case& c) { return unserved(c) == nullptr; },
     [](const Case& c) {
       return fmt::format("{} has no {} kernels with {}", c.target.name,
                          to_string(c.algorithm.pipeline), unserved(c)->what);
     }},
    {[](const Case& c) {
       return c.signature.grouping == GemmGrouping::none || c.algorithm.wave.k == 1 ||
              !backend_facts(c.target).waves_are_threads;
     },
     [](const Case& c) {
       return fmt::format(
           "threads do not share the k of groups: wave_k must be 1 with grouping={}, "
           "got {}",
           to_string(c.signature.grouping), c.algorithm.wave.k);
     }},
    {[](const Case& c) {
       return c.signature.grouping == GemmGrouping::none || !c.signature.preshuffled_b;
     },
     [](const Case& c) {
       return fmt::format(
           "a preshuffled B has no groups: preshuffle must be 0 with grouping={}, "
           "got 1",
           to_string(c.signature.grouping));
     }},
};

}  // namespace

std::span<const Rule> Types::common_rules() { return kCommon; }

const Instruction* find_instruction_named(const Case& c, std::string_view name) {
  for (const Instruction& i : c.target.instructions) {
    const bool same_types = i.a == c.signature.a && i.b == c.signature.b;
    if (i.name == name && same_types && i.acc == c.signature.acc) return &i;
  }
  // Mixed fp8 and bf8 run at the rate and with the shape of either type.
  const bool mixed = c.signature.a != c.signature.b && size_of(c.signature.a) == 1;
  for (const Instruction& i : c.target.instructions) {
    if (mixed && i.name == name && i.a == c.signature.a && i.acc == c.signature.acc) return &i;
  }
  return nullptr;
}

std::string no_instruction(const Case& c, std::string_view name) {
  return fmt::format("{} has no {} for {} x {}", c.target.name, name, to_string(c.signature.a),
                     to_string(c.signature.b));
}

// The matrix instructions of the target: a wave of 32 lanes is RDNA's.
std::string_view matrix_name(const Case& c) {
  return c.target.warp_size == tile::kWaveLanes ? "mfma" : "wmma";
}
bool has_matrix(const Case& c) { return find_instruction_named(c, matrix_name(c)) != nullptr; }

PipelineLimit limit_of(const Case& c) {
  const auto found = c.target.pipeline_limits.find(c.algorithm.pipeline);
  return found == c.target.pipeline_limits.end() ? PipelineLimit{} : found->second;
}

const AlgorithmSpace* find_space(const Case& c) {
  const auto& spaces = c.by_cktile ? c.target.cktile_spaces : c.target.spaces;
  const auto found = spaces.find(Op::gemm);
  return found == spaces.end() ? nullptr : &found->second;
}

bool warp_tile_listed(const Case& c) {
  const auto& all = warp_tiles_for(*find_space(c), c.signature.a);
  return std::find(all.begin(), all.end(), c.algorithm.warp_tile) != all.end();
}

std::string warp_tile_not_listed(const Case& c) {
  return fmt::format("{} does not list warp tile {} for {}", c.target.name,
                     to_string(c.algorithm.warp_tile), to_string(c.signature.a));
}

bool stages_fit(const Case& c) {
  const PipelineLimit limit = limit_of(c);
  return c.algorithm.stages >= limit.min_stages && c.algorithm.stages <= limit.max_stages;
}
std::string stages_do_not_fit(const Case& c) {
  const PipelineLimit limit = limit_of(c);
  return fmt::format("{} takes {} to {} stages, got {}", to_string(c.algorithm.pipeline),
                     limit.min_stages, limit.max_stages, c.algorithm.stages);
}

bool waves_fit(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  const auto fits = [](int size) { return size >= 1 && size <= kMaxWarps; };
  return fits(w.m) && fits(w.n) && fits(w.k);
}
std::string waves_do_not_fit(const Case& c) {
  return fmt::format("wave sizes must be between 1 and {}, got {}", kMaxWarps,
                     to_string(c.algorithm.wave));
}

bool slices_fit(const Case& c) {
  return c.algorithm.slices >= 1 && c.algorithm.slices <= kMaxSlices;
}
std::string slices_do_not_fit(const Case& c) {
  return fmt::format("K is cut into 1 to {} slices, got {}", kMaxSlices, c.algorithm.slices);
}

bool threads_fit(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  return std::min({w.m, w.n, w.k}) >= 0 && std::max({w.m, w.n, w.k}) <= kMaxWave;
}
std::string threads_do_not_fit(const Case& c) {
  return fmt::format("wave sizes must be between 0 and {}, got {}", kMaxWave,
                     to_string(c.algorithm.wave));
}

bool packed_bytes_fit(const Case& c, int words_of_step) {
  return panel_bytes(c, words_of_step) <= kMaxPackedBytes;
}
std::string packed_bytes_do_not_fit(const Case& c, int words_of_step) {
  return fmt::format("tile {} needs {} bytes for packed blocks, at most {} are allowed",
                     to_string(c.algorithm.tile), panel_bytes(c, words_of_step), kMaxPackedBytes);
}

bool takes_plain_b(const Case& c) { return !c.signature.preshuffled_b; }
std::string takes_no_packed_b(const Case& c) {
  return fmt::format("{} takes B as it is, got a preshuffled one", to_string(c.algorithm.pipeline));
}

// Every block needs a tile of K. Every group of threads that adds up slices needs a counter.
Verdict parts_fit(const Algorithm& a, const GemmProblem& p, int groups_of_tile) {
  if (a.splits * a.slices == 1) return {};
  const std::int64_t steps = tiles(p.k, a.tile.k);
  if (a.slices > 1 && steps < a.splits * a.slices) {
    return {fmt::format("{} x {} parts of K need as many tiles of {}, got {} of k={}", a.splits,
                        a.slices, a.tile.k, steps, p.k)};
  }
  if (a.slices == 1) return {};
  const std::int64_t rows = a.swap_ab ? p.n : p.m;
  const std::int64_t columns = a.swap_ab ? p.m : p.n;
  const double groups = static_cast<double>(tiles(rows, a.tile.m)) *
                        static_cast<double>(tiles(columns, a.tile.n)) *
                        static_cast<double>(p.batch) * groups_of_tile;
  constexpr int kCounters = device::kCounterBytes / 4;
  if (groups <= kCounters) return {};
  return {
      fmt::format("slices of K are added by at most {} groups of threads, {}x{}x{} with tile "
                  "{} has {:.0f}",
                  kCounters, p.m, p.n, p.batch, to_string(a.tile), groups)};
}

bool is_legal_quick(const Case& c) { return tile::broken_rule<Types>(c) == nullptr; }

Verdict is_legal_for_cktile(const KernelSpec& spec, const Target& target) {
  if (std::string why = tile::foreign_reason(Op::gemm, spec, target); !why.empty()) return {why};
  const Case c{std::get<GemmSignature>(spec.signature), spec.algorithm, target, true};
  const Rule* rule = tile::first_broken(kCommon, c);
  if (rule == nullptr) rule = tile::first_broken(cktile_rules(), c);
  return {rule == nullptr ? std::string() : rule->sentence(c)};
}

}  // namespace tessera::gemm
