// The constants of the estimate for GPU kernels, and the numbers that the estimate takes from a
// target's row.
#pragma once

#include "tessera/spec/epilogue.h"
#include "tessera/spec/target.h"

namespace tessera::tile {

// Numbers that a target's row does not hold. Source: 260 bf16 kernels were timed on 38 shapes on an
// H200 (L2 flushed, medians of 11 to 17 runs in random order), and all numbers were fitted to these
// times together, so that the kernel with the least estimate is nearly the fastest. No number was
// measured by itself. `direct` is a guess, because nearly all of those kernels stored by the copy
// engine. `load` comes from one kernel on rows of odd length. `split_byte`, `restart`, `slice`,
// `slice_byte` and `prepare_us` come from 40 further kernels on 8 shapes. `unaligned`, `fetch_16`
// to `fetch_64`, `narrow_copy`, `copy_32` and `copy_16` come from a sweep of 533 kernels over 1481
// problems. `stream` comes from 230 problems of 64 to 2048 rows on an H100, so that the choice is
// nearest to the best kernel. "Cycles" are clock cycles of a unit.
struct GpuModel {
  double tensor_share = 0.995;  // share of the instruction's rate that a full pipe reaches
  double step = 22;             // cycles between two steps of K of one consumer
  double latency = 2129;        // cycles from a tile's request to its arrival on a busy unit
  double cluster_wait = 1120;   // further cycles of a request for a cluster
  double cluster_start = 2500;  // further cycles until the first blocks of clusters multiply
  double shallow = 400;  // cycles, divided by stages: more stages win among equals (chosen, not
                         // fitted)
  double fill = 4419;    // cycles before the first blocks multiply
  double finish = 710;   // cycles of a tile's epilogue
  double finish_byte = 0.02355;  // further cycles for each byte that a warpgroup stores
  // Cycles that a unit's schedulers take for each output of an epilogue step, measured beside the
  // same kernels without the step. They double where pingpong leaves each scheduler one warp.
  double gelu = 0.18, function = 0.12, read = 0.05;
  double by_threads = 0.85;   // further cycles for each output of an epilogue where threads store
  double copy_32 = 2;         // store time in chunks of 32 columns, over that of wide chunks
  double copy_16 = 5;         // the same for chunks of fewer columns
  double direct = 2;          // store time by threads, over that of the copy engine
  double direct_16 = 6.5;     // the same in chunks of fewer than 32 columns
  double unaligned = 14;      // the same for unaligned rows, 64 columns at a time
  double split = 1317;        // cycles to add up the parts of a split K
  double split_each = 18;     // further cycles for each part
  double split_byte = 0.03;   // further cycles for each byte that the blocks exchange
  double restart = 5500;      // cycles between two blocks of a split on one unit
  double slice = 3000;        // cycles to add up slices of K through L2
  double slice_byte = 0.025;  // further cycles for each byte of the slices
  double stream = 1.8;        // times as long as alone takes a step that all units share out
  double prepare_us = 4.5;    // microseconds to start and end a kernel that runs first
  double fetch = 69.7;        // bytes that a unit reads from L2 in a cycle
  double fetch_16 = 0.42;     // share of `fetch` with rows at odd multiples of 16 bytes
  double fetch_32 = 0.8;      // the same at odd multiples of 32 bytes
  double fetch_64 = 0.95;     // the same at odd multiples of 64 bytes
  double shared = 86.4;       // bytes that a unit's instructions read from shared memory in a cycle
  double copies = 0.05;       // share of time lost where the multiplying threads also copy
  double issue = 3;           // cycles for each copy of a warp, 16 bytes a thread
  double copy_start = 2800;   // further cycles until the first blocks multiply
  double narrow_copy = 0.15;  // cycles for each byte in narrower copies
  double load = 700;          // cycles that a thread waits for loads that no copy can do
  double loads = 4;           // loads that are waited for together; further ones wait in turn
  double memory_share = 0.961;  // share of the peak bandwidth that kernels reach
  double overlap = 0.514;       // share of the shorter of computing and moving that is not hidden
  double hot_share = 0.531;     // share of the instruction's rate that the power limit allows
  double hot_us = 6409;         // microseconds of work after which half of that limit holds
  // For fp32 kernels, fitted to 230 kernels on 8 problems. `fma` is the cycles for each cycle of
  // fma instructions. `fma_among` and `fma_alone` are further cycles for each k of a block: of a
  // block among others, and of a block that is alone on its unit. `fma_slice` and `fma_slice_byte`
  // are as `slice` and `slice_byte`, for each group of 128 threads.
  double fma = 1.013, fma_among = 17, fma_alone = 20;
  double fma_slice = 8000, fma_slice_byte = 0.14;
};

inline constexpr GpuModel kGpuModel = {};

// The share of units that clusters of 4 blocks reach: 30 such clusters run at a time on 132 units
// (the driver's count).
inline constexpr double kLargeClusters = 120.0 / 132;

// A unit that runs more blocks than this at a time gains nothing.
inline constexpr double kMaxBlocks = 8;

// Multiply-adds of a unit in a cycle by its best instruction, or, unless `wide`, by its best one
// besides wgmma and mfma. Mixed 8-bit floats run at the rate of A's type. 1 when the target has no
// instruction.
double gpu_macs_per_cycle(DType a, DType b, const Target& target, bool wide);

// Cycles that a unit's schedulers take for the epilogue's steps, for each output.
double output_cycles(const Epilogue& epilogue);

}  // namespace tessera::tile
