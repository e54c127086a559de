// The parts of the feature extractor: the facts of a problem, the lanes of candidates, and the
// functions that fill them.
#pragma once

#include <optional>

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/families/gemm/features_table_internal.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/features.h"
#include "tessera/families/tile/gpu_estimate.h"
#include "tessera/families/tile/simd_double.h"

namespace tessera::gemm {

using tile::at_least;
using tile::at_most;
using tile::ceil_of;
using tile::flag;
using tile::floor_of;
using tile::kLanes;
using tile::kLeastSeconds;
using tile::Lane;
using tile::log2_of;
using tile::number;
using tile::pick;
using tile::quotient;

// Features that every candidate of a problem shares.
using Broadcast = std::array<double, kFirstLane>;

// What is the same for all kernels of a pipeline. A GPU multiplies so much in a cycle of an SM or
// CU, and so many bytes of shared memory may be used.
struct PipelineFacts {
  const Types::Own* own = nullptr;
  double macs = 1, capacity = 1;
};

// What the lanes need to know about the problem and the machine, looked up once. A rate of 0 means
// that there is no such rate.
struct Facts {
  GemmProblem problem;  // with its strides filled in, and batches in the place of groups
  const GemmProblem* asked = nullptr;  // as the caller has it
  bool singly = false;  // whether each kernel's estimate is asked for, because no lanes count it
  const Target* target = nullptr;
  const BackendFacts* machine = nullptr;
  bool on_cpu = false;
  int threads = 1;
  double m = 0, n = 0, k = 0, batch = 0;
  double flops = 0, bytes = 0;
  double copied_bytes = 0;  // bytes that a tmaws kernel with repack copies first
  double fetch_share = 1;   // share of L2's rate at which the rows are read in place
  double units = 1;         // on a CPU, the threads
  double hertz = 1;         // cycles per second
  double bandwidth = 1;
  double launch_seconds = 0;
  double ideal_log2 = 0;
  double l1 = 0, l2 = 0, l3 = 0;     // bytes; 0: there is no such cache
  double l1_rate = 1, l2_rate = 1;   // bytes that a unit reads from that cache in a cycle
  std::array<double, 5> cpu_macs{};  // multiply-adds of a core in a cycle; the index is warp_tile_k
  double wide_macs = 1;  // multiply-adds of an SM or CU in a cycle by its widest instruction
  // Pipeline::amx is the last one.
  std::array<PipelineFacts, static_cast<std::size_t>(Pipeline::amx) + 1> pipelines{};
  std::optional<tile::GpuCase> gpu;  // none for a CPU
};
// Whether the problem has groups or scales, which estimates count kernel by kernel.
bool asks_for_more(const GemmProblem& problem);

// `problem` must outlive the facts.
Facts facts_of(const GemmProblem& problem, const Target& target, int threads);
Broadcast broadcast_of(const Facts& facts);

// How the threads of a CPU share a problem, and the share of the busiest thread.
struct Sharing {
  device::Grid grid;
  int over_k;
  double batches, rows, columns, k;
};

// The part of a kernel that sharing depends on. Few candidates differ in it and finding a grid is
// slow, so the last results are kept.
struct SharingKey {
  Shape3 wave, warp_tile;
  int tile_k = 0;  // 0: none
  int words_of_step = 1;
  bool streams = false;
  friend bool operator==(const SharingKey&, const SharingKey&) = default;
};
struct SharingMemo {
  std::array<SharingKey, 64> keys{};
  std::array<Sharing, 64> values{};
};

struct Lanes {
  Lane of[kNumLanes];  // features: of[lane("tile_m")][i]
  // Intermediate values that are not features.
  Lane rows, columns;   // sizes of the output along tile_m and tile_n
  Lane size_m, size_n;  // bytes of an element of the operand along them
  Lane is_tmaws, is_pingpong;
  Lane macs;                    // multiply-adds of a unit in a cycle
  Lane capacity;                // bytes of shared memory
  Lane share_k, share_batches;  // CPU: share of the busiest thread
  Lane packs_a, packs_b;        // CPU: 1 when the pipeline packs the operand
  Lane tiled_bytes, operand_bytes, packed_bytes;
  Lane copied_bytes, fetch_share, store_chunk, store_times;  // GPU
  Lane compute_cycles;                                       // of the busiest unit
  Lane step_bytes, step_operand_bytes;  // GPU: bytes of a block's step of tile_k
  Lane step_cycles, load_cycles, finish_cycles, busy_seconds;  // GPU
  Lane fma_cycles, alone_cycles;  // GPU: cycles of a step of an fp32 kernel
  Lane estimate_compute, estimate_memory, estimate_overhead;  // seconds
  SharingMemo sharing;
};

consteval std::size_t lane(std::string_view name) { return feature(name) - kFirstLane; }

// Reads candidates into lanes. Lanes after the last candidate repeat the last one.
void gather(const Facts& facts, std::span<const KernelSpec> specs, Lanes& lanes);

// Both compute the remaining features, with the same bits: fill() with the widest vectors of this
// machine, fill_portable() with instructions that any machine has.
void fill(const Facts& facts, Lanes& lanes);
void fill_portable(const Facts& facts, Lanes& lanes);

}  // namespace tessera::gemm
