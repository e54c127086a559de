// Our own kernels for AMD GPUs (src/tessera/device/hip/gemm/) by matrix instructions: MFMA of CDNA,
// WMMA of RDNA.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

using tile::block_lanes;
using tile::mfma_depth;
using tile::mfma_tiles;

constexpr int kMaxTileSide = 256;
constexpr int kMostStreamedSums = 128;
constexpr int kMostSumsOfMem = 64;  // of a lane; clang 22 spills with some of 128
constexpr int kMaxTileBytes = 512;  // along k
constexpr std::int64_t kMostCount = (std::int64_t{1} << 31) - 1024;  // leaves room for a tile
constexpr std::int64_t kMostTileBytes = (std::int64_t{1} << 31) - 1024;

device::MfmaShape shape_of(const Case& c) {
  device::MfmaShape shape = tile::mfma_shape(
      c.algorithm, mfma_operands(c.signature, c.algorithm.pipeline), c.target.warp_size);
  shape.scales = scale_registers(c, shape);
  return shape;
}
int registers(const Case& c) { return device::mfma_registers(shape_of(c)); }
int lds_bytes(const Case& c) { return device::mfma_lds_bytes(shape_of(c)); }

int sums_of_lane(const Case& c) {
  return c.algorithm.tile.m * c.algorithm.tile.n / block_lanes(c.algorithm, c.target);
}
// With waves of 32 lanes clang 22 needs more for two tiles under way than are counted.
constexpr int kMoreOfMem = 44;
int registers_left(const Case& c) {
  const bool needs_more =
      c.algorithm.pipeline == Pipeline::mem && c.target.warp_size != tile::kWaveLanes;
  return tile::lane_registers_left(c.algorithm, c.target) - (needs_more ? kMoreOfMem : 0);
}

// WMMA has one side.
bool is_side(const Case& c, int side) {
  return side == 16 || (side == 32 && c.target.warp_size == tile::kWaveLanes);
}
int depth_of(const Case& c, int side) {
  return mfma_depth(side, size_of(c.signature.a), c.target.warp_size);
}
bool warp_tile_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  if (mx_warp_tile_fits(c)) return true;
  return w.m == w.n && is_side(c, w.m) && w.k == depth_of(c, w.m) && warp_tile_listed(c);
}
std::string warp_tile_does_not_fit(const Case& c) {
  const bool only_ck = c.target.cktile_spaces.contains(Op::gemm) &&
                       warp_tile_listed({c.signature, c.algorithm, c.target, true});
  const std::string large =
      is_side(c, 32) ? fmt::format("32x32x{} and ", depth_of(c, 32)) : std::string();
  return fmt::format("warp tiles of {} are {}16x16x{}, got {}{}", to_string(c.signature.a), large,
                     depth_of(c, 16), to_string(c.algorithm.warp_tile), only_ck ? kOnlyCktile : "");
}
// A row of a tile in LDS is a power of two of chunks of 16 bytes, and the lanes of a block move
// whole rounds of chunks.
int row_chunks(const Case& c) {
  return c.algorithm.tile.k * size_of(c.signature.a) / tile::kLaneBytes;
}
bool row_fits(const Case& c) {
  return c.algorithm.tile.k * size_of(c.signature.a) % tile::kLaneBytes == 0 &&
         std::has_single_bit(static_cast<unsigned>(row_chunks(c)));
}

// async copies to LDS as the lanes lie, and all lanes copy. Operands whose k is not contiguous are
// transposed by reads from LDS, of 16 or 8 bits, whose lines the template exchanges in parts.
bool transposes_by_reads(const Case& c) {
  const GemmSignature& s = c.signature;
  const bool is_line = a_is_row_major(s.layout) && (s.preshuffled_b || !b_is_row_major(s.layout));
  return c.algorithm.pipeline == Pipeline::async && !is_line;
}
constexpr int kLeastLineBytes = 64;  // of rows, in a line of a tile
int line_bytes_that_do_not_fit(const Case& c) {
  const GemmSignature& s = c.signature;
  const int a = a_is_row_major(s.layout) ? 0 : c.algorithm.tile.m * size_of(s.a);
  const int b =
      s.preshuffled_b || !b_is_row_major(s.layout) ? 0 : c.algorithm.tile.n * size_of(s.b);
  for (const int bytes : {a, b}) {
    const bool fits = bytes >= kLeastLineBytes && std::has_single_bit(static_cast<unsigned>(bytes));
    if (bytes > 0 && !fits) return bytes;
  }
  return 0;
}
int unmoved_side(const Case& c) {
  const int lanes = block_lanes(c.algorithm, c.target);
  for (const int side : {c.algorithm.tile.m, c.algorithm.tile.n}) {
    if (side * row_chunks(c) % lanes != 0) return side;
  }
  return 0;
}
bool copies_whole_rounds(const Case& c) {
  return c.algorithm.pipeline != Pipeline::async || unmoved_side(c) == 0;
}

// The steps of the tiles that blocks share are counted in 32 bits.
constexpr std::int64_t kMostStreamedSteps = std::int64_t{1} << 20;

Verdict far_rows(std::string_view name, std::int64_t ld, std::int64_t most) {
  return {
      fmt::format("ld_{} must be at most {} for the rows of a tile, got {}; use a direct kernel",
                  name, most, ld)};
}

constexpr Rule kMfmaRules[] = {
    {[](const Case& c) { return tile::first_broken(mfma_scale_rules(), c) == nullptr; },
     [](const Case& c) { return tile::first_broken(mfma_scale_rules(), c)->sentence(c); }},
    {has_matrix, [](const Case& c) { return no_instruction(c, matrix_name(c)); }},
    kStagesRule,
    kUnusedFieldsRule,
    {[](const Case& c) { return c.algorithm.scheduler == Scheduler::intrawave; },
     [](const Case& c) {
       const bool only_ck = c.algorithm.scheduler == Scheduler::interwave;
       return fmt::format("kernels for AMD GPUs are scheduled intrawave, got {}{}",
                          to_string(c.algorithm.scheduler), only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return c.algorithm.store == Store::standard; },
     [](const Case& c) {
       const bool only_ck = c.algorithm.store == Store::cshuffle;
       return fmt::format("kernels for AMD GPUs have the standard store, got {}{}",
                          to_string(c.algorithm.store), only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return c.algorithm.splits == 1; },
     [](const Case& c) {
       return fmt::format("kernels for AMD GPUs cut K into slices: splits must be 1, got {}{}",
                          c.algorithm.splits, kOnlyCktile);
     }},
    kSlicesRule,
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !a.streamk || (a.split_k == SplitK::ordered && a.slices == 1 && !a.persistent);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "streamk cuts K where blocks run out of tiles, adds in order and takes several tiles: "
           "it "
           "needs split_k=ordered slices=1 persistent=false, got split_k={} slices={} "
           "persistent={}",
           to_string(a.split_k), a.slices, a.persistent);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !has_groups(c.signature) || (a.slices == 1 && !a.streamk && !a.persistent);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "workgroups take one tile of groups after the other and share no k: grouping={} needs "
           "slices=1 streamk=false persistent=false, got slices={} streamk={} persistent={}",
           to_string(c.signature.grouping), a.slices, a.streamk, a.persistent);
     }},
    {[](const Case& c) {
       return !has_outputs(c.signature) || (c.algorithm.slices == 1 && !c.algorithm.streamk);
     },
     [](const Case& c) {
       return fmt::format(
           "workgroups share no k of products with a gate, rows by index or quantised outputs, "
           "which need slices=1 streamk=false, got slices={} streamk={}",
           c.algorithm.slices, c.algorithm.streamk);
     }},
    tile::kRowOf<Case, tile::kMfmaSplitK>,
    tile::kRowOf<Case, tile::kMfmaWaves>,
    {warp_tile_fits, warp_tile_does_not_fit},
    tile::kRowOf<Case, tile::kMfmaCuts>,
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m <= kMaxTileSide && t.n <= kMaxTileSide &&
              t.k * size_of(c.signature.a) <= kMaxTileBytes;
     },
     [](const Case& c) {
       return fmt::format("tiles are at most {0}x{0} and {1} bytes of k, got {2} of {3}",
                          kMaxTileSide, kMaxTileBytes, to_string(c.algorithm.tile),
                          to_string(c.signature.a));
     }},
    {row_fits,
     [](const Case& c) {
       return fmt::format(
           "a row of a tile must be 16 bytes times a power of two, got {} x {} bytes ({})",
           c.algorithm.tile.k, size_of(c.signature.a), to_string(c.signature.a));
     }},
    {[](const Case& c) { return !transposes_by_reads(c) || size_of(c.signature.a) <= 2; },
     [](const Case& c) {
       return fmt::format(
           "reads from LDS transpose elements of 16 and 8 bits for async and {}, got {}",
           to_string(c.signature.layout), to_string(c.signature.a));
     }},
    {[](const Case& c) { return !transposes_by_reads(c) || line_bytes_that_do_not_fit(c) == 0; },
     [](const Case& c) {
       return fmt::format(
           "async and {} need {} bytes of rows in a line of a tile, or that times a power of two, "
           "got {} (tile {} of {})",
           to_string(c.signature.layout), kLeastLineBytes, line_bytes_that_do_not_fit(c),
           to_string(c.algorithm.tile), to_string(c.signature.a));
     }},
    {copies_whole_rounds,
     [](const Case& c) {
       return fmt::format(
           "{} lanes copy whole rounds of 16 bytes, which {} rows of {} such chunks are not",
           block_lanes(c.algorithm, c.target), unmoved_side(c), row_chunks(c));
     }},
    {[](const Case& c) {
       return c.algorithm.pipeline != Pipeline::mem || sums_of_lane(c) <= kMostSumsOfMem;
     },
     [](const Case& c) {
       return fmt::format(
           "mem has two tiles in registers beside at most {} sums a lane, got {} ({}x{} over {} "
           "lanes)",
           kMostSumsOfMem, sums_of_lane(c), c.algorithm.tile.m, c.algorithm.tile.n,
           block_lanes(c.algorithm, c.target));
     }},
    {[](const Case& c) { return !c.algorithm.streamk || sums_of_lane(c) <= kMostStreamedSums; },
     [](const Case& c) {
       return fmt::format(
           "streamk adds up parts of at most {} sums a lane, got {} ({}x{} over {} lanes)",
           kMostStreamedSums, sums_of_lane(c), c.algorithm.tile.m, c.algorithm.tile.n,
           block_lanes(c.algorithm, c.target));
     }},
    {[](const Case& c) { return registers(c) <= registers_left(c); },
     [](const Case& c) {
       return fmt::format(
           "needs about {} registers a lane ({}x{} sums over {} lanes and the rest), {} leaves {} "
           "to each of {} waves",
           registers(c), c.algorithm.tile.m, c.algorithm.tile.n, block_lanes(c.algorithm, c.target),
           c.target.name, registers_left(c), tile::all_waves(c.algorithm));
     }},
    {[](const Case& c) { return lds_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS for {} tile{} of K, {} has {}", lds_bytes(c),
                          mfma_tiles(c.algorithm).buffers,
                          mfma_tiles(c.algorithm).buffers == 1 ? "" : "s", c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// All kernels but direct count sizes, tiles and bytes within a tile in 32 bits.
Served mfma_served(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Shape3& tile = spec.algorithm.tile;
  const std::int64_t rows_a = a_is_row_major(s.layout) ? tile.m : tile.k;
  const std::int64_t rows_b = b_is_row_major(s.layout) ? tile.k : tile.n;
  return {.most_size = kMostCount,
          .most_tiles = kMostCount,
          .most_ld_a = kMostTileBytes / rows_a / size_of(s.a),
          .most_ld_b = kMostTileBytes / rows_b / size_of(s.b)};
}

Verdict mfma_serves(const KernelSpec& spec, const GemmProblem& p, const Target&) {
  const Algorithm& a = spec.algorithm;
  const Served served = mfma_served(spec);
  if (Verdict fits = parts_fit(a, p); !fits) return fits;
  if (Verdict fits = outputs_serve_on_gpus(p); !fits) return fits;
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}, {"groups", p.groups}};
  for (const auto& [name, size] : sizes) {
    if (size > served.most_size) {
      return {fmt::format("{} must be at most {} with {}, got {}; use a direct kernel", name,
                          served.most_size, to_string(a.pipeline), size)};
    }
  }
  const std::int64_t steps = tiles(p.k, a.tile.k);
  if (a.streamk && steps > kMostStreamedSteps) {
    return {fmt::format("streamk takes at most {} tiles of {} along K, got {} of k={}",
                        kMostStreamedSteps, a.tile.k, steps, p.k)};
  }
  const double blocks = std::ceil(static_cast<double>(p.m) / a.tile.m) *
                        std::ceil(static_cast<double>(p.n) / a.tile.n) *
                        static_cast<double>(p.batch) * a.slices;
  if (blocks > static_cast<double>(served.most_tiles)) {
    return {fmt::format("{} counts tiles up to {}, got about {:.0f} of {}x{}; use a direct kernel",
                        to_string(a.pipeline), served.most_tiles, blocks, a.tile.m, a.tile.n)};
  }
  if (p.ld_a > served.most_ld_a) return far_rows("a", p.ld_a, served.most_ld_a);
  if (!p.preshuffled_b && p.ld_b > served.most_ld_b) return far_rows("b", p.ld_b, served.most_ld_b);
  return {};
}

// ---- algorithms ----

constexpr int kHipSlices[] = {2, 4, 8, 16};
constexpr int kHipAtomicSlices[] = {4, 16};
constexpr int kMostHipSliced = 128 * 128;  // outputs of a tile; larger tiles are not sliced

// The stages that a pipeline of AMD's GPUs takes, as its row has them.
bool takes_stages(const Target& target, Pipeline pipeline, int stages) {
  const auto found = target.pipeline_limits.find(pipeline);
  return found != target.pipeline_limits.end() && stages >= found->second.min_stages &&
         stages <= found->second.max_stages;
}

// Large tiles are also listed with blocks that take one tile after the other, and the largest with
// blocks that share the steps of the last tiles; small ones with K in slices.
void mfma_variants(const Target& target, const Algorithm& base, std::vector<Algorithm>& all) {
  if (base.tile.m % base.warp_tile.m != 0 || base.tile.n % base.warp_tile.n != 0) return;
  const AlgorithmSpace& space = tile::space_of(Op::gemm, target);
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
    if (outputs > kMostHipSliced) {  // small tiles leave little of a wave over
      a.streamk = true;
      a.split_k = SplitK::ordered;
      all.push_back(a);
      continue;
    }
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

// ---- launch ----

using device::HipGemmArguments;

constexpr int kSumBytes = 4;
constexpr std::int64_t kMostThreads = std::numeric_limits<std::uint32_t>::max();  // of a grid

// Reserves the partial sums: one for each slice of each tile, or with atomic adds one for all
// slices, which starts at zero.
void add_partial_sums(const Algorithm& a, std::int64_t all_tiles, HipGemmArguments& arguments,
                      Launch& launch) {
  const bool atomic = a.split_k == SplitK::atomic;
  arguments.partial_sums = device::kHipCounterBytes;
  arguments.partial_bytes = all_tiles * (atomic ? 1 : a.slices) * a.tile.m * a.tile.n * kSumBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(arguments.partial_sums + arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kHipCounterBytes;
  launch.workspace.clear_bytes = atomic ? static_cast<std::size_t>(arguments.partial_bytes) : 0;
  launch.workspace.address_offset = offsetof(HipGemmArguments, workspace);
}

// Reserves two places for sums of each block: stream_place() of device/stream_work.h.
void add_places(const Algorithm& a, std::int64_t blocks, HipGemmArguments& arguments,
                Launch& launch) {
  arguments.partial_sums = device::kHipCounterBytes;
  arguments.partial_bytes = 2 * blocks * a.tile.m * a.tile.n * kSumBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(arguments.partial_sums + arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kHipCounterBytes;
  launch.workspace.address_offset = offsetof(HipGemmArguments, workspace);
}

// All tiles of the output, or `most` where there are more.
std::int64_t tiles_up_to(const GemmProblem& p, const Algorithm& a, std::int64_t most) {
  std::int64_t all = 1;
  for (const std::int64_t count : {tiles(p.m, a.tile.m), tiles(p.n, a.tile.n), p.batch}) {
    if (count == 0) return 0;
    all = count > most / all ? most : all * count;
  }
  return all;
}

}  // namespace

Launch bind_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;
  HipGemmArguments arguments{};
  arguments.gemm = g;
  arguments.raster_group = kRasterGroup;
  drop_unused_strides(arguments.gemm);
  const std::int64_t most_blocks = kMostThreads / tile::block_lanes(a, target);
  const std::int64_t all_tiles = tiles_up_to(p, a, most_blocks);
  const std::int64_t steps = tiles(p.k, a.tile.k);
  if (a.slices > 1 && !is_empty) add_partial_sums(a, all_tiles, arguments, launch);
  const std::int64_t blocks = a.streamk ? stream_blocks(target, all_tiles, steps)
                                        : std::min(all_tiles * a.slices, most_blocks);
  if (a.streamk && !is_empty) add_places(a, blocks, arguments, launch);
  arguments.blocks = static_cast<int>(blocks);
  launch.arguments.set(arguments);
  list_pointers(p, g, launch);
  if (is_empty) return launch;
  if (a.persistent) launch.blocks_offset = offsetof(HipGemmArguments, blocks);
  launch.steps.push({.extent = a.persistent ? Step::Extent::resident : Step::Extent::exact,
                     .grid = {static_cast<unsigned>(blocks), 1, 1},
                     .block = {static_cast<unsigned>(tile::block_lanes(a, target)), 1, 1}});
  return launch;
}

namespace {

// As in src/tessera/device/hip/gemm/mfma_pack.h.
constexpr unsigned kHipPackThreads = 256;
constexpr std::int64_t kHipPackedPiece = 16;          // bytes that a thread writes at a time
constexpr std::int64_t kMostHipPackBlocks = 1 << 11;  // the kernel is told how many there are

// Tiles as they lie in LDS.
std::int64_t mfma_packed_bytes(const KernelSpec& spec, const GemmProblem& p) {
  const Algorithm& a = spec.algorithm;
  return tiles(p.n, a.tile.n) * tiles(p.k, a.tile.k) * a.tile.n * a.tile.k * size_of(p.b);
}

// The entry takes the address of the packed B as its second parameter.
Launch pack_on_hip(const GemmProblem& p, const void* b, void* packed, std::int64_t bytes) {
  Launch launch;
  const auto blocks = static_cast<unsigned>(
      std::min(tiles(bytes, kHipPackThreads * kHipPackedPiece), kMostHipPackBlocks));
  device::HipGemmArguments arguments{};
  arguments.gemm = gemm_arguments(p, {.b = b});
  arguments.blocks = static_cast<int>(blocks);
  launch.arguments.set(arguments);
  launch.arguments.add(packed);
  launch.steps.push(
      {.entry = kPackEntry, .grid = {blocks, 1, 1}, .block = {kHipPackThreads, 1, 1}});
  launch.pointers.push(b);
  launch.pointers.push(packed);
  return launch;
}

constexpr Way mfma_way(Pipeline pipeline) {
  return {.backend = "hip",
          .pipeline = pipeline,
          .rules = kMfmaRules,
          .serves = mfma_serves,
          .emit = emit_hip,
          .bind = bind_hip,
          .estimate = estimate_hip,
          .own = {.add_variants = mfma_variants,
                  .add_own = pipeline == Pipeline::compv3 ? add_mx : nullptr,
                  .packed_bytes = mfma_packed_bytes,
                  .pack = pack_on_hip,
                  .bind_groups = bind_groups_on_hip,
                  .runs_lists = true,
                  .bind_outputs = bind_outputs_on_hip,
                  .bind_scaled = bind_scaled_on_hip,
                  .scales_outputs = true,
                  .served = mfma_served}};
}

}  // namespace

const Way kCompv3 = mfma_way(Pipeline::compv3), kCompv4 = mfma_way(Pipeline::compv4),
          kMem = mfma_way(Pipeline::mem), kAsync = mfma_way(Pipeline::async);

}  // namespace tessera::gemm
