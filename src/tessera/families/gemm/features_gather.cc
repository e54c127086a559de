// Reads candidates into lanes. This is the only part of the extractor that handles candidates one
// by one.
#include <algorithm>

#include "tessera/base/enums.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/features_internal.h"
#include "tessera/families/gemm/groups.h"

namespace tessera::gemm {
namespace {

void put_algorithm(const Algorithm& a, std::size_t i, Lanes& x) {
  x.of[lane("tile_m")][i] = a.tile.m;
  x.of[lane("tile_n")][i] = a.tile.n;
  x.of[lane("tile_k")][i] = a.tile.k;
  x.of[lane("wave_m")][i] = a.wave.m;
  x.of[lane("wave_n")][i] = a.wave.n;
  x.of[lane("wave_k")][i] = a.wave.k;
  x.of[lane("warp_tile_m")][i] = a.warp_tile.m;
  x.of[lane("warp_tile_n")][i] = a.warp_tile.n;
  x.of[lane("warp_tile_k")][i] = a.warp_tile.k;
  x.of[lane("pipeline")][i] = static_cast<int>(a.pipeline);
  x.of[lane("scheduler")][i] = static_cast<int>(a.scheduler);
  x.of[lane("splits")][i] = a.splits;
  x.of[lane("slices")][i] = a.slices;
  x.of[lane("split_kind")][i] = static_cast<int>(a.split_k);
  x.of[lane("stages")][i] = a.stages;
  x.of[lane("cluster_m")][i] = a.cluster_m;
  x.of[lane("cluster_n")][i] = a.cluster_n;
  x.of[lane("swap_ab")][i] = flag(a.swap_ab);
  x.of[lane("repack")][i] = flag(a.repack);
  x.of[lane("streamk")][i] = flag(a.streamk);
}

void put_estimate(const Estimate& e, std::size_t i, Lanes& x) {
  x.estimate_compute[i] = e.compute_seconds;
  x.estimate_memory[i] = e.memory_seconds;
  x.estimate_overhead[i] = e.overhead_seconds;
  x.of[lane("estimate_utilisation")][i] = e.utilisation;
}

// ---- groups and scales ----

// What the family's estimate adds to the longer one of computing and memory is overhead here.
void put_asked(const Facts& f, const KernelSpec& spec, const Problem& asked, std::size_t i,
               Lanes& x) {
  Estimate e = estimate(spec, asked, *f.target, f.threads);
  e.overhead_seconds = at_least(e.seconds - at_least(e.compute_seconds, e.memory_seconds), 0);
  put_estimate(e, i, x);
}

// Groups that share out rows, or k, end anywhere in a tile.
void put_group_tiles(const GemmProblem& asked, std::size_t i, Lanes& x) {
  const bool along_k = asked.grouping == GemmGrouping::along_k;
  const bool ends_anywhere = asked.grouping != GemmGrouping::masked && !is_list(asked);
  const bool swaps = x.of[lane("swap_ab")][i] > 0;
  const double down = along_k ? x.of[lane("tile_k")][i]
                      : swaps ? x.of[lane("tile_n")][i]
                              : x.of[lane("tile_m")][i];
  const GemmProblem each = as_batches(asked);
  const double share = number(along_k ? each.k : each.m) / down;
  const double tiles = ends_anywhere ? share + 0.5 : ceil_of(share);
  x.of[lane("group_tiles")][i] = tiles;
  x.of[lane("group_waste")][i] = tiles > 0 ? 1 - share / tiles : 0;
}

// Both parts do nothing but clear lanes for problems without groups and scales.
void gather_asked(const Facts& f, std::span<const KernelSpec> specs, Lanes& x) {
  std::fill_n(x.of[lane("group_tiles")], kLanes, 0.0);
  std::fill_n(x.of[lane("group_waste")], kLanes, 0.0);
  if (!asks_for_more(*f.asked)) return;
  const Problem asked = *f.asked;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    put_asked(f, specs[i], asked, i, x);
    if (has_groups(*f.asked)) put_group_tiles(*f.asked, i, x);
  }
}

// ---- GPUs ----

// The roles of the operands: kernels compute rows of A, or with swap_ab rows of B.
struct Sides {
  double rows, columns, size_m, size_n;
};

Sides sides_of(const Facts& f) {
  const GemmProblem& p = f.problem;
  return {f.m, f.n, static_cast<double>(size_of(p.a)), static_cast<double>(size_of(p.b))};
}

Sides swapped(const Sides& s) { return {s.columns, s.rows, s.size_n, s.size_m}; }

// Whether the copy engine can store the output of a tmaws kernel. Kernels with store=direct never
// use it.
struct CopiesOut {
  bool with_room, crowded, with_swap;

  bool of(const Algorithm& a) const {
    if (a.swap_ab) return with_swap;
    return with_room == crowded || tmaws_has_room(a) ? with_room : crowded;
  }
};
CopiesOut copies_out(const Facts& f) {
  const auto signature = std::get<GemmSignature>(signature_of(f.problem));
  const Algorithm swapped = {.pipeline = Pipeline::tmaws, .swap_ab = true};
  const tile::Product product = product_of(signature);
  return {tile::tmaws_copies_out(product, true), tile::tmaws_copies_out(product, false),
          tile::tmaws_copies_out(product, swapped)};
}

void put_shared(const tile::SharedMemory& shared, std::size_t i, Lanes& x) {
  x.of[lane("stage_bytes")][i] = static_cast<double>(shared.stage);
  x.of[lane("shared_bytes")][i] = static_cast<double>(shared.all);
  x.store_chunk[i] = shared.chunk;
}

void put_hip(const Facts& f, const KernelSpec& spec, std::size_t i, Lanes& x) {
  if (!asks_for_more(*f.asked)) put_estimate(estimate_hip(spec, f.problem, *f.target), i, x);
  x.of[lane("resident")][i] = hip_resident(spec, f.problem, *f.target);
}

void gather_gpu(const Facts& f, std::span<const KernelSpec> specs, Lanes& x) {
  const Sides straight = sides_of(f);
  const Sides turned = swapped(straight);
  const CopiesOut copies = copies_out(f);
  const auto signature = std::get<GemmSignature>(signature_of(f.problem));
  const tile::Product product = product_of(signature);
  const int matrices = tmaws_d_roles(signature.epilogue).matrices;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const KernelSpec& spec = specs[std::min(i, specs.size() - 1)];
    const Algorithm& a = spec.algorithm;
    put_algorithm(a, i, x);
    if (f.machine->estimates_singly && i < specs.size()) put_hip(f, spec, i, x);
    const Sides& s = a.swap_ab ? turned : straight;
    const PipelineFacts& pipeline = row_of_enum(f.pipelines, "pipeline", a.pipeline);
    const bool by_copy_engine = pipeline.own->by_copy_engine;
    x.rows[i] = s.rows;
    x.columns[i] = s.columns;
    x.size_m[i] = s.size_m;
    x.size_n[i] = s.size_n;
    x.copied_bytes[i] = a.repack ? f.copied_bytes : 0;
    if (f.singly) x.of[lane("copied_ratio")][i] = x.copied_bytes[i] / at_least(f.bytes, 1);
    x.is_tmaws[i] = flag(by_copy_engine);
    x.is_pingpong[i] = flag(a.scheduler == Scheduler::pingpong);
    x.macs[i] = pipeline.macs;
    x.capacity[i] = pipeline.capacity;
    x.of[lane("takes_tiles")][i] = flag(a.persistent || (by_copy_engine && a.splits == 1));
    const bool stores_by_copy = by_copy_engine && copies.of(a) && a.store != Store::direct;
    x.of[lane("stores_by_copy")][i] = flag(stores_by_copy);
    tile::SharedMemory shared = tile::shared_memory(product, a, stores_by_copy ? matrices : 0);
    if (f.singly && has_scales(signature)) add_scale_bytes(signature, a, shared);
    put_shared(shared, i, x);
    x.fetch_share[i] = by_copy_engine && !a.repack ? f.fetch_share : 1;
  }
}

// ---- CPUs ----

std::int64_t busiest(std::int64_t size, std::int64_t block, int parts) {
  const std::int64_t blocks = device::blocks_of(size, block);
  return device::smaller(size, device::blocks_of(blocks, parts) * block);
}

device::Grid stream_grid(const Facts& f, const Algorithm& a) {
  const int used = a.wave.m == 0 || a.wave.n == 0 ? f.threads : 1;
  return device::narrow_is_a(f.problem.m, f.problem.n) ? device::Grid{1, 1, used}
                                                       : device::Grid{1, used, 1};
}

device::Grid block_grid(const Facts& f, const Algorithm& a) {
  device::GemmArguments g{};
  g.m = f.problem.m;
  g.n = f.problem.n;
  g.batch = f.problem.batch;
  const int lanes = std::max(1, f.target->vector_bytes / 4);
  return device::best_grid(g, f.threads, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n, lanes);
}

Sharing share(const Facts& f, const Algorithm& a, const Types::Own& own) {
  const GemmProblem& p = f.problem;
  Sharing s{{1, 1, 1}, 1, f.batch, f.m, f.n, f.k};
  const std::int64_t grain = k_grain(p, a, own.words_of_step);
  if (a.wave.k != 1 && !own.streams) {
    const int limit = a.wave.k == 0 ? f.threads : std::min(a.wave.k, f.threads);
    const std::int64_t grains = device::blocks_of(p.k, grain);
    s.over_k = static_cast<int>(std::clamp<std::int64_t>(grains, 1, limit));
  }
  if (s.over_k > 1) {
    s.k = static_cast<double>(busiest(p.k, grain, s.over_k));
    return s;
  }
  s.grid = own.streams ? stream_grid(f, a) : block_grid(f, a);
  s.batches = static_cast<double>(busiest(p.batch, 1, s.grid.batch));
  s.rows = static_cast<double>(busiest(p.m, a.warp_tile.m, s.grid.m));
  s.columns = static_cast<double>(busiest(p.n, a.warp_tile.n, s.grid.n));
  return s;
}

const Sharing& find(SharingMemo& memo, const Facts& f, const Algorithm& a, const Types::Own& own) {
  const SharingKey key = {a.wave, a.warp_tile, a.tile.k, own.words_of_step, own.streams};
  const auto mixed =
      static_cast<unsigned>(a.warp_tile.m * 7 + a.warp_tile.n * 3 + a.warp_tile.k * 5 + a.wave.m +
                            a.wave.k * 2 + a.tile.k / 256 * 11 + (own.streams ? 1 : 0));
  const std::size_t slot = mixed % memo.keys.size();
  if (!(memo.keys[slot] == key)) {
    memo.keys[slot] = key;
    memo.values[slot] = share(f, a, own);
  }
  return memo.values[slot];
}

void put_sharing(const Sharing& s, std::size_t i, Lanes& x) {
  x.of[lane("grid_batch")][i] = s.grid.batch;
  x.of[lane("grid_m")][i] = s.grid.m;
  x.of[lane("grid_n")][i] = s.grid.n;
  x.of[lane("grid_k")][i] = s.over_k;
  x.of[lane("share_rows")][i] = s.rows;
  x.of[lane("share_columns")][i] = s.columns;
  x.share_k[i] = s.k;
  x.share_batches[i] = s.batches;
}

void gather_cpu(const Facts& f, std::span<const KernelSpec> specs, Lanes& x) {
  std::fill_n(x.rows, kLanes, f.m);
  std::fill_n(x.columns, kLanes, f.n);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const bool repeats = i >= specs.size();
    const KernelSpec& spec = specs[repeats ? specs.size() - 1 : i];
    const Algorithm& a = spec.algorithm;
    const Types::Own& own = *row_of_enum(f.pipelines, "pipeline", a.pipeline).own;
    put_algorithm(a, i, x);
    const Sharing& sharing = find(x.sharing, f, a, own);
    put_sharing(sharing, i, x);
    if (!repeats && !f.singly) {
      put_estimate(estimate_cpu(spec, f.problem, *f.target, f.threads, &sharing.grid), i, x);
    }
    x.macs[i] = f.cpu_macs[static_cast<std::size_t>(std::clamp(a.warp_tile.k, 0, 4))];
    x.packs_a[i] = flag(own.packs_a);
    x.packs_b[i] = flag(own.packs_b && !f.problem.preshuffled_b);
    x.of[lane("takes_tiles")][i] = 0;
    x.of[lane("stores_by_copy")][i] = 0;
  }
}

}  // namespace

void gather(const Facts& facts, std::span<const KernelSpec> specs, Lanes& lanes) {
  facts.on_cpu ? gather_cpu(facts, specs, lanes) : gather_gpu(facts, specs, lanes);
  gather_asked(facts, specs, lanes);
}

}  // namespace tessera::gemm
