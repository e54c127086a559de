// The predicted time of stream kernels on GPUs: that of moving all bytes once, or, where few warps
// run, that of a warp which waits for one turn of words after the other.
#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/stream_gpu_internal.h"

namespace tessera::gemm {
namespace {

// `bandwidth` was fitted to 380 timings of 26 problems on an H100, which take 0.92 to 1.31 times
// the estimate (10th and 90th percentile). The others are guesses. Cycles are those of a unit.
struct StreamModel {
  double bandwidth = 0.78;  // share of the bandwidth that kernels with TMA reach
  double latency = 900;     // cycles from a turn's loads to their words
  double part = 1500;       // cycles to bring the few rows' part of k to shared memory
  double finish = 600;      // cycles to store
  double sum = 2.5;         // cycles of a warp to add up the sums of its lanes
  double turn = 24;         // instructions of a warp's turn besides those of its words
  double overlap = 0.5;     // share of the shorter of computing and moving that is not hidden
};
constexpr StreamModel kStreamModel = {};
constexpr double kUnitSchedulers = 4;  // of a unit, each of which issues an instruction in a cycle
constexpr double kUnitThreads = 2048;  // that run on a unit

// Cycles for which a block's warps keep a unit busy in a turn: with instructions, or with reads of
// shared memory, of which the unit has one in a cycle.
double turn_cycles(const Algorithm& a, int size) {
  const int word = device::stream_word(size);
  const double words = static_cast<double>(a.warp_tile.k) / word;
  const double rows = a.warp_tile.n, few = a.tile.m;
  const double reads = words * word * few;
  const double converted = size == 2 ? words * rows * word : 0;
  const double all = words * rows * (1 + word * few) + reads + converted + kStreamModel.turn;
  return a.wave.n * a.wave.k * std::max(all / kUnitSchedulers, reads);
}

// The turns of a warp, and the parts of k.
struct Turns {
  double all, parts;
};
Turns turns_of(const Algorithm& a, std::int64_t k) {
  const auto of_part = [&](std::int64_t length) {
    return blocks(static_cast<double>(length),
                  static_cast<double>(a.warp_tile.k) * device::kStreamLanes * a.wave.k);
  };
  const std::int64_t whole = k / a.tile.k;
  return {static_cast<double>(whole) * of_part(a.tile.k) + of_part(k % a.tile.k),
          blocks(static_cast<double>(k), a.tile.k)};
}

double resident_streams(const Algorithm& a, const GemmProblem& p, const tile::GpuCase& c) {
  const double threads = a.wave.n * a.wave.k * c.warp_size;
  const int words = a.warp_tile.k / device::stream_word(size_of(p.a));
  const double registers = device::stream_registers(a.tile.m, a.warp_tile.n, words);
  const double shared = static_cast<double>(stream_shared(a, p.k, p.a)) + device::kSharedReserve;
  const double fit = std::min(
      {c.registers / (registers * threads), c.shared_bytes / shared, kUnitThreads / threads});
  return std::max(1.0, std::floor(fit));
}

}  // namespace

Estimate estimate_stream(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const tile::GpuCase c = gpu_case(p, target);
  const StreamShare share = stream_share(a, p);
  if (share.blocks == 0) return total_of(0, 0, c.launch_seconds, 1);
  const Turns turns = turns_of(a, p.k);
  const auto tiles_each = static_cast<double>(share.tiles);
  const double warps = a.wave.n * a.wave.k;
  const double turn = turn_cycles(a, size_of(p.a));
  const double sums = kStreamModel.sum * warps * a.warp_tile.n * a.tile.m;
  const double of_unit = blocks(static_cast<double>(share.blocks), c.units);
  const double rounds = blocks(of_unit, std::min(of_unit, resident_streams(a, p, c)));
  const double filled = turns.parts > 1 ? tiles_each * turns.parts : 1;
  const double end = sums + kStreamModel.finish;
  const double beside = std::max(0.0, end - kStreamModel.latency);  // the next tile's words
  const double tiles = tiles_each * turns.all * (kStreamModel.latency + turn);
  const double chain =
      rounds * (filled * kStreamModel.part + tiles + (tiles_each - 1) * beside + end);
  const double busy = of_unit * tiles_each * (turns.all * turn + sums);
  const double compute = std::max(chain, busy) / c.hertz;
  const double memory = c.bytes / (c.bandwidth * kStreamModel.bandwidth);
  const double overhead = c.launch_seconds + tile::kGpuModel.fill / c.hertz +
                          kStreamModel.overlap * std::min(compute, memory);
  return total_of(compute, memory, overhead, 1);
}

}  // namespace tessera::gemm
