// Kernels whose warps copy their share of the tiles by cp.async and multiply by mma, for fp32 by
// fma (src/tessera/device/cuda/gemm/{mma,fma}_gemm.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

constexpr int kFmaSlices[] = {2, 4, 8, 16, 32};
constexpr int kMostSliced = 64 * 64;    // outputs of a tile; larger tiles are not sliced
constexpr int kMostAccumulators = 128;  // per thread, without spills
constexpr int kMaxTransposed = 64;      // the same where 8-bit floats are also transposed
constexpr int kMostScaled = 64;         // beside as many of a block of k
constexpr int kMostScaledTransposed = 32;
constexpr int kMmaBytesK = 32;  // bytes along k that one mma takes
constexpr int kMmaRows = 16;    // rows of A and of B that a warp loads at a time
constexpr int kFmaLanesK = 8;   // threads that copy a row of fp32

bool by_fma(const Case& c) { return c.signature.a == DType::fp32; }
std::string_view instruction_name(const Case& c) { return by_fma(c) ? "fma" : "mma"; }

int block_threads(const Case& c) { return tile::block_threads(c.algorithm, c.target); }
int warp_m(const Case& c) { return c.algorithm.tile.m / c.algorithm.wave.m; }
int warp_n(const Case& c) { return c.algorithm.tile.n / c.algorithm.wave.n; }

int max_accumulators(const Case& c) {
  const bool converts = c.signature.a == DType::fp8 || c.signature.a == DType::bf8;
  const bool transposes = c.signature.layout != GemmLayout::rcr;
  const bool both = converts && transposes;
  if (has_scales(c.signature)) return both ? kMostScaledTransposed : kMostScaled;
  return both ? kMaxTransposed : kMostAccumulators;
}
int thread_accumulators(const Case& c) {
  return c.algorithm.tile.m * c.algorithm.tile.n / block_threads(c);
}

// How much k a thread of an fma kernel copies and multiplies without waiting: FmaEngine::kSlotK.
int fma_slot_k(const Case& c) {
  const Algorithm& a = c.algorithm;
  const int written = block_threads(c) * 8 / std::max(1, a.warp_tile.m * a.warp_tile.n);
  return std::min(a.tile.k, std::max(kFmaLanesK, written));
}
bool fma_slots_fit(const Case& c) {
  return fma_slot_k(c) % kFmaLanesK == 0 && c.algorithm.tile.k % fma_slot_k(c) == 0;
}

// When k is contiguous, fp32 is copied row by row, with 8 threads for each row. Otherwise each line
// of one k is copied with one thread for every 4 rows.
bool fma_lines_fit(const tile::CopiedTile& tile, int slot_k) {
  if (tile.k_contiguous) return tile.rows % kFmaLanesK == 0;
  const int vectors = tile.rows / 4;
  return tile.rows % 4 == 0 && tile.threads % vectors == 0 &&
         slot_k % (tile.threads / vectors) == 0;
}
std::array<tile::CopiedTile, 2> tiles_of(const Case& c) {
  return tile::copied_tiles(product_of(c.signature), c.algorithm, c.target);
}
bool fma_copies_fit(const Case& c) {
  if (!by_fma(c)) return true;
  const auto [a, b] = tiles_of(c);
  return fma_slots_fit(c) && fma_lines_fit(a, fma_slot_k(c)) && fma_lines_fit(b, fma_slot_k(c));
}
std::string fma_copies_do_not_fit(const Case& c) {
  if (!fma_slots_fit(c)) {
    return fmt::format("tile_k must be a multiple of {} for fma with {}x{} a thread, got {}",
                       std::max(kFmaLanesK, fma_slot_k(c)), c.algorithm.warp_tile.m,
                       c.algorithm.warp_tile.n, c.algorithm.tile.k);
  }
  const auto [a, b] = tiles_of(c);
  const tile::CopiedTile& tile = fma_lines_fit(a, fma_slot_k(c)) ? b : a;
  if (tile.k_contiguous) {
    return fmt::format("{}'s rows must be a multiple of {} for fma, got {}", tile.name, kFmaLanesK,
                       tile.rows);
  }
  return fmt::format(
      "{} threads copy {}'s {} contiguous rows as whole lines of k, which must divide {} of k",
      tile.threads, tile.name, tile.rows, fma_slot_k(c));
}

// Slices are added in their order, through device memory.
SplitK kind_of_slices(const Algorithm& a) { return a.slices == 1 ? SplitK::none : SplitK::ordered; }

// The lanes of a warp form a grid over the warp's part of the tile, in vectors of 4.
bool lanes_fit(const Case& c) {
  if (!by_fma(c)) return true;
  const Shape3& w = c.algorithm.warp_tile;
  return w.m % 4 == 0 && w.n % 4 == 0 &&
         (warp_m(c) / w.m) * (warp_n(c) / w.n) == c.target.warp_size;
}

constexpr Rule kCpasync[] = {
    kWaveRule,
    kStagesRule,
    kNoPreshuffleRule,
    {[](const Case& c) { return find_instruction_named(c, instruction_name(c)) != nullptr; },
     [](const Case& c) { return no_instruction(c, instruction_name(c)); }},
    kUnusedFieldsRule,
    kSlicesRule,
    {[](const Case& c) { return c.algorithm.slices == 1 || by_fma(c); },
     [](const Case& c) {
       return fmt::format("cpasync cuts K into slices for fp32 only, got {} slices of {}",
                          c.algorithm.slices, to_string(c.signature.a));
     }},
    {[](const Case& c) { return c.algorithm.slices == 1 || !has_groups(c.signature); },
     [](const Case& c) {
       return fmt::format(
           "cpasync does not cut the K of groups into slices, got slices={} with grouping={}",
           c.algorithm.slices, to_string(c.signature.grouping));
     }},
    {[](const Case& c) { return c.algorithm.slices == 1 || !has_outputs(c.signature); },
     [](const Case& c) {
       return fmt::format(
           "cpasync cuts no K into slices with a gate, rows by index or quantised outputs, got {} "
           "slices",
           c.algorithm.slices);
     }},
    {[](const Case& c) { return c.algorithm.split_k == kind_of_slices(c.algorithm); },
     [](const Case& c) {
       return fmt::format("split_k must be {} for slices={} with cpasync, got {}",
                          to_string(kind_of_slices(c.algorithm)), c.algorithm.slices,
                          to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) { return c.algorithm.wave.k == 1; },
     [](const Case& c) {
       return fmt::format("the warps of cpasync do not share K: wave_k must be 1, got {}",
                          c.algorithm.wave.k);
     }},
    {[](const Case& c) {
       if (!warp_tile_listed(c)) return false;
       return by_fma(c) || c.algorithm.warp_tile.m == kMmaRows;
     },
     [](const Case& c) {
       return fmt::format("cpasync multiplies by {0}, and {1} does not list a {0} of {2} for {3}",
                          instruction_name(c), c.target.name, to_string(c.algorithm.warp_tile),
                          to_string(c.signature.a));
     }},
    tile::kRowOf<Case, tile::kDividesOverWarps>,
    tile::kBlockThreads<Case>,
    {[](const Case& c) { return thread_accumulators(c) <= max_accumulators(c); },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread ({}x{} over {} threads), at most {} fit",
                          thread_accumulators(c), c.algorithm.tile.m, c.algorithm.tile.n,
                          block_threads(c), max_accumulators(c));
     }},
    {[](const Case& c) {
       return by_fma(c) || c.algorithm.tile.k * size_of(c.signature.a) % kMmaBytesK == 0;
     },
     [](const Case& c) {
       const int unit = kMmaBytesK / size_of(c.signature.a);
       return fmt::format("tile_k must be a multiple of {} for {} with cpasync, got {}", unit,
                          to_string(c.signature.a), c.algorithm.tile.k);
     }},
    tile::kRowOfTiles<Case, product_of, tile::kCopiedLines>,
    tile::kRowOfTiles<Case, product_of, tile::kCopiedBytes>,
    tile::kRowOfTiles<Case, product_of, tile::kCopiedRows>,
    {fma_copies_fit, fma_copies_do_not_fit},
    {[](const Case& c) { return lanes_fit(c); },
     [](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return fmt::format(
           "the {} lanes of a warp must cover its {}x{} in {}x{} each, in vectors of 4",
           c.target.warp_size, warp_m(c), warp_n(c), w.m, w.n);
     }},
    {[](const Case& c) {
       return shared_memory(c.signature, c.algorithm).all <= c.target.shared_memory_bytes;
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} bytes of shared memory for {} stages or the accumulators, {} has {}",
           shared_memory(c.signature, c.algorithm).all, c.algorithm.stages, c.target.name,
           c.target.shared_memory_bytes);
     }},
};

// ---- algorithms, problems ----

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

// The checks here drop illegal shapes early, because testing all of them by the rules would take
// too long.
void cpasync_variants(const Target& target, const Algorithm& shape, std::vector<Algorithm>& all) {
  const bool fits = shape.tile.m % shape.warp_tile.m == 0 && shape.tile.n % shape.warp_tile.n == 0;
  if (!fits || shape.warp_tile.m >= device::kWgmmaRows || !tile::kDividesOverWarps.holds(shape))
    return;
  add_cpasync(tile::space_of(Op::gemm, target), shape, all);
}

// The two shapes, for small and for large problems, that are used when nothing better is known.
constexpr int kSmallSide = 64;
constexpr int kGeneralStages = 3;
bool is_general_cpasync(const Algorithm& a, const GemmProblem& p) {
  const bool transposes = has_scales(p) && p.layout != GemmLayout::rcr;  // has few registers
  const bool small = p.m <= kSmallSide || p.n <= kSmallSide || transposes;
  const int side = small ? 64 : 128;
  const Shape3 wave = small ? Shape3{2, 2, 1} : Shape3{2, 4, 1};
  return a.tile.m == side && a.tile.n == side && a.wave == wave && a.stages == kGeneralStages;
}

Verdict cpasync_serves(const KernelSpec& spec, const GemmProblem& p, const Target&) {
  if (Verdict served = outputs_serve_on_gpus(p); !served) return served;
  return parts_fit(spec.algorithm, p);
}

// ---- text and launch ----

CudaTemplate cpasync_template(const GemmSignature& s) {
  const bool fma = s.a == DType::fp32;
  if (has_scales(s)) {
    return has_groups(s) ? group_template("mma_scaled_groups.h", "ScaledMmaGroups")
                         : CudaTemplate{"mma_scaled_gemm.h", "ScaledMmaGemm"};
  }
  if (has_groups(s)) {
    return fma ? group_template("fma_groups.h", "FmaGroups")
               : group_template("mma_groups.h", "MmaGroups");
  }
  return fma ? CudaTemplate{"fma_gemm.h", "FmaGemm"} : CudaTemplate{"mma_gemm.h", "MmaGemm"};
}

Source emit_cpasync(const KernelSpec& spec, const Target&) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const CudaTemplate from = cpasync_template(s);
  const std::string shapes = cuda_tile_text(spec, false, false);
  if (has_outputs(s)) return cuda_outputs_source(spec, from, shapes);
  if (!has_groups(s)) return cuda_source(spec, from, shapes, "", "");
  return cuda_source(spec, from, shapes + grouping_text(spec), "", group_check_text(spec));
}

constexpr unsigned kWarp = 32;
constexpr int kAccumulatorBytes = 4;
constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();

// Reserves the partial sums of every slice of every tile.
void add_block_slices(const Algorithm& a, std::int64_t all_tiles,
                      device::CudaGemmArguments& arguments, Launch& launch) {
  arguments.partial_sums = device::kCounterBytes;
  arguments.partial_bytes = all_tiles * a.slices * a.tile.m * a.tile.n * kAccumulatorBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(arguments.partial_sums + arguments.partial_bytes);
  launch.workspace.counter_bytes = device::kCounterBytes;
  launch.workspace.address_offset = offsetof(device::CudaGemmArguments, workspace);
}

Step warps_step(const KernelSpec& spec, std::int64_t blocks,
                Step::Extent extent = Step::Extent::exact) {
  const Algorithm& a = spec.algorithm;
  Step step;
  step.extent = extent;
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = static_cast<unsigned>(a.wave.m * a.wave.n) * kWarp;
  step.shared_memory_bytes =
      static_cast<std::size_t>(shared_memory(std::get<GemmSignature>(spec.signature), a).all);
  return step;
}

// Each block computes several tiles when there are more tiles than a grid may have blocks.
Step step_of_tiles(const KernelSpec& spec, const GemmProblem& p) {
  const Algorithm& a = spec.algorithm;
  std::int64_t blocks = kMaxGrid;
  const std::int64_t per_batch = tiles(p.m, a.tile.m) * tiles(p.n, a.tile.n);
  if (p.batch <= kMaxGrid / per_batch / a.slices) blocks = per_batch * p.batch * a.slices;
  return warps_step(spec, blocks);
}

Launch bind_cpasync(const KernelSpec& spec, const GemmProblem& p, const Target&,
                    const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;

  device::CudaGemmArguments arguments{};
  arguments.gemm = g;
  arguments.raster_group = kRasterGroup;
  drop_unused_strides(arguments.gemm);
  const std::int64_t all_tiles = tiles(p.m, a.tile.m) * tiles(p.n, a.tile.n) * p.batch;
  if (a.slices > 1 && !is_empty) add_block_slices(a, all_tiles, arguments, launch);
  launch.arguments.set(arguments);
  list_pointers(p, g, launch);
  if (!is_empty) launch.steps.push(step_of_tiles(spec, p));
  return launch;
}

// Many slots may have no tile, so that blocks take several of them.
Step step_of_slots(const KernelSpec& spec, const GemmProblem& p) {
  const Algorithm& a = spec.algorithm;
  const double slots = most_group_tiles(p, a.tile.m) * static_cast<double>(tiles(p.n, a.tile.n));
  const double blocks = std::min(slots, static_cast<double>(kMaxGrid));
  return warps_step(spec, static_cast<std::int64_t>(blocks), Step::Extent::resident);
}

Launch bind_cpasync_outputs(const KernelSpec& spec, const GemmProblem& p, const Target&,
                            const GemmOperands& o) {
  const bool is_empty = p.m == 0 || p.n == 0 || matrices(p, true) == 0;
  if (is_empty) return bind_cuda_outputs(p, o, Step{});
  return bind_cuda_outputs(p, o, has_groups(p) ? step_of_slots(spec, p) : step_of_tiles(spec, p));
}

}  // namespace

Launch bind_groups_by_warps(const KernelSpec& spec, const GemmProblem& p, const Target&,
                            const GemmOperands& o) {
  Launch launch;
  launch.arguments.set(cuda_group_arguments(p, o));
  begin_groups(spec, p, o, launch);
  if (computes_groups(p)) launch.steps.push(step_of_slots(spec, p));
  return launch;
}

const Way kCpasyncWay = {.backend = "cuda",
                         .pipeline = Pipeline::cpasync,
                         .rules = kCpasync,
                         .serves = cpasync_serves,
                         .emit = emit_cpasync,
                         .bind = bind_cpasync,
                         .estimate = estimate_gpu,
                         .own = {.add_variants = cpasync_variants,
                                 .is_general = is_general_cpasync,
                                 .bind_groups = bind_groups_by_warps,
                                 .runs_lists = true,
                                 .bind_outputs = bind_cpasync_outputs,
                                 .bind_scaled = bind_scaled_on_cuda,
                                 .scales_outputs = true,
                                 .by_warp = true}};

}  // namespace tessera::gemm
