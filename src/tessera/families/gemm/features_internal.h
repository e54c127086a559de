// The parts of the feature extractor: facts of a problem, lanes of candidates, and what fills them.
#pragma once

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/families/gemm/features_table_internal.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/gpu_estimate.h"
#include "tessera/families/tile/lanes.h"

namespace tessera::gemm {

using tile::at_least;
using tile::at_most;
using tile::ceil_of;
using tile::flag;
using tile::floor_of;
using tile::kLanes;
using tile::Lane;
using tile::log2_of;
using tile::pick;

inline constexpr double kLeastSeconds = 1e-9;  // of any predicted time

// Features that every candidate of a problem shares.
using Broadcast = std::array<double, kFirstLane>;

// What the lanes need of the problem and the machine, looked up once. Rates of 0 are no rates.
struct Facts {
  GemmProblem problem;  // strides filled in
  const Target* target = nullptr;
  bool on_cpu = false;
  int threads = 1;
  double m = 0, n = 0, k = 0, batch = 0;
  double flops = 0, bytes = 0;
  double copied_bytes = 0;  // by a tmaws kernel that repacks
  double fetch_share = 1;   // of L2 rate, where rows lie
  double units = 1;         // CPU: threads
  double hertz = 1;         // cycles of a unit in a second
  double bandwidth = 1;
  double launch_seconds = 0;
  double ideal_log2 = 0;
  double l1 = 0, l2 = 0, l3 = 0;     // bytes; 0: there is no such cache
  double l1_rate = 1, l2_rate = 1;   // bytes that a unit reads in a cycle
  std::array<double, 5> cpu_macs{};  // of a core in a cycle, by products of a lane (warp_tile_k)
  double wide_macs = 1;              // of an SM or CU in a cycle by its widest instruction
  double narrow_macs = 1;            // ... by the one that cpasync uses
  std::array<double, static_cast<std::size_t>(Pipeline::mem) + 1>
      capacity{};  // bytes of shared memory that a pipeline may use
  tile::GpuCase gpu;
};
Facts facts_of(const GemmProblem& problem, const Target& target, int threads);
Broadcast broadcast_of(const Facts& facts);

// How the threads of a CPU share a problem, and what the busiest of them gets.
struct Sharing {
  device::Grid grid;
  int over_k;
  double batches, rows, columns, k;
};

// The part of a kernel that sharing depends on. Few candidates differ in it, and finding a grid is
// slow: the last answers are kept.
struct SharingKey {
  Shape3 wave, warp_tile;
  int tile_k = 0;  // 0: none
  bool stream = false;
  friend bool operator==(const SharingKey&, const SharingKey&) = default;
};
struct SharingMemo {
  std::array<SharingKey, 64> keys{};
  std::array<Sharing, 64> values{};
};

struct Lanes {
  Lane of[kNumLanes];  // features: of[lane("tile_m")][i]
  // What is no feature itself.
  Lane rows, columns;   // of the side that tile_m and tile_n cover
  Lane size_m, size_n;  // of an element of that side's operand
  Lane is_tmaws, is_pingpong;
  Lane macs;                    // of a unit in a cycle
  Lane capacity;                // bytes of shared memory
  Lane share_k, share_batches;  // CPU: of the busiest thread
  Lane packs_a, packs_b;        // CPU: 1: the pipeline packs the operand
  Lane tiled_bytes, operand_bytes, packed_bytes;
  Lane copied_bytes, fetch_share, store_chunk, store_times;    // GPU
  Lane compute_cycles;                                         // of the busiest unit
  Lane step_bytes, step_operand_bytes;                         // GPU: of a block's step of tile_k
  Lane step_cycles, load_cycles, finish_cycles, busy_seconds;  // GPU
  Lane fma_cycles, alone_cycles;                               // GPU: of a step of fp32
  Lane estimate_compute, estimate_memory, estimate_overhead;   // seconds
  SharingMemo sharing;
};

consteval std::size_t lane(std::string_view name) { return feature(name) - kFirstLane; }

// Reads candidates into lanes; lanes after the last candidate repeat it.
void gather(const Facts& facts, std::span<const KernelSpec> specs, Lanes& lanes);

// Computes what is left, with the widest vectors of this machine and with any machine's: the bits
// are the same.
void fill(const Facts& facts, Lanes& lanes);
void fill_portable(const Facts& facts, Lanes& lanes);

}  // namespace tessera::gemm
