// The analytic estimate of convolutions by MFMA, from what a tile needs of matrix and vector units,
// LDS and memory. Instructions were counted on the emulator; nothing was timed, so it says which
// kernel does least of what takes longest, not how long.
#include <algorithm>
#include <cmath>

#include "tessera/families/conv/mfma_internal.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::conv::mfma {
namespace {

// Vector instructions of a wave for a tile: of the loop, and of a load (of a unit of 8 lines, where
// threads transpose) of each kind of operand.
constexpr double kLoop = 16, kWalk = 18;
constexpr double kPixelLoad = 5, kLineLoad = 1.25;
constexpr double kRowUnit = 16, kFilterUnit = 38, kTapUnit = 73;
constexpr double kWholePixelLoad = 3, kWholeFilterUnit = 17, kWholeTapUnit = 35;  // of whole taps
constexpr double kCopiedFilter = 14, kCopiedTap = 21;

// Guesses, in cycles of a CU unless they say otherwise.
constexpr double kVectorCycles = 4;  // of a wave's instruction on its SIMD
constexpr double kSimds = 4;
constexpr double kTileLatency = 1200;   // from a tile's request to its arrival
constexpr double kBarrier = 40;         // of the waves of a block, for each tile of the depth
constexpr double kFirstTile = 3000;     // before a block's first MFMA
constexpr double kStoreStart = 400;     // of a tile's epilogue
constexpr double kStoreByte = 0.05;     // further, for each byte of the output
constexpr double kSliceMeeting = 4000;  // of the slices of a tile
constexpr double kNotHidden = 0.25;     // share of the shorter of computing and moving
constexpr double kMostBlocks = 8;       // of a CU at a time

struct MfmaCase {
  const KernelSpec& spec;
  const ConvSignature& s;
  const Algorithm& a;
  const Target& target;
  Plan plan;
  bool is_whole;  // the entry for whole taps
  double units, hertz;
  double blocks = 0, steps = 0;  // of all parts and slices; steps of a block in the mean
};

MfmaCase case_of(const KernelSpec& spec, const ConvProblem& p, const Target& target) {
  MfmaCase c{spec,
             std::get<ConvSignature>(spec.signature),
             spec.algorithm,
             target,
             plan_of(p),
             has_whole_taps(std::get<ConvSignature>(spec.signature), spec.algorithm) &&
                 lies_in_whole_taps(p, spec.algorithm),
             double(std::max(1, target.units)),
             std::max(target.clock_ghz, 0.1) * 1e9};
  const double right = std::ceil(double(c.plan.columns) / c.a.tile.n) * double(c.plan.groups);
  for (const Part& part : c.plan.parts) {
    const double tiles = std::ceil(double(part.rows) / c.a.tile.m) * right;
    c.blocks += tiles * c.a.slices;
    c.steps += tiles * std::ceil(double(part.depth) / c.a.tile.k);
  }
  c.steps /= std::max(1.0, c.blocks);
  return c;
}

// Multiply-adds of a CU in a cycle by the widest MFMA that divides the warp tile.
double macs_of(const MfmaCase& c) {
  const Shape3& w = c.a.warp_tile;
  double best = 1;
  for (const Instruction& i : c.target.instructions) {
    const bool fits =
        i.a == types_of(c.s).a && i.shape.m == w.m && w.k % std::max(1, i.shape.k) == 0;
    if (fits) best = std::max(best, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return best;
}

// Vector instructions of a wave for one operand's tile of so many rows.
double gathering(const MfmaCase& c, int rows, bool is_a) {
  const double loads = double(rows) * c.a.tile.k * element_bytes(c.s) / 16 / tile::block_lanes(c.a);
  const double units = loads * element_bytes(c.s) / 4;  // of a dword of rows and a chunk of lines
  const bool copies = c.a.pipeline == Pipeline::async;
  if (c.s.direction == ConvDirection::backward_weight) {
    if (is_a) return copies ? loads * kLineLoad : units * kRowUnit;
    return copies ? loads * kCopiedTap : units * (c.is_whole ? kWholeTapUnit : kTapUnit);
  }
  if (is_a) return c.is_whole ? loads * kWholePixelLoad : kWalk + loads * kPixelLoad;
  if (c.s.direction == ConvDirection::forward) return loads * kLineLoad;
  return copies ? loads * kCopiedFilter : units * (c.is_whole ? kWholeFilterUnit : kFilterUnit);
}
double vector_cycles(const MfmaCase& c) {
  const double of_wave = kLoop + gathering(c, c.a.tile.m, true) + gathering(c, c.a.tile.n, false);
  return of_wave * kVectorCycles * tile::all_waves(c.a) / kSimds;
}

double resident(const MfmaCase& c) {
  const device::MfmaShape shape = shape_of(c.s, c.a);
  const double by_lds = double(c.target.shared_memory_bytes) / device::mfma_lds_bytes(shape);
  const double by_registers = c.target.registers_per_unit /
                              (double(device::mfma_registers(shape)) * tile::block_lanes(c.a));
  return std::clamp(std::floor(std::min(by_lds, by_registers)), 1.0, kMostBlocks);
}

double cache_rate(const Target& target, std::size_t level) {
  return level < target.caches.size() ? std::max(1.0, target.caches[level].bytes_per_cycle) : 1;
}

// Cycles of a step: the longest of its parts, and a share of the others, which nothing hides
// wholly.
double step_cycles(const MfmaCase& c) {
  const Shape3& t = c.a.tile;
  const double depth = double(t.k) * element_bytes(c.s);
  const double bytes = depth * (t.m + t.n);
  const double read = depth * (double(t.m) * c.a.wave.n + double(t.n) * c.a.wave.m);
  const double parts[] = {
      double(t.m) * t.n * t.k / macs_of(c),
      vector_cycles(c),
      (read + bytes) / std::max(1.0, c.target.shared_bytes_per_cycle),
      bytes / cache_rate(c.target, 1),
  };
  double longest = 0, all = 0;
  for (const double part : parts) longest = std::max(longest, part), all += part;
  return longest + kNotHidden * (all - longest) / 2;
}

double finish_cycles(const MfmaCase& c) {
  const double outputs = double(c.a.tile.m) * c.a.tile.n;
  double cycles = kStoreStart + outputs * size_of(types_of(c.s).out) * kStoreByte;
  if (c.a.slices > 1) {
    const double times = c.a.split_k == SplitK::atomic ? 2 : c.a.slices + 1;
    cycles += kSliceMeeting + 2 * outputs * 4 * times / cache_rate(c.target, 1);
  }
  return cycles;
}

// The busiest CU computes its blocks, some of them at a time. A block alone waits for its tiles.
double busy_cycles(const MfmaCase& c) {
  const double all = std::ceil(c.blocks / c.units);
  const double together = std::max(1.0, std::min(resident(c), all));
  const tile::MfmaTiles tiles = tile::mfma_tiles(c.a);
  const double ahead = std::max(1, tiles.prefetch + tiles.buffers - 1);
  const double step = step_cycles(c), finish = finish_cycles(c);
  const double waited = std::max(step + kBarrier, kTileLatency / ahead);
  const double chain = std::ceil(all / together) * (c.steps * waited + finish + kFirstTile);
  return std::max(chain, all * c.steps * step + finish + kFirstTile);
}

double sliced_bytes(const MfmaCase& c) {
  if (c.a.slices == 1) return 0;
  const double sums = c.blocks / c.a.slices * c.a.tile.m * c.a.tile.n * 4;
  return sums * (c.a.split_k == SplitK::atomic ? 2.0 * c.a.slices + 2 : 2.0 * c.a.slices);
}

}  // namespace

Estimate estimate(const KernelSpec& spec, const ConvProblem& given, const Target& target, int) {
  const Repack copied = spec.algorithm.repack ? repack(given) : Repack{given};
  const ConvProblem& p = copied.problem;
  const MfmaCase c = case_of(spec, p, target);
  const double moved = bytes(given) + sliced_bytes(c);
  const double memory = moved / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  const double compute = busy_cycles(c) / c.hertz;
  // Copies are read and written, in a step of their own.
  const double copies =
      2 * (copied.bytes[0] + copied.bytes[1]) / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  const double launch = target.launch_us * 1e-6 * (spec.algorithm.repack ? 2 : 1) + copies;
  const double issued =
      std::ceil(c.blocks / c.units) * c.units * c.steps * c.a.tile.m * c.a.tile.n * c.a.tile.k;
  return tile::total_of(compute, memory, launch + kNotHidden * std::min(compute, memory),
                        issued > 0 ? std::min(1.0, flops(given) / 2 / issued) : 1);
}

}  // namespace tessera::conv::mfma
