// How long a GPU kernel takes: the cycles of its busiest unit, compared with the time to move the
// problem's bytes once. The functions have no branches. They serve one kernel, or many kernels in a
// loop over lanes, with the same bits.
#pragma once

#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/families/tile/gpu_model.h"
#include "tessera/families/tile/simd_double.h"

namespace tessera::tile {

// What all kernels of a problem share. Flags are 1 or 0.
struct GpuCase {
  double k = 0, batch = 0, flops = 0, bytes = 0;
  double units = 1, hertz = 1, warp_size = 1;
  double shared_bytes = 0, registers = 0;  // of a unit, with what the machine reserves
  double most_resident = 1;                // the most blocks that run on a unit
  double bandwidth = 1;                    // bytes per second that kernels reach
  double launch_seconds = 0;
  double by_fma = 0;           // 1: fp32, multiplied by the ordinary cores
  double is_hot = 0;           // 1: long work meets the power limit
  double copy_cycles = 0;      // cycles of a unit for each byte that threads copy
  double is_loaded = 0;        // 1: no copy can move the rows where they lie
  double is_aligned = 0;       // 1: the output's rows begin at multiples of 16 bytes
  double by_copy = 0;          // 1: besides, the copy engine may write them
  double size_out = 1;         // bytes of an element
  double output_cycles = 0;    // cycles of the epilogue for each output
  double finished_cycles = 0;  // further cycles where threads finish and store
};

// The target's rates and all that follows from the types alone.
GpuCase gpu_case(const Target& target, DType a, DType out, const Epilogue& epilogue);

// One kernel. The functions below compute the second part, in that order.
struct GpuKernel {
  double is_tmaws, is_pingpong, swaps;
  double rows, columns;  // sizes of the output along tile_m and tile_n
  double tile_m, tile_n, tile_k, tile_mn, tile_volume;
  double wave_m, wave_n, num_waves;
  double lane_mn;  // outputs of a lane of a warp tile
  double splits, slices, stages, cluster_m, cluster_n, cluster_blocks;
  double size_m, size_n;  // bytes of an element of the operand along tile_m and tile_n
  double macs;            // multiply-adds of a unit in a cycle
  double shared_bytes, store_chunk, stores_by_copy;
  double copied_bytes, fetch_share;

  double tiles_m, tiles_n, tiles_k, k_steps;
  double block_threads, accumulators, resident, blocks;
  double step_bytes, step_operand_bytes;
  double fma_cycles, alone_cycles;  // of one step of an fp32 kernel
  double step_cycles, load_cycles, store_times, finish_cycles, busy_seconds;
};

// The numbers that the algorithm alone says.
GpuKernel gpu_kernel(const Algorithm& algorithm);
// Counts, for a kernel whose tiles down and right are counted, a block's steps along k, the blocks,
// and what a step takes of a unit besides loads.
void count_steps(const GpuCase& c, GpuKernel& x);

// ---- threads and rounds of blocks ----

inline double block_threads(const GpuCase& c, const GpuKernel& x) {
  const double producers = pick(flag(x.wave_m == 1), c.warp_size, device::kGroupThreads);
  return pick(x.is_tmaws, device::kGroupThreads * x.wave_m + producers, x.num_waves * c.warp_size);
}

inline double accumulators(const GpuCase& c, const GpuKernel& x) {
  const double consumers = device::kGroupThreads * pick(x.is_pingpong, 1, x.wave_m);
  return x.tile_mn / pick(x.is_tmaws, consumers, x.num_waves * c.warp_size);
}

// Blocks that run on a unit at a time. One block of a tmaws kernel with several consumers takes all
// registers.
inline double resident_blocks(const GpuCase& c, const GpuKernel& x) {
  const double by_shared = c.shared_bytes / (x.shared_bytes + device::kSharedReserve);
  const double by_registers =
      c.registers / ((device::kRegistersBesides + x.accumulators) * x.block_threads);
  const double fit = at_most(at_least(floor_of(at_most(by_shared, by_registers)), 1), kMaxBlocks);
  return pick(x.is_tmaws * flag(x.wave_m > 1), 1, fit);
}

// The number of all blocks, in whole clusters.
inline double all_blocks(const GpuCase& c, const GpuKernel& x) {
  const double clusters_m = ceil_of(x.tiles_m / x.cluster_m);
  const double clusters_n = ceil_of(x.tiles_n / x.cluster_n);
  return clusters_m * clusters_n * (x.cluster_blocks * x.slices) * c.batch;
}

// ---- bytes of a block's step of tile_k ----

inline double step_bytes(const GpuKernel& x) {
  return x.tile_k * (x.tile_m * x.size_m / x.cluster_n + x.tile_n * x.size_n / x.cluster_m);
}

// wgmma reads 64 rows of one operand each time that it reads the other one. Warps read their own
// parts.
inline double step_operand_bytes(const GpuKernel& x) {
  const double reads_m = pick(x.is_tmaws, 1, x.wave_n);
  const double reads_n = pick(x.is_tmaws, x.tile_m / device::kWgmmaRows, x.wave_m);
  return x.tile_k * (x.tile_m * reads_m * x.size_m + x.tile_n * reads_n * x.size_n);
}

// ---- cycles of a step ----

// Cycles of an fp32 step of a block among other blocks.
inline double fma_cycles(const GpuCase& c, const GpuKernel& x) {
  const double warps = x.num_waves * 0.25;
  return c.by_fma * x.tile_k * (x.lane_mn * warps * kGpuModel.fma + kGpuModel.fma_among);
}
// The same for a block that is alone on its unit.
inline double alone_cycles(const GpuCase& c, const GpuKernel& x) {
  const double warps = ceil_of(x.num_waves * 0.25);
  return c.by_fma * x.tile_k * (x.lane_mn * warps * kGpuModel.fma + kGpuModel.fma_alone);
}

// Cycles of a step that waits for nothing.
inline double step_cycles(const GpuCase& c, const GpuKernel& x) {
  constexpr double kPerFetch = 1 / kGpuModel.fetch;
  constexpr double kPerShared = 1 / kGpuModel.shared;
  constexpr double kPerTensorShare = 1 / kGpuModel.tensor_share;
  const double by_threads = 1 - x.is_tmaws;
  const double multiply = x.tile_volume / x.macs * kPerTensorShare;
  const double copies = x.step_bytes * c.copy_cycles * by_threads;
  const double read = x.step_operand_bytes * kPerShared;
  const double fetch = x.step_bytes * kPerFetch / x.fetch_share;
  const double most = at_least(at_least(multiply, read), at_least(fetch, copies));
  const double fma = at_least(x.fma_cycles, fetch);
  return pick(c.by_fma, fma, most * (1 + kGpuModel.copies * by_threads));
}

// Copies move 4 bytes or more. Threads load rows that lie at other distances, and wait for the
// loads.
inline double load_cycles(const GpuCase& c, const GpuKernel& x) {
  const double each = at_least(x.step_bytes * 0.0625 / x.block_threads, 1);
  const double loads = kGpuModel.load * pick(flag(each > kGpuModel.loads), each, 1);
  return loads * (1 - x.is_tmaws) * c.is_loaded;
}

// ---- cycles of a tile after its last step ----

// How many times longer it takes to store a byte than by the copy engine in wide chunks.
inline double store_times(const GpuCase& c, const GpuKernel& x) {
  constexpr double kWide = 64;  // columns
  const double chunk = pick(x.is_tmaws * (1 - x.swaps), x.store_chunk, kWide);
  const double narrow = pick(flag(chunk == 32), kGpuModel.copy_32, kGpuModel.copy_16);
  const double copied = pick(flag(chunk >= kWide), 1, narrow);
  const double unaligned = kGpuModel.unaligned * (2 - x.is_tmaws) * kWide / chunk;
  const double direct = pick(flag(chunk >= 32), kGpuModel.direct, kGpuModel.direct_16);
  return pick(c.by_copy * x.stores_by_copy, copied, pick(c.is_aligned, direct, unaligned));
}

inline double finish_cycles(const GpuCase& c, const GpuKernel& x) {
  constexpr double kGroup = device::kGroupThreads;
  constexpr double kPerGroup = 1 / kGroup;
  const double out_bytes = x.tile_mn * c.size_out;
  const double consumers = pick(x.is_pingpong, 1, x.wave_m);
  const double storing = pick(x.is_tmaws, consumers, x.block_threads * kPerGroup);
  const double sums = x.tile_mn * 4 / x.splits;  // bytes, of an owner
  const double exchange = sums * (x.splits - 1) * kGpuModel.split_byte;
  const double split =
      flag(x.splits > 1) * (kGpuModel.split + kGpuModel.split_each * x.splits + exchange);
  const double all = sums * (x.slices + 1);
  const double by_groups =
      kGpuModel.fma_slice + all * kGroup / x.block_threads * kGpuModel.fma_slice_byte;
  const double slice =
      flag(x.slices > 1) * pick(c.by_fma, by_groups, kGpuModel.slice + all * kGpuModel.slice_byte);
  const double by_threads = x.is_tmaws * (1 - c.by_copy * x.stores_by_copy);
  const double steps =
      sums / 4 * (c.output_cycles + by_threads * c.finished_cycles) * (1 + x.is_pingpong);
  return kGpuModel.finish + steps +
         out_bytes / (storing * x.splits) * (kGpuModel.finish_byte * x.store_times) + split + slice;
}

// ---- seconds ----

// Seconds of the busiest unit. The steps of a block wait for their data when too few stages are on
// the way. Meanwhile other blocks of the unit multiply; with pingpong, one consumer multiplies
// while the other one stores.
inline double busy_seconds(const GpuCase& c, const GpuKernel& x) {
  const double cluster = x.cluster_m * x.cluster_n;
  const double step = x.step_cycles;
  const double finish = x.finish_cycles;
  const double reached = c.units * pick(flag(x.cluster_blocks > 2), kLargeClusters, 1);
  // Without blocks there is no estimate; 1 keeps the arithmetic finite.
  const double all = at_least(ceil_of(x.blocks / reached), 1);
  const double together = at_most(at_most(x.resident, c.most_resident), all);
  const double arrival = kGpuModel.latency + flag(cluster > 1) * kGpuModel.cluster_wait;
  const double arrived = at_least(arrival / at_least(x.stages - 1, 1), x.alone_cycles);
  const double waited = at_least(step + kGpuModel.step, arrived) + x.load_cycles;
  const double started = kGpuModel.shallow * cluster / at_least(x.stages, 1) +
                         pick(x.is_tmaws, 0, kGpuModel.copy_start) +
                         flag(cluster > 1) * kGpuModel.cluster_start;
  const double turns = ceil_of(all / pick(x.is_pingpong, 2, together));
  const double steps = x.k_steps * waited;
  const double restarts = flag(x.splits > 1) * (turns - 1) * kGpuModel.restart;
  const double both = at_least(steps * all / turns, steps + finish);
  const double chain = turns * pick(x.is_pingpong, both, steps + finish) + restarts;
  const double pipe = all * x.k_steps * step;
  const double last = finish * at_most(x.is_pingpong + flag(chain < pipe), 1);
  return (started + at_least(chain, pipe) + last) * (1 / c.hertz);
}

struct GpuSeconds {
  double compute, memory, overhead, utilisation;
};

// Long work on tensor cores heats the machine until its power limit slows it down. Repacking an
// operand reads and writes it once more.
inline GpuSeconds gpu_seconds(const GpuCase& c, const GpuKernel& x) {
  const double hot_share = 1 / (c.units * kGpuModel.hot_share * c.hertz);
  const double some = flag(x.blocks > 0);
  const double block_macs = x.k_steps * x.tile_volume;
  const double busy = x.busy_seconds;
  const double hot = x.blocks * block_macs * hot_share / x.macs;
  const double slower = at_least(hot - busy, 0) * busy / (busy + kGpuModel.hot_us * 1e-6);
  const double compute = some * (busy + c.is_hot * slower);
  const double memory = some * (c.bytes / c.bandwidth);
  const double issued = ceil_of(x.blocks / c.units) * c.units * block_macs;
  const double repack =
      flag(x.copied_bytes > 0) * (kGpuModel.prepare_us * 1e-6 + 2 * x.copied_bytes / c.bandwidth);
  const double overhead = c.launch_seconds + some * (kGpuModel.fill / c.hertz + repack) +
                          kGpuModel.overlap * at_most(compute, memory);
  const double useful = c.flops / 2;
  return {compute, memory, overhead, pick(flag(issued > 0), useful / at_least(issued, 1), 1)};
}

}  // namespace tessera::tile
