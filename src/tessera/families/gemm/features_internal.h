// The parts of the feature extractor: facts of a problem, lanes of candidates, and what fills them.
#pragma once

#include <bit>
#include <cstdint>

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/families/gemm/features_table_internal.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

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
  bool stores_aligned = true;
  double units = 1;  // CPU: threads
  double hertz = 1;  // cycles of a unit in a second
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

// Candidates are looked at so many at a time, in loops of fixed length that compilers turn into
// vector instructions. A lane never depends on its neighbours.
inline constexpr std::size_t kLanes = 120;
using Lane = double[kLanes];

struct Lanes {
  Lane of[kNumLanes];  // features: of[lane("tile_m")][i]
  // What is no feature itself.
  Lane rows, columns;   // of the side that tile_m and tile_n cover
  Lane size_m, size_n;  // of an element of that side's operand
  Lane k_contiguous_m, k_contiguous_n;
  Lane is_tmaws, is_pingpong;
  Lane macs;                    // of a unit in a cycle
  Lane capacity;                // bytes of shared memory
  Lane share_k, share_batches;  // CPU: of the busiest thread
  Lane packs_a, packs_b;        // CPU: 1: the pipeline packs the operand
  Lane tiled_bytes, operand_bytes, packed_bytes;
  Lane copied_bytes, fetch_share, store_chunk, store_times;  // GPU
  Lane compute_cycles;                                       // of the busiest unit
  Lane step_bytes, step_operand_bytes;                       // GPU: of a block's step of tile_k
  Lane step_cycles, load_cycles, finish_cycles;              // GPU
  Lane fma_cycles, alone_cycles;                             // GPU: of a step of fp32
  Lane shared_with_d;  // bytes where D tensors come to the store area, else 0
  Lane estimate_compute, estimate_memory, estimate_overhead;  // seconds
  SharingMemo sharing;
};

consteval std::size_t lane(std::string_view name) { return feature(name) - kFirstLane; }

// Reads candidates into lanes; lanes after the last candidate repeat it.
void gather(const Facts& facts, std::span<const KernelSpec> specs, Lanes& lanes);

// Computes what is left, with the widest vectors of this machine and with any machine's: the bits
// are the same.
void fill(const Facts& facts, Lanes& lanes);
void fill_portable(const Facts& facts, Lanes& lanes);

// ---- arithmetic that compilers can do in vectors, the same on every machine ----

inline double flag(bool value) { return value ? 1.0 : 0.0; }
inline double pick(double condition, double yes, double no) { return condition != 0 ? yes : no; }

// The nearest whole number below and above x >= 0: adding 2^52 leaves no bits for a fraction. From
// 2^52 on the result may differ from x by a last bit.
constexpr double kWholeNumbers = 0x1p52;
inline double floor_of(double x) {
  const double near = (x + kWholeNumbers) - kWholeNumbers;
  return near - flag(near > x);
}
inline double ceil_of(double x) {
  const double near = (x + kWholeNumbers) - kWholeNumbers;
  return near + flag(near < x);
}
inline double at_least(double x, double least) { return x < least ? least : x; }
inline double at_most(double x, double most) { return x > most ? most : x; }

// log2 of a positive normal number, exact for powers of 2 and else within 1e-13: the exponent, and
// 2 / ln 2 * artanh((f - 1) / (f + 1)) for the fraction f between 1/sqrt(2) and sqrt(2).
inline double log2_of(double x) {
  constexpr double kScale = 2.8853900817779268;  // 2 / ln 2
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const double fraction =
      std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  const double exponent =
      std::bit_cast<double>((bits >> 52) | 0x4330000000000000ULL) - (kWholeNumbers + 1023);
  const double upper = flag(fraction > 1.4142135623730951);
  const double f = fraction - 0.5 * upper * fraction;
  const double s = (f - 1) / (f + 1);
  const double z = s * s;
  double sum = 1.0 / 15;
  for (const double term : {1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0}) {
    sum = sum * z + term;
  }
  return exponent + upper + kScale * s * sum;
}

}  // namespace tessera::gemm
