// Features of candidates, in lanes: plain loops without calls or branches, which compilers turn
// into vector instructions. Vector width does not change a result, because each lane's sums and
// products keep their order.
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/features_internal.h"

namespace tessera::gemm {
namespace {

// ---- every machine ----

void fill_shapes(Lanes& x) {
  const double* tile_m = x.of[lane("tile_m")];
  const double* tile_n = x.of[lane("tile_n")];
  const double* tile_k = x.of[lane("tile_k")];
  const double* wave_m = x.of[lane("wave_m")];
  const double* wave_n = x.of[lane("wave_n")];
  const double* wave_k = x.of[lane("wave_k")];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double tile_mn = tile_m[i] * tile_n[i];
    const double warp_mn = x.of[lane("warp_tile_m")][i] * x.of[lane("warp_tile_n")][i];
    x.of[lane("cluster_blocks")][i] =
        x.of[lane("cluster_m")][i] * x.of[lane("cluster_n")][i] * x.of[lane("splits")][i];
    x.of[lane("num_waves")][i] = wave_m[i] * wave_n[i] * wave_k[i];
    x.of[lane("tile_mn")][i] = tile_mn;
    x.of[lane("tile_volume")][i] = tile_mn * tile_k[i];
    x.of[lane("tile_intensity")][i] = tile_mn / (tile_m[i] + tile_n[i]);
    x.of[lane("warp_tiles")][i] = tile_mn / warp_mn;
  }
}

void fill_tiling(const Facts& f, Lanes& x) {
  const double k = f.k;
  const double batch = f.batch;
  const double units = f.units;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double tile_m = x.of[lane("tile_m")][i];
    const double tile_n = x.of[lane("tile_n")][i];
    const double tile_k = x.of[lane("tile_k")][i];
    const double parts = x.of[lane("splits")][i] * x.of[lane("slices")][i];
    const double ratio_m = x.rows[i] / tile_m;
    const double ratio_n = x.columns[i] / tile_n;
    const double ratio_k = k / tile_k;
    const double tiles_m = ceil_of(ratio_m);
    const double tiles_n = ceil_of(ratio_n);
    const double tiles_k = ceil_of(ratio_k);
    const double eff_m = ratio_m / at_least(tiles_m, 1);
    const double eff_n = ratio_n / at_least(tiles_n, 1);
    const double eff_k = ratio_k / at_least(tiles_k, 1);
    const double total = tiles_m * tiles_n * batch;
    const double steps = ceil_of(tiles_k / parts);
    x.of[lane("tiles_m")][i] = tiles_m;
    x.of[lane("tiles_n")][i] = tiles_n;
    x.of[lane("tiles_k")][i] = tiles_k;
    x.of[lane("total_tiles")][i] = total;
    x.of[lane("tile_ratio_m")][i] = ratio_m;
    x.of[lane("tile_ratio_n")][i] = ratio_n;
    x.of[lane("tile_ratio_k")][i] = ratio_k;
    x.of[lane("tile_eff_m")][i] = eff_m;
    x.of[lane("tile_eff_n")][i] = eff_n;
    x.of[lane("tile_eff_k")][i] = eff_k;
    x.of[lane("tile_efficiency")][i] = eff_m * eff_n * eff_k;
    x.of[lane("unit_utilisation")][i] = total * parts / units;
    x.of[lane("k_steps")][i] = steps;
    x.of[lane("k_steps_per_stage")][i] = steps / x.of[lane("stages")][i];
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double small_m = flag(x.rows[i] < x.of[lane("tile_m")][i]);
    const double small_n = flag(x.columns[i] < x.of[lane("tile_n")][i]);
    const double small_k = flag(k < x.of[lane("tile_k")][i]);
    x.of[lane("smaller_than_tile_m")][i] = small_m;
    x.of[lane("smaller_than_tile_n")][i] = small_n;
    x.of[lane("smaller_than_tile_k")][i] = small_k;
    x.of[lane("smaller_than_tile")][i] = at_most(small_m + small_n + small_k, 1);
    const double cut_m = flag(x.of[lane("tile_ratio_m")][i] < x.of[lane("tiles_m")][i]);
    const double cut_n = flag(x.of[lane("tile_ratio_n")][i] < x.of[lane("tiles_n")][i]);
    const double cut_k = flag(x.of[lane("tile_ratio_k")][i] < x.of[lane("tiles_k")][i]);
    x.of[lane("cut_tile_m")][i] = cut_m;
    x.of[lane("cut_tile_n")][i] = cut_n;
    x.of[lane("cut_tile_k")][i] = cut_k;
    x.of[lane("cut_tile")][i] = at_most(cut_m + cut_n + cut_k, 1);
  }
}

// ---- GPUs: what tile/gpu_estimate.h counts, lane by lane ----

// The kernel of a lane with the numbers computed so far. No caller uses a number that is not
// written yet.
[[gnu::always_inline]] inline tile::GpuKernel kernel_of(const Lanes& x, std::size_t i) {
  return {.is_tmaws = x.is_tmaws[i],
          .is_pingpong = x.is_pingpong[i],
          .swaps = x.of[lane("swap_ab")][i],
          .rows = x.rows[i],
          .columns = x.columns[i],
          .tile_m = x.of[lane("tile_m")][i],
          .tile_n = x.of[lane("tile_n")][i],
          .tile_k = x.of[lane("tile_k")][i],
          .tile_mn = x.of[lane("tile_mn")][i],
          .tile_volume = x.of[lane("tile_volume")][i],
          .wave_m = x.of[lane("wave_m")][i],
          .wave_n = x.of[lane("wave_n")][i],
          .num_waves = x.of[lane("num_waves")][i],
          .lane_mn = x.of[lane("warp_tile_m")][i] * x.of[lane("warp_tile_n")][i],
          .splits = x.of[lane("splits")][i],
          .slices = x.of[lane("slices")][i],
          .stages = x.of[lane("stages")][i],
          .cluster_m = x.of[lane("cluster_m")][i],
          .cluster_n = x.of[lane("cluster_n")][i],
          .cluster_blocks = x.of[lane("cluster_blocks")][i],
          .size_m = x.size_m[i],
          .size_n = x.size_n[i],
          .macs = x.macs[i],
          .shared_bytes = x.of[lane("shared_bytes")][i],
          .store_chunk = x.store_chunk[i],
          .stores_by_copy = x.of[lane("stores_by_copy")][i],
          .copied_bytes = x.copied_bytes[i],
          .fetch_share = x.fetch_share[i],
          .tiles_m = x.of[lane("tiles_m")][i],
          .tiles_n = x.of[lane("tiles_n")][i],
          .tiles_k = x.of[lane("tiles_k")][i],
          .k_steps = x.of[lane("k_steps")][i],
          .block_threads = x.of[lane("block_threads")][i],
          .accumulators = x.of[lane("accumulators")][i],
          .resident = x.of[lane("resident")][i],
          .blocks = x.of[lane("blocks")][i],
          .step_bytes = x.step_bytes[i],
          .step_operand_bytes = x.step_operand_bytes[i],
          .fma_cycles = x.fma_cycles[i],
          .alone_cycles = x.alone_cycles[i],
          .step_cycles = x.step_cycles[i],
          .load_cycles = x.load_cycles[i],
          .store_times = x.store_times[i],
          .finish_cycles = x.finish_cycles[i],
          .busy_seconds = x.busy_seconds[i]};
}

// Computes one number of every lane.
template <class Count>
[[gnu::always_inline]] inline void count(Lane& to, const Lanes& x, Count number) {
  for (std::size_t i = 0; i < kLanes; ++i) to[i] = number(kernel_of(x, i));
}

using tile::GpuKernel;

void fill_threads(const tile::GpuCase& c, Lanes& x) {
  count(x.of[lane("block_threads")], x, [&](const GpuKernel& k) { return block_threads(c, k); });
  count(x.of[lane("accumulators")], x, [&](const GpuKernel& k) { return accumulators(c, k); });
}

void fill_shared_memory(Lanes& x) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double stages = x.of[lane("stages")][i];
    x.of[lane("bytes_in_flight")][i] = (stages - 1) * x.of[lane("stage_bytes")][i];
    x.of[lane("shared_ratio")][i] = x.of[lane("shared_bytes")][i] / x.capacity[i];
  }
}

void fill_rounds(const tile::GpuCase& c, Lanes& x, bool counts_resident) {
  if (counts_resident) {
    count(x.of[lane("resident")], x, [&](const GpuKernel& k) { return resident_blocks(c, k); });
  }
  count(x.of[lane("blocks")], x, [&](const GpuKernel& k) { return all_blocks(c, k); });
  const double units = c.units;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double rounds = x.of[lane("blocks")][i] / (units * x.of[lane("resident")][i]);
    const double full = floor_of(rounds);
    x.of[lane("full_rounds")][i] = full;
    x.of[lane("tail")][i] = rounds - full;
    x.of[lane("wave_efficiency")][i] = rounds / at_least(ceil_of(rounds), 1);
  }
}

void fill_gpu_traffic(const tile::GpuCase& c, Lanes& x) {
  count(x.step_bytes, x, [](const GpuKernel& k) { return step_bytes(k); });
  count(x.step_operand_bytes, x, [](const GpuKernel& k) { return step_operand_bytes(k); });
  const double units = c.units;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double blocks = x.of[lane("blocks")][i];
    const double steps = blocks * x.of[lane("k_steps")][i];
    x.tiled_bytes[i] = steps * x.step_bytes[i];
    x.operand_bytes[i] = steps * x.step_operand_bytes[i];
    x.packed_bytes[i] = 0;
    x.compute_cycles[i] = ceil_of(blocks / units) * x.of[lane("k_steps")][i] *
                          x.of[lane("tile_volume")][i] / x.macs[i];
  }
}

void fill_cycles(const tile::GpuCase& c, Lanes& x) {
  count(x.fma_cycles, x, [&](const GpuKernel& k) { return fma_cycles(c, k); });
  count(x.alone_cycles, x, [&](const GpuKernel& k) { return alone_cycles(c, k); });
  count(x.step_cycles, x, [&](const GpuKernel& k) { return step_cycles(c, k); });
  count(x.load_cycles, x, [&](const GpuKernel& k) { return load_cycles(c, k); });
  count(x.store_times, x, [&](const GpuKernel& k) { return store_times(c, k); });
  count(x.finish_cycles, x, [&](const GpuKernel& k) { return finish_cycles(c, k); });
  count(x.busy_seconds, x, [&](const GpuKernel& k) { return busy_seconds(c, k); });
  // How stream-K shares out tiles is counted in integers, kernel by kernel. Few kernels do.
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (x.of[lane("streamk")][i] > 0) x.busy_seconds[i] = stream_seconds(c, kernel_of(x, i));
  }
}

void fill_estimate(const tile::GpuCase& c, Lanes& x) {
  const double bytes = std::max(c.bytes, 1.0);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const tile::GpuSeconds seconds = gpu_seconds(c, kernel_of(x, i));
    x.estimate_compute[i] = seconds.compute;
    x.estimate_memory[i] = seconds.memory;
    x.estimate_overhead[i] = seconds.overhead;
    x.of[lane("estimate_utilisation")][i] = seconds.utilisation;
    x.of[lane("copied_ratio")][i] = x.copied_bytes[i] / bytes;
  }
}

// Features that only CPUs have.
void clear_cpu(Lanes& x) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    x.of[lane("grid_batch")][i] = 0;
    x.of[lane("grid_m")][i] = 0;
    x.of[lane("grid_n")][i] = 0;
    x.of[lane("grid_k")][i] = 0;
    x.of[lane("share_rows")][i] = 0;
    x.of[lane("share_columns")][i] = 0;
    x.of[lane("a_panel_over_l1")][i] = 0;
    x.of[lane("b_panel_over_l1")][i] = 0;
    x.of[lane("a_block_over_l2")][i] = 0;
    x.of[lane("b_block_over_l2")][i] = 0;
    x.of[lane("b_block_over_l3")][i] = 0;
  }
}

// The estimates of AMD's GPUs, and those of groups and scales, were made candidate by candidate,
// when the lanes were gathered.
void fill_gpu(const Facts& facts, Lanes& lanes) {
  const tile::GpuCase& c = *facts.gpu;
  fill_threads(c, lanes);
  fill_shared_memory(lanes);
  fill_rounds(c, lanes, !facts.machine->estimates_singly);
  fill_gpu_traffic(c, lanes);
  if (!facts.singly) {
    fill_cycles(c, lanes);
    fill_estimate(c, lanes);
  }
  clear_cpu(lanes);
}

// ---- CPUs: threads' shares, panels against caches, bytes by level ----

// A size divided by a cache that does not exist is 0.
double inverse(double bytes) { return bytes > 0 ? 1 / bytes : 0; }

void fill_panels(const Facts& f, Lanes& x) {
  const double k = f.k;
  const double per_l1 = inverse(f.l1);
  const double per_l2 = inverse(f.l2);
  const double per_l3 = inverse(f.l3);
  const double vector = at_least(f.target->vector_bytes * 0.25, 1);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double tile_m = x.of[lane("tile_m")][i];
    const double tile_n = x.of[lane("tile_n")][i];
    const double tile_k = x.of[lane("tile_k")][i];
    const double warp_m = x.of[lane("warp_tile_m")][i];
    const double warp_n = x.of[lane("warp_tile_n")][i];
    const double word = 4 / x.of[lane("warp_tile_k")][i];
    const double depth = at_most(tile_k, k) * word;
    const double threads = x.of[lane("grid_batch")][i] * x.of[lane("grid_m")][i] *
                           x.of[lane("grid_n")][i] * x.of[lane("grid_k")][i];
    const double stage = (tile_m + tile_n) * tile_k * word;
    const double block_a = depth * at_most(x.of[lane("share_rows")][i], tile_m);
    const double block_b = depth * at_most(x.of[lane("share_columns")][i], tile_n);
    x.of[lane("block_threads")][i] = 1;
    x.of[lane("accumulators")][i] = warp_m * warp_n / vector;
    x.of[lane("stage_bytes")][i] = stage;
    x.of[lane("bytes_in_flight")][i] = 0;
    x.of[lane("shared_bytes")][i] = stage;
    x.of[lane("shared_ratio")][i] = stage * per_l2;
    x.of[lane("resident")][i] = 1;
    x.of[lane("blocks")][i] = threads;
    x.of[lane("a_panel_over_l1")][i] = depth * warp_m * per_l1;
    x.of[lane("b_panel_over_l1")][i] = depth * warp_n * per_l1;
    x.of[lane("a_block_over_l2")][i] = block_a * per_l2;
    x.of[lane("b_block_over_l2")][i] = block_b * per_l2;
    x.of[lane("b_block_over_l3")][i] = block_b * threads * per_l3;
  }
}

void fill_balance(const Facts& f, Lanes& x) {
  const double work = f.m * f.n * f.k * f.batch;
  const double units = f.units;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double share = x.share_batches[i] * x.of[lane("share_rows")][i] *
                         x.of[lane("share_columns")][i] * x.share_k[i];
    const double rounds = x.of[lane("blocks")][i] / units;
    const double full = floor_of(rounds);
    x.of[lane("full_rounds")][i] = full;
    x.of[lane("tail")][i] = rounds - full;
    x.of[lane("wave_efficiency")][i] = work / at_least(units * share, 1);
  }
}

// A is read for every tile_n columns, B for every tile_m rows; register blocks read their panels.
void fill_cpu_traffic(Lanes& x) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    x.of[lane("copied_ratio")][i] = 0;
    const double rows = x.of[lane("share_rows")][i];
    const double columns = x.of[lane("share_columns")][i];
    const double warp_m = x.of[lane("warp_tile_m")][i];
    const double warp_n = x.of[lane("warp_tile_n")][i];
    const double warp_k = x.of[lane("warp_tile_k")][i];
    const double word = 4 / warp_k;
    const double blocks_m = ceil_of(rows / warp_m);
    const double blocks_n = ceil_of(columns / warp_n);
    const double words = ceil_of(x.share_k[i] / warp_k);
    const double repeats_a = ceil_of(columns / x.of[lane("tile_n")][i]);
    const double repeats_b = ceil_of(rows / x.of[lane("tile_m")][i]);
    const double a_bytes = rows * x.share_k[i] * word;
    const double b_bytes = columns * x.share_k[i] * word;
    const double all = x.of[lane("blocks")][i] * x.share_batches[i];
    x.tiled_bytes[i] = all * (a_bytes * repeats_a + b_bytes * repeats_b);
    x.operand_bytes[i] = all * blocks_m * blocks_n * words * (warp_m + warp_n) * 4;
    x.packed_bytes[i] = all * (a_bytes * repeats_a * x.packs_a[i] + b_bytes * x.packs_b[i]);
    x.compute_cycles[i] = x.share_batches[i] * (blocks_m * warp_m) * (blocks_n * warp_n) *
                          (words * warp_k) / x.macs[i];
  }
}

void fill_cpu(const Facts& facts, Lanes& lanes) {
  fill_panels(facts, lanes);
  fill_balance(facts, lanes);
  fill_cpu_traffic(lanes);
}

// ---- every machine again ----

// The features that follow from bytes and cycles.
void fill_seconds(const Facts& f, Lanes& x) {
  const double least_bytes = at_least(f.bytes, 1);
  const double memory = f.bytes / f.bandwidth;
  const double hertz = f.hertz;
  const double units = f.units;
  const double l1_hertz = f.l1_rate * hertz;
  const double l2_hertz = f.l2_rate * hertz;
  const double macs = f.flops / 2;
  const double ideal_log2 = f.ideal_log2;
  // A CPU that uses one thread starts no team.
  const double launch = at_least(f.launch_seconds, kLeastSeconds);
  const double alone = f.on_cpu ? 1 : 0;
  const double* blocks = x.of[lane("blocks")];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double used = at_least(at_most(blocks[i], units), 1);
    const double compute = x.compute_cycles[i] / hertz;
    const double tiled = x.tiled_bytes[i] / (used * l2_hertz);
    const double pack = x.packed_bytes[i] / (used * l2_hertz);
    const double operand = x.operand_bytes[i] / (used * l1_hertz);
    const double busy = at_least(at_least(compute + pack, tiled), at_least(operand, memory));
    const double seconds = busy + pick(flag(used > alone), launch, kLeastSeconds);
    const double each = 1 / seconds;
    const double possible = x.compute_cycles[i] * x.macs[i] * units;
    x.of[lane("packed_ratio")][i] = x.packed_bytes[i] / least_bytes;
    x.of[lane("tiled_ratio")][i] = x.tiled_bytes[i] / least_bytes;
    x.of[lane("utilisation")][i] = macs / at_least(possible, 1);
    x.of[lane("compute_share")][i] = compute * each;
    x.of[lane("tiled_share")][i] = tiled * each;
    x.of[lane("operand_share")][i] = operand * each;
    x.of[lane("memory_share")][i] = memory * each;
    x.of[lane("log2_seconds")][i] = seconds;
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double compute = x.estimate_compute[i];
    const double moved = x.estimate_memory[i];
    const double overhead = x.estimate_overhead[i];
    const double seconds = at_least(at_least(compute, moved) + overhead, kLeastSeconds);
    x.of[lane("estimate_log2_seconds")][i] = seconds;
    const double each = 1 / seconds;
    x.of[lane("estimate_compute_share")][i] = compute * each;
    x.of[lane("estimate_memory_share")][i] = moved * each;
    x.of[lane("estimate_overhead_share")][i] = overhead * each;
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double seconds = log2_of(x.of[lane("log2_seconds")][i]);
    x.of[lane("log2_seconds")][i] = seconds;
    x.of[lane("log2_over_ideal")][i] = seconds - ideal_log2;
    const double estimated = log2_of(x.of[lane("estimate_log2_seconds")][i]);
    x.of[lane("estimate_log2_seconds")][i] = estimated;
    x.of[lane("estimate_over_ideal")][i] = estimated - ideal_log2;
    x.of[lane("log2_tiled_bytes")][i] = log2_of(1 + x.tiled_bytes[i]);
    x.of[lane("log2_operand_bytes")][i] = log2_of(1 + x.operand_bytes[i]);
  }
}

void fill_all(const Facts& facts, Lanes& lanes) {
  fill_shapes(lanes);
  fill_tiling(facts, lanes);
  facts.on_cpu ? fill_cpu(facts, lanes) : fill_gpu(facts, lanes);
  fill_seconds(facts, lanes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void fill_avx2(const Facts& facts, Lanes& lanes) {
  fill_all(facts, lanes);
}
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"), flatten)) void fill_avx512(
    const Facts& facts, Lanes& lanes) {
  fill_all(facts, lanes);
}
#endif

}  // namespace

void fill_portable(const Facts& facts, Lanes& lanes) { fill_all(facts, lanes); }

void fill(const Facts& facts, Lanes& lanes) {
#if defined(__x86_64__)
  static const bool kWidest = __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") &&
                              __builtin_cpu_supports("avx512vl");
  if (kWidest) return fill_avx512(facts, lanes);
  static const bool kWide = __builtin_cpu_supports("avx2") != 0;
  if (kWide) return fill_avx2(facts, lanes);
#endif
  fill_all(facts, lanes);
}

}  // namespace tessera::gemm
