// The constants of the estimate of GPU kernels, and what it reads off a target's row.
#pragma once

#include "tessera/spec/epilogue.h"
#include "tessera/spec/target.h"

namespace tessera::tile {

// What the rows do not tell. Source: 260 bf16 kernels timed on 38 shapes on an H200 (L2 flushed,
// medians of 11 to 17 runs in random order) and these numbers fitted to them together, so that the
// kernel with the least estimate is nearly the fastest. They are not measured one by one. `direct`
// is a guess, for all but a few of the kernels stored by the copy engine; `load` is derived from
// one kernel on rows of odd length; `split_byte`, `restart`, `slice`, `slice_byte` and `prepare_us`
// come from 40 further kernels on 8 shapes, `unaligned`, `fetch_16` to `fetch_64`, `narrow_copy`,
// `copy_32` and `copy_16` from a sweep of 533 kernels over 1481 problems.
struct GpuModel {
  double tensor_share = 0.995;  // of the instruction's rate that a full pipe reaches
  double step = 22;             // cycles between the steps of K of one consumer
  double latency = 2129;        // cycles from a tile's request to its arrival, the unit being busy
  double cluster_wait = 1120;   // cycles that a request takes longer for a cluster
  double cluster_start = 2500;  // cycles longer until the first blocks of clusters multiply
  double shallow = 400;         // cycles over stages: deeper wins among equals (chosen, not fitted)
  double fill = 4419;           // cycles before the first blocks multiply
  double finish = 710;          // cycles of a tile's epilogue ...
  double finish_byte = 0.02355;  // ... and for each byte of it that a warpgroup stores
  // Measured beside the same kernels without: cycles that a unit's schedulers take for each output
  // of a step, twice as long where pingpong leaves them one warp each.
  double gelu = 0.18, function = 0.12, read = 0.05;
  double by_threads = 0.85;     // the same where threads finish and store, not the copy engine
  double copy_32 = 2;           // times that by the copy engine in chunks of 32 columns ...
  double copy_16 = 5;           // ... and of fewer
  double direct = 2;            // times that where threads store by themselves,
  double direct_16 = 6.5;       // in chunks of fewer than 32 columns, ...
  double unaligned = 14;        // ... and rows begin anywhere, 64 columns at a time
  double split = 1317;          // cycles to add up the parts of K ...
  double split_each = 18;       // ... and for each of them
  double split_byte = 0.03;     // ... and for each byte that its blocks exchange
  double restart = 5500;        // cycles between the blocks of a split that follow each other
  double slice = 3000;          // cycles to add up slices of K through L2 ...
  double slice_byte = 0.025;    // ... and for each byte of them
  double prepare_us = 4.5;      // that a kernel which comes first takes to start and end
  double fetch = 69.7;          // bytes of L2 that a unit reads in a cycle ...
  double fetch_16 = 0.42;       // ... times this with rows at odd multiples of 16 bytes,
  double fetch_32 = 0.8;        // ... of 32,
  double fetch_64 = 0.95;       // ... of 64
  double shared = 86.4;         // bytes of shared memory that its instructions read in a cycle
  double copies = 0.05;         // time lost where the multiplying threads copy as well
  double issue = 3;             // cycles of a unit for each warp's copy of 16 bytes a thread
  double copy_start = 2800;     // cycles longer until the first blocks multiply
  double narrow_copy = 0.15;    // cycles of a unit for each byte in narrower copies
  double load = 700;            // cycles that a thread waits for loads that no copy can do ...
  double loads = 4;             // ... of so many at a time; beyond that, for one after the other
  double memory_share = 0.961;  // of the peak bandwidth
  double overlap = 0.514;       // of the lesser of multiplying and moving, that adds up
  double hot_share = 0.531;     // of the instruction's rate that the power allows in the long run
  double hot_us = 6409;         // of work after which half of that limit holds
  // Kernels of fp32, fitted to 230 of them on 8 problems: cycles of a unit for each of its cycles
  // of fma, and beside them for each k of a block, among others and alone; slices of K as above,
  // by groups of 128 threads.
  double fma = 1.013, fma_among = 17, fma_alone = 20;
  double fma_slice = 8000, fma_slice_byte = 0.14;
};

inline constexpr GpuModel kGpuModel = {};

// Clusters of 4 do not reach every unit: 30 of them run at a time on 132 (the driver's count).
inline constexpr double kLargeClusters = 120.0 / 132;

// What limits the blocks that a unit of a GPU runs at a time.
inline constexpr double kMaxBlocks = 8;  // of a unit that are of any use

// Multiplications of a unit in a cycle by its best instruction, or without wgmma and mfma; mixed
// 8-bit floats run at the first one's rate. 1 where there is none.
double gpu_macs_per_cycle(DType a, DType b, const Target& target, bool wide);

// Cycles that the epilogue's steps take a unit's schedulers for each output.
double output_cycles(const Epilogue& epilogue);

}  // namespace tessera::tile
