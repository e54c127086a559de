// The analytic estimate of kernels for AMD GPUs. It follows from the target's row and a few
// constants of which none was measured: it says which kernel does least of what takes longest, not
// how long.
#include <algorithm>
#include <cmath>

#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

// Guesses, in cycles of a CU unless they say otherwise.
constexpr double kTileLatency = 1200;   // from a tile's request to its arrival
constexpr double kBarrier = 40;         // of the waves of a block, for each tile of K
constexpr double kFirstTile = 3000;     // before a block's first MFMA
constexpr double kStoreStart = 400;     // of a tile's epilogue
constexpr double kStoreByte = 0.05;     // further, for each byte of the output
constexpr double kSliceMeeting = 4000;  // of the slices of a tile
constexpr double kSumTimes = 2;         // times that a sum's bytes take, of the operands'
constexpr double kGeneralMacs =
    24;  // multiply-adds that a CU of the general kernel does in a cycle
constexpr double kGeneralRegisters = 128;
constexpr double kNotHidden = 0.25;  // share of the shorter of computing and moving
constexpr double kMostResidentBlocks = 8;
constexpr double kUnalignedRows = 8;  // times that dwords which are not aligned take to fetch

double rate_of(const Target& target, std::size_t level) {
  if (level >= target.caches.size()) return 0;
  return target.caches[level].bytes_per_cycle;
}

struct HipCase {
  const KernelSpec& spec;
  const GemmProblem& p;
  const Target& target;
  double units = 1, hertz = 1;
  double tiles_m = 0, tiles_n = 0, steps = 0;  // steps of K of a block
  double blocks = 0;
  double size_a = 1, size_b = 1;

  const Algorithm& algorithm() const { return spec.algorithm; }
  bool is_general() const { return spec.algorithm.pipeline == Pipeline::direct; }
};

HipCase case_of(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  HipCase c{.spec = spec, .p = p, .target = target};
  c.units = std::max(1, target.units);
  c.hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  c.tiles_m = blocks(static_cast<double>(p.m), a.tile.m);
  c.tiles_n = blocks(static_cast<double>(p.n), a.tile.n);
  c.steps = blocks(blocks(static_cast<double>(p.k), a.tile.k), a.slices);
  c.blocks = c.tiles_m * c.tiles_n * a.slices * static_cast<double>(p.batch);
  c.size_a = size_of(p.a);
  c.size_b = size_of(p.b);
  return c;
}

// Multiply-adds of a CU in a cycle by the widest MFMA that divides the warp tile.
double mfma_macs(const HipCase& c) {
  if (c.is_general()) return kGeneralMacs;
  const Shape3& w = c.algorithm().warp_tile;
  double best = 1;
  for (const Instruction& i : c.target.instructions) {
    const bool fits = i.a == c.p.a && i.shape.m == w.m && w.k % std::max(1, i.shape.k) == 0;
    if (fits) best = std::max(best, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return best;
}

double tile_bytes(const HipCase& c) {
  const Shape3& t = c.algorithm().tile;
  return t.k * (t.m * c.size_a + t.n * c.size_b);
}

double resident(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  const auto& s = std::get<GemmSignature>(c.spec.signature);
  const double lanes = tile::block_lanes(a, c.target);
  const double lds = std::max(1.0, static_cast<double>(hip_lds_bytes(c.spec)));
  const double registers = c.is_general()
                               ? kGeneralRegisters
                               : device::mfma_registers(tile::mfma_shape(
                                     a, mfma_operands(s, a.pipeline), c.target.warp_size));
  const double by_lds = static_cast<double>(c.target.shared_memory_bytes) / lds;
  const double by_registers = c.target.registers_per_unit / (registers * lanes);
  return std::clamp(std::floor(std::min(by_lds, by_registers)), 1.0, kMostResidentBlocks);
}

// Cycles in which a CU multiplies, moves LDS and fetches a step: the longest of them, and a part of
// the others, since nothing hides them wholly.
double together_cycles(double x, double y, double z) {
  const double longest = std::max({x, y, z});
  return longest + kNotHidden * (x + y + z - longest) / 2;
}

// Waves transpose dwords in registers: one instruction for each of 16-bit elements, two of 8-bit
// ones. A CU finishes 64 lanes of an instruction in a cycle.
double transposed_cycles(const HipCase& c) {
  const Shape3& t = c.algorithm().tile;
  const tile::MfmaOperands o =
      mfma_operands(std::get<GemmSignature>(c.spec.signature), c.algorithm().pipeline);
  const auto instructions = [](int size) { return size == 4 ? 0 : size == 2 ? 1 : 2; };
  const double rows_a = o.transposes_a ? t.m * o.size_a * instructions(o.size_a) : 0;
  const double rows_b = o.transposes_b ? t.n * o.size_b * instructions(o.size_b) : 0;
  return (rows_a + rows_b) * t.k / 4 / tile::kWaveLanes;
}

double step_cycles(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  const Shape3& t = a.tile;
  const double multiply = double(t.m) * t.n * t.k / mfma_macs(c);
  const double fetch_rate = std::max(1.0, rate_of(c.target, 1));
  const double aligned = copy_bytes(c.p) >= 4 ? 1 : kUnalignedRows;
  const double fetch = tile_bytes(c) / fetch_rate * aligned;
  if (c.is_general()) return together_cycles(multiply, 0, fetch);
  const double lds_rate = std::max(1.0, c.target.shared_bytes_per_cycle);
  const double read = t.k * (t.m * c.size_a * a.wave.n + t.n * c.size_b * a.wave.m);
  const double lds = (read + tile_bytes(c)) / lds_rate + transposed_cycles(c);
  // With one buffer in LDS the waves write while none of their block multiplies.
  const double apart = tile::mfma_tiles(a).buffers == 1 ? tile_bytes(c) / lds_rate : 0;
  return together_cycles(multiply + apart, lds, fetch);
}

double finish_of_tile(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  const double outputs = double(a.tile.m) * a.tile.n;
  double cycles = kStoreStart + outputs * size_of(c.p.out) * kStoreByte +
                  outputs * tile::output_cycles(c.p.epilogue);
  if (a.slices > 1) {
    const double sums = outputs * 4 * (a.split_k == SplitK::atomic ? 2 : a.slices + 1);
    cycles += kSliceMeeting + kSumTimes * sums / std::max(1.0, rate_of(c.target, 1));
  }
  return cycles;
}

// Bytes of the sums of slices: each is written and read; atomic adds read what they write, and what
// they add to is zero first.
double sliced_bytes(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  if (a.slices == 1) return 0;
  const double sums = c.blocks / a.slices * a.tile.m * a.tile.n * 4;
  return sums * (a.split_k == SplitK::atomic ? 2.0 * a.slices + 2 : 2.0 * a.slices);
}

// Of stream-K: whole tiles of a block, and its share of the steps of the last ones.
double streamed_cycles(const HipCase& c, double waited, double finish) {
  const auto all = static_cast<std::int64_t>(c.blocks);
  const auto steps = static_cast<std::int64_t>(c.steps);
  const std::int64_t units = stream_blocks(c.target, all, steps);
  const device::StreamWork work = device::stream_work(
      static_cast<int>(std::min<std::int64_t>(all, std::numeric_limits<int>::max())),
      static_cast<int>(std::min<std::int64_t>(steps, 1 << 20)), static_cast<int>(units));
  const double rounds = std::ceil(static_cast<double>(work.whole) / static_cast<double>(units));
  double cycles = kFirstTile + rounds * (c.steps * waited + finish);
  if (work.sharers > 0) {
    const Algorithm& a = c.algorithm();
    const double parts = std::ceil(c.steps / work.each) + 1;  // of a tile
    const double sums = double(a.tile.m) * a.tile.n * 4 * (parts + 1);
    const double adding = kSliceMeeting + kSumTimes * sums / std::max(1.0, rate_of(c.target, 1));
    cycles += (work.each + 1) * waited + finish + adding;
  }
  return cycles;
}

// The busiest CU computes its blocks, some of them at a time. A block alone waits for its tiles.
double busy_cycles(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  const double all = std::ceil(c.blocks / c.units);
  const double together = std::min(resident(c), all);
  const tile::MfmaTiles tiles = tile::mfma_tiles(a);
  const double ahead = std::max(1, tiles.prefetch + tiles.buffers - 1);
  const double step = step_cycles(c);
  const double waited = std::max(step + kBarrier, kTileLatency / ahead);
  const double finish = finish_of_tile(c);
  if (a.streamk) return streamed_cycles(c, waited, finish);
  const double start = a.persistent ? kFirstTile : kFirstTile * std::ceil(all / together);
  const double chain = std::ceil(all / together) * (c.steps * waited + finish) + start;
  return std::max(chain, all * c.steps * step + finish + kFirstTile);
}

// What the blocks that run at a time read, through an L2 for each XCD: neighbours share rows of A
// and columns of B. What an L2 lacks comes through the Infinity Cache, if there is one.
double missed_bytes(const HipCase& c) {
  const Algorithm& a = c.algorithm();
  const double all = std::max(1.0, c.tiles_m * c.tiles_n * static_cast<double>(c.p.batch));
  const double xcds = std::min(double(std::max(1, c.target.xcds)), all);
  const double each = all / xcds;
  const double at_once = std::min(each, c.units / xcds * resident(c));
  const double down = std::min({c.tiles_m, double{kRasterGroup}, at_once});
  const double right = std::ceil(at_once / std::max(1.0, down));
  const double rows = std::min(down * a.tile.m, static_cast<double>(c.p.m));
  const double columns = std::min(right * a.tile.n, static_cast<double>(c.p.n));
  const double turns = std::ceil(each / at_once);
  return turns * (rows * c.size_a + columns * c.size_b) * static_cast<double>(c.p.k) * xcds;
}

// The operands that the Infinity Cache cannot hold are read again.
double memory_seconds(const HipCase& c) {
  const double once = bytes_of(c.p);
  const double again = std::max(0.0, missed_bytes(c) - once) + sliced_bytes(c);
  const bool has_l3 = c.target.caches.size() > 2;
  const double kept =
      has_l3 ? std::min(1.0, static_cast<double>(c.target.caches[2].bytes) / std::max(1.0, once))
             : 0;
  const double bandwidth = std::max(c.target.memory_gb_per_s, 1.0) * 1e9;
  const double from_memory = (once + again * (1 - kept)) / bandwidth;
  const double l3_rate = has_l3 ? rate_of(c.target, 2) * c.units * c.hertz : 0;
  return l3_rate > 0 ? std::max(from_memory, (once + again) / l3_rate) : from_memory;
}

}  // namespace

// One for each unit, or as many as have steps enough.
std::int64_t stream_blocks(const Target& target, std::int64_t all_tiles, std::int64_t steps) {
  const std::int64_t units = std::max(1, target.units);
  const std::int64_t shares = all_tiles < units ? all_tiles * steps / device::kLeastStreamSteps : 0;
  return std::min(std::max(all_tiles, shares), units);
}

std::int64_t hip_lds_bytes(const KernelSpec& spec) {
  return shared_memory(std::get<GemmSignature>(spec.signature), spec.algorithm).all;
}

double hip_resident(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  return resident(case_of(spec, p, target));
}

Estimate estimate_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target, int) {
  const double launch = target.launch_us * 1e-6;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, launch, 1);
  const HipCase c = case_of(spec, p, target);
  const Shape3& t = spec.algorithm.tile;
  const double issued = std::ceil(c.blocks / c.units) * c.units * c.steps * t.m * t.n * t.k;
  const double useful = flops_of(p) / 2;
  const double compute = busy_cycles(c) / c.hertz, memory = memory_seconds(c);
  return total_of(compute, memory, launch + kNotHidden * std::min(compute, memory),
                  issued > 0 ? std::min(1.0, useful / issued) : 1);
}

}  // namespace tessera::gemm
