// Features of candidates, in lanes: plain loops without calls or branches, which compilers turn
// into vector instructions. No rounding differs between those: each lane's sums and products stay
// as they are written.
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

// ---- GPUs: threads, shared memory, rounds of blocks, bytes by level ----

constexpr double kWarpgroup = 128;     // threads
constexpr double kWarpgroupRows = 64;  // of one wgmma

bool by_fma_of(const Facts& f) { return f.problem.a == DType::fp32 && f.target->backend == "cuda"; }

void fill_threads(const Facts& f, Lanes& x) {
  const double warp = f.target->warp_size;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double wave_m = x.of[lane("wave_m")][i];
    const double producers = pick(flag(wave_m == 1), warp, kWarpgroup);
    const double consumers = kWarpgroup * pick(x.is_pingpong[i], 1, wave_m);
    const double plain = x.of[lane("num_waves")][i] * warp;
    const double multiplying = pick(x.is_tmaws[i], consumers, plain);
    x.of[lane("block_threads")][i] = pick(x.is_tmaws[i], kWarpgroup * wave_m + producers, plain);
    x.of[lane("accumulators")][i] = x.of[lane("tile_mn")][i] / multiplying;
  }
}

void fill_shared_memory(Lanes& x) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double stages = x.of[lane("stages")][i];
    x.of[lane("bytes_in_flight")][i] = (stages - 1) * x.of[lane("stage_bytes")][i];
    x.of[lane("shared_ratio")][i] = x.of[lane("shared_bytes")][i] / x.capacity[i];
  }
}

// tmaws kernels with several consumers take all registers of a unit.
void fill_rounds(const Facts& f, Lanes& x) {
  const double shared = static_cast<double>(f.target->shared_memory_bytes) + kSharedReserve;
  const double registers = f.target->registers_per_unit;
  const double units = f.units;
  const double batch = f.batch;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double by_shared = shared / (x.of[lane("shared_bytes")][i] + kSharedReserve);
    const double by_registers = registers / ((kRegistersBesides + x.of[lane("accumulators")][i]) *
                                             x.of[lane("block_threads")][i]);
    const double fit = at_most(at_least(floor_of(at_most(by_shared, by_registers)), 1), kMaxBlocks);
    const double alone = x.is_tmaws[i] * flag(x.of[lane("wave_m")][i] > 1);
    const double resident = pick(alone, 1, fit);
    const double cluster_m = x.of[lane("cluster_m")][i];
    const double cluster_n = x.of[lane("cluster_n")][i];
    const double clusters_m = ceil_of(x.of[lane("tiles_m")][i] / cluster_m);
    const double clusters_n = ceil_of(x.of[lane("tiles_n")][i] / cluster_n);
    const double parts = x.of[lane("cluster_blocks")][i] * x.of[lane("slices")][i];
    const double blocks = clusters_m * clusters_n * parts * batch;
    const double rounds = blocks / (units * resident);
    const double full = floor_of(rounds);
    x.of[lane("resident")][i] = resident;
    x.of[lane("blocks")][i] = blocks;
    x.of[lane("full_rounds")][i] = full;
    x.of[lane("tail")][i] = rounds - full;
    x.of[lane("wave_efficiency")][i] = rounds / at_least(ceil_of(rounds), 1);
  }
}

void fill_gpu_traffic(const Facts& f, Lanes& x) {
  const double units = f.units;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double tile_m = x.of[lane("tile_m")][i];
    const double tile_n = x.of[lane("tile_n")][i];
    const double tile_k = x.of[lane("tile_k")][i];
    const double blocks = x.of[lane("blocks")][i];
    const double steps = blocks * x.of[lane("k_steps")][i];
    const double fetched = tile_m * x.size_m[i] / x.of[lane("cluster_n")][i] +
                           tile_n * x.size_n[i] / x.of[lane("cluster_m")][i];
    // wgmma reads 64 rows of one side for each reading of the other; warps read their own parts.
    const double reads_m = pick(x.is_tmaws[i], 1, x.of[lane("wave_n")][i]);
    const double reads_n = pick(x.is_tmaws[i], tile_m / kWarpgroupRows, x.of[lane("wave_m")][i]);
    const double operand = tile_m * reads_m * x.size_m[i] + tile_n * reads_n * x.size_n[i];
    x.step_bytes[i] = tile_k * fetched;
    x.step_operand_bytes[i] = tile_k * operand;
    x.tiled_bytes[i] = steps * x.step_bytes[i];
    x.operand_bytes[i] = steps * x.step_operand_bytes[i];
    x.packed_bytes[i] = 0;
    x.compute_cycles[i] = ceil_of(blocks / units) * x.of[lane("k_steps")][i] *
                          x.of[lane("tile_volume")][i] / x.macs[i];
  }
}

// ---- estimate_gpu() once more, for many kernels; a test holds them together ----

constexpr GpuModel kModel = {};
constexpr double kPerFetch = 1 / kModel.fetch;
constexpr double kPerShared = 1 / kModel.shared;
constexpr double kPerTensorShare = 1 / kModel.tensor_share;
constexpr double kPerWarpgroup = 1 / kWarpgroup;

// Cycles of a step of fp32, among other blocks and alone.
void fill_fma(const Facts& f, Lanes& x) {
  const double by_fma = flag(by_fma_of(f));
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double lane_mn = x.of[lane("warp_tile_m")][i] * x.of[lane("warp_tile_n")][i];
    const double warps = x.of[lane("num_waves")][i] * 0.25;
    const double step = by_fma * x.of[lane("tile_k")][i];
    x.fma_cycles[i] = step * (lane_mn * warps * kModel.fma + kModel.fma_among);
    x.alone_cycles[i] = step * (lane_mn * ceil_of(warps) * kModel.fma + kModel.fma_alone);
  }
}

// Cycles of a step of K where nothing is waited for, and those in which threads wait for loads.
void fill_steps(const Facts& f, Lanes& x) {
  const double copy = copy_bytes(f.problem);
  const double copy_cycles =
      copy < 16 ? kModel.narrow_copy : kModel.issue / (16 * f.target->warp_size);
  const double loads_alone = flag(copy < 4);
  const double by_fma = flag(by_fma_of(f));
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double bytes = x.step_bytes[i];
    const double by_threads = 1 - x.is_tmaws[i];
    const double multiply = x.of[lane("tile_volume")][i] / x.macs[i] * kPerTensorShare;
    const double copies = bytes * copy_cycles * by_threads;
    const double read = x.step_operand_bytes[i] * kPerShared;
    const double most =
        at_least(at_least(multiply, read), at_least(bytes * kPerFetch / x.fetch_share[i], copies));
    const double each = at_least(bytes * 0.0625 / x.of[lane("block_threads")][i], 1);
    const double loads = kModel.load * pick(flag(each > kModel.loads), each, 1);
    const double fma = at_least(x.fma_cycles[i], bytes * kPerFetch / x.fetch_share[i]);
    x.step_cycles[i] = pick(by_fma, fma, most * (1 + kModel.copies * by_threads));
    x.load_cycles[i] = loads * by_threads * loads_alone;
  }
}

// store_factor() once more.
void fill_store_times(const Facts& f, Lanes& x) {
  constexpr double kWide = 64;  // columns
  const double aligned = flag(f.stores_aligned);
  const double by_copy = flag(f.stores_aligned && !f.problem.pointer_arrays);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double plain = x.is_tmaws[i] * (1 - x.of[lane("swap_ab")][i]);
    const double chunk = pick(plain, x.store_chunk[i], kWide);
    const double narrow = pick(flag(chunk == 32), kModel.copy_32, kModel.copy_16);
    const double copied = pick(flag(chunk >= kWide), 1, narrow);
    const double unaligned = kModel.unaligned * (2 - x.is_tmaws[i]) * kWide / chunk;
    const double direct = pick(flag(chunk >= 32), kModel.direct, kModel.direct_16);
    const double alone = pick(aligned, direct, unaligned);
    x.store_times[i] = pick(by_copy * x.of[lane("stores_by_copy")][i], copied, alone);
  }
}

// Cycles that a tile takes after its last step.
void fill_finish(const Facts& f, Lanes& x) {
  const double size_out = size_of(f.problem.out);
  const double each = output_cycles(f.problem.epilogue);
  const double copies = flag(f.stores_aligned && !f.problem.pointer_arrays);
  const double finished = flag(num_ops(f.problem.epilogue) > 0) * kModel.by_threads;
  const double by_fma = flag(by_fma_of(f));
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double splits = x.of[lane("splits")][i];
    const double out_bytes = x.of[lane("tile_mn")][i] * size_out;
    const double consumers = pick(x.is_pingpong[i], 1, x.of[lane("wave_m")][i]);
    const double threads = x.of[lane("block_threads")][i];
    const double storing = pick(x.is_tmaws[i], consumers, threads * kPerWarpgroup);
    const double times = x.store_times[i];
    const double slices = x.of[lane("slices")][i];
    const double sums = x.of[lane("tile_mn")][i] * 4 / splits;
    const double exchange = sums * (splits - 1) * kModel.split_byte;
    const double split = flag(splits > 1) * (kModel.split + kModel.split_each * splits + exchange);
    const double all = sums * (slices + 1);
    const double by_groups = kModel.fma_slice + all * kWarpgroup / threads * kModel.fma_slice_byte;
    const double slice =
        flag(slices > 1) * pick(by_fma, by_groups, kModel.slice + all * kModel.slice_byte);
    const double by_threads = x.is_tmaws[i] * (1 - copies * x.of[lane("stores_by_copy")][i]);
    const double steps = sums / 4 * (each + by_threads * finished) * (1 + x.is_pingpong[i]);
    x.finish_cycles[i] = kModel.finish + steps +
                         out_bytes / (storing * splits) * (kModel.finish_byte * times) + split +
                         slice;
  }
}

void fill_busy_cycles(const Facts& f, Lanes& x) {
  const double units = f.units;
  const double most_resident = f.target->backend == "cuda" ? kMaxBlocks : 1;
  const double cycle = 1 / f.hertz;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double stages = x.of[lane("stages")][i];
    const double cluster = x.of[lane("cluster_m")][i] * x.of[lane("cluster_n")][i];
    const double pingpong = x.is_pingpong[i];
    const double step = x.step_cycles[i];
    const double finish = x.finish_cycles[i];
    const double large = flag(x.of[lane("cluster_blocks")][i] > 2);
    const double reached = units * pick(large, kLargeClusters, 1);
    // Without blocks there is no estimate; 1 keeps the arithmetic finite.
    const double all = at_least(ceil_of(x.of[lane("blocks")][i] / reached), 1);
    const double together = at_most(at_most(x.of[lane("resident")][i], most_resident), all);
    const double arrival = kModel.latency + flag(cluster > 1) * kModel.cluster_wait;
    const double arrived = at_least(arrival / at_least(stages - 1, 1), x.alone_cycles[i]);
    const double waited = at_least(step + kModel.step, arrived) + x.load_cycles[i];
    const double started = kModel.shallow * cluster / at_least(stages, 1) +
                           pick(x.is_tmaws[i], 0, kModel.copy_start) +
                           flag(cluster > 1) * kModel.cluster_start;
    const double turns = ceil_of(all / pick(pingpong, 2, together));
    const double steps = x.of[lane("k_steps")][i] * waited;
    const double restarts = flag(x.of[lane("splits")][i] > 1) * (turns - 1) * kModel.restart;
    const double both = at_least(steps * all / turns, steps + finish);
    const double chain = turns * pick(pingpong, both, steps + finish) + restarts;
    const double pipe = all * x.of[lane("k_steps")][i] * step;
    const double last = finish * at_most(pingpong + flag(chain < pipe), 1);
    x.estimate_compute[i] = (started + at_least(chain, pipe) + last) * cycle;
  }
}

void fill_estimate(const Facts& f, Lanes& x) {
  const double hot_share = 1 / (f.units * kModel.hot_share * f.hertz);
  const double hot_seconds = kModel.hot_us * 1e-6;
  const double by_power = flag(f.target->backend == "cuda" && !by_fma_of(f));
  const double rate = f.bandwidth * kModel.memory_share;
  const double memory = f.bytes / rate;
  const double bytes = std::max(f.bytes, 1.0);
  const double launch = f.launch_seconds;
  const double fill = kModel.fill / f.hertz;
  const double units = f.units;
  const double useful = f.flops / 2;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const double blocks = x.of[lane("blocks")][i];
    const double some = flag(blocks > 0);
    const double block_macs = x.of[lane("k_steps")][i] * x.of[lane("tile_volume")][i];
    const double busy = x.estimate_compute[i];
    const double hot = blocks * block_macs * hot_share / x.macs[i];
    const double slower = at_least(hot - busy, 0) * busy / (busy + hot_seconds);
    const double compute = some * (busy + by_power * slower);
    const double moved = some * memory;
    const double issued = ceil_of(blocks / units) * units * block_macs;
    x.estimate_compute[i] = compute;
    x.estimate_memory[i] = moved;
    const double copied = x.copied_bytes[i];
    const double repack = flag(copied > 0) * (kModel.prepare_us * 1e-6 + 2 * copied / rate);
    x.estimate_overhead[i] =
        launch + some * (fill + repack) + kModel.overlap * at_most(compute, moved);
    x.of[lane("copied_ratio")][i] = copied / bytes;
    x.of[lane("estimate_utilisation")][i] = pick(flag(issued > 0), useful / at_least(issued, 1), 1);
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

void fill_gpu(const Facts& facts, Lanes& lanes) {
  fill_threads(facts, lanes);
  fill_shared_memory(lanes);
  fill_rounds(facts, lanes);
  fill_gpu_traffic(facts, lanes);
  fill_fma(facts, lanes);
  fill_steps(facts, lanes);
  fill_store_times(facts, lanes);
  fill_finish(facts, lanes);
  fill_busy_cycles(facts, lanes);
  fill_estimate(facts, lanes);
  clear_cpu(lanes);
}

// ---- CPUs: threads' shares, panels against caches, bytes by level ----

// Sizes over a cache that does not exist are 0.
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

// What is left when bytes and cycles are known.
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
