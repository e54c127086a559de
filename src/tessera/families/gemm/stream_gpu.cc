// Kernels of the pipeline stream on GPUs, for few rows or few columns
// (src/tessera/device/cuda/gemm/stream_gemm.h). Their predicted time is that of moving all bytes
// once, or, where few warps run, that of a warp which waits for one turn of words after the other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/stream_gpu.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

constexpr int kMostFewRows = 8;      // rows
constexpr int kMostStreamSums = 16;  // of a warp; a lane finishes at most one output
constexpr int kMostStreamWords = 8;  // that a lane awaits, of all its rows
constexpr int kMostWarpRows = 4;     // powers of 2
constexpr int kFloatBytes = 4;

int word_elements(const Case& c) { return device::stream_word(size_of(c.signature.a)); }
int block_elements(const Case& c) { return device::stream_block(size_of(c.signature.a)); }
int stream_words(const Case& c) { return c.algorithm.warp_tile.k / word_elements(c); }

// Of the sums of the warps that share k.
int parts_bytes(const Algorithm& a) {
  return a.wave.k == 1 ? 0 : a.wave.k * a.wave.n * a.warp_tile.m * a.warp_tile.n * kFloatBytes;
}
std::int64_t kept_bytes(const Case& c) {
  const Algorithm& a = c.algorithm;
  return stream_shared(a, a.tile.k, c.signature.a) + parts_bytes(a);
}

constexpr Rule kStreamRules[] = {
    kWaveRule,
    kUnusedFieldsRule,
    kNoPreshuffleRule,
    kStreamTypesRule,
    kStreamLayoutRule,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m == 1 && w.n * w.k > 1;
     },
     [](const Case& c) {
       return fmt::format(
           "stream has one warp along m and several others on GPUs (1x8x1, 1x2x4), got {}",
           to_string(c.algorithm.wave));
     }},
    tile::kBlockThreads<Case>,
    {[](const Case& c) { return c.algorithm.tile.m >= 1 && c.algorithm.tile.m <= kMostFewRows; },
     [](const Case& c) {
       return fmt::format("stream keeps 1 to {} rows on GPUs, got tile_m = {}", kMostFewRows,
                          c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const int rows = c.algorithm.warp_tile.n;
       return (rows == 1 || rows == 2 || rows == kMostWarpRows) &&
              rows * c.algorithm.tile.m <= kMostStreamSums;
     },
     [](const Case& c) {
       return fmt::format(
           "a warp of stream has 1, 2 or {} rows and at most {} sums, got {} rows and {} sums",
           kMostWarpRows, kMostStreamSums, c.algorithm.warp_tile.n,
           c.algorithm.warp_tile.n * c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.m == a.tile.m && a.warp_tile.n * a.wave.n == a.tile.n;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("{} warps of {}x{} need tile {}x{} with stream, got {}x{}", a.wave.n,
                          a.warp_tile.m, a.warp_tile.n, a.warp_tile.m, a.warp_tile.n * a.wave.n,
                          a.tile.m, a.tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return stream_words(c) >= 1 && a.warp_tile.k % word_elements(c) == 0 &&
              a.warp_tile.n * stream_words(c) <= kMostStreamWords;
     },
     [](const Case& c) {
       return fmt::format(
           "a lane of stream reads whole words of {} {} and at most {} words of {} rows, got {} "
           "elements of each",
           word_elements(c), to_string(c.signature.a), kMostStreamWords, c.algorithm.warp_tile.n,
           c.algorithm.warp_tile.k);
     }},
    {[](const Case& c) {
       return c.algorithm.tile.k >= 1 && c.algorithm.tile.k % block_elements(c) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_k must be a multiple of {} for {} with stream, got {}",
                          block_elements(c), to_string(c.signature.a), c.algorithm.tile.k);
     }},
    {[](const Case& c) { return kept_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory for {} of k in {} rows, {} has {}",
                          kept_bytes(c), c.algorithm.tile.k, c.algorithm.tile.m, c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- algorithms, launch ----

// 64 KB of floats. Problems with less k get less shared memory.
constexpr int kKeptElements = 16384;
constexpr std::array kFewRows = {1, 2, 4};

// Rows of a warp, words of each row that a lane awaits, and the warps of a block. More rows share
// what is read of the few rows; more warps along k give few rows or long ones enough warps.
struct Warps {
  int rows, words, wave_n, wave_k;
};
constexpr Warps kStreamWarps[] = {{1, 4, 8, 1}, {2, 4, 8, 1}, {4, 2, 8, 1}, {2, 4, 2, 4},
                                  {4, 2, 2, 4}, {2, 4, 1, 8}, {4, 2, 1, 8}};

void add_streams(DType operand, int few, std::vector<Algorithm>& all) {
  for (const Warps& w : kStreamWarps) {
    const int elements = w.words * device::stream_word(size_of(operand));
    all.push_back({.pipeline = Pipeline::stream,
                   .tile = {few, w.wave_n * w.rows, kKeptElements / few},
                   .wave = {1, w.wave_n, w.wave_k},
                   .warp_tile = {few, w.rows, elements}});
  }
}

constexpr std::int64_t kMostGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostTiles = std::int64_t{1} << 40;

// A block takes as many tiles as have this many bytes, so that it does not bring the few rows to
// shared memory for each of them, unless there would be too few blocks for all units.
constexpr std::int64_t kBlockBytes = 128 << 10;
constexpr std::int64_t kMostOfBlock = 64;
constexpr std::int64_t kLeastBlocks = 528;

// The algorithms for a problem with so many rows or columns, whichever are fewer.
void add_own_streams(const OwnQuery& query, std::vector<Algorithm>& all) {
  if (query.problem == nullptr) {
    for (const int few : kFewRows) add_streams(query.signature.a, few, all);
    return;
  }
  const std::int64_t few = std::min(query.problem->m, query.problem->n);
  const auto* const fits = std::lower_bound(kFewRows.begin(), kFewRows.end(), few);
  if (fits != kFewRows.end()) add_streams(query.signature.a, *fits, all);
}

}  // namespace

bool stream_types_fit(const Case& c) {
  return is_streamed(c.signature.a) && c.signature.a == c.signature.b;
}
std::string stream_types_do_not_fit(const Case& c) {
  return fmt::format(
      "stream multiplies fp32, fp16 or bf16 on GPUs, both operands of one type, got {} x {}",
      to_string(c.signature.a), to_string(c.signature.b));
}
bool stream_layout_fits(const Case& c) { return c.signature.layout == GemmLayout::rcr; }
std::string stream_layout_does_not_fit(const Case& c) {
  return fmt::format("stream reads A and B along a contiguous k on GPUs (rcr), got {}",
                     to_string(c.signature.layout));
}

bool is_one_warp_deep(const Algorithm& a) { return a.wave.n * a.wave.k <= 1; }

bool is_streamed(DType type) {
  return type == DType::fp32 || type == DType::fp16 || type == DType::bf16;
}

Verdict stream_serves(const KernelSpec& spec, const GemmProblem& p, const Target&) {
  const Algorithm& a = spec.algorithm;
  if (std::min(p.m, p.n) <= a.tile.m) return {};
  return {fmt::format("{} serves m <= {} or n <= {}, got m={} n={}", to_string(a.pipeline),
                      a.tile.m, a.tile.m, p.m, p.n)};
}

std::int64_t stream_shared(const Algorithm& a, std::int64_t k, DType operand) {
  const std::int64_t kept = std::min<std::int64_t>(k, a.tile.k);
  return device::stream_shared_bytes(a.tile.m, kept, size_of(operand));
}

StreamShare stream_share(const Algorithm& a, const GemmProblem& p) {
  if (std::min({p.m, p.n, p.batch}) == 0) return {0, 0};
  const std::int64_t of_batch =
      device::stream_tiles(std::max(p.m, p.n), a.warp_tile.n, a.wave.n, size_of(p.a));
  // More tiles than this are not counted; their blocks have equal shares all the same.
  const std::int64_t all = p.batch <= kMostTiles / of_batch ? of_batch * p.batch : kMostTiles;
  const std::int64_t bytes = std::max<std::int64_t>(1, a.tile.n * p.k * size_of(p.a));
  const std::int64_t wanted = std::clamp<std::int64_t>(kBlockBytes / bytes, 1, kMostOfBlock);
  const std::int64_t each =
      std::max({tiles(all, kMostGrid), std::min(wanted, all / kLeastBlocks), std::int64_t{1}});
  return {tiles(all, each), each};
}

namespace {

Launch bind_gpu_stream(const KernelSpec& spec, const GemmProblem& p, const Target&,
                       const device::GemmArguments& g) {
  const Algorithm& a = spec.algorithm;
  device::CudaGemmArguments arguments{};
  arguments.gemm = g;
  drop_unused_strides(arguments.gemm);
  Launch launch;
  launch.arguments.set(arguments);
  list_pointers(p, g, launch);
  const std::int64_t blocks = stream_share(a, p).blocks;
  if (blocks == 0) return launch;
  Step step;
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = static_cast<unsigned>(a.wave.n * a.wave.k * device::kStreamLanes);
  step.shared_memory_bytes = static_cast<std::size_t>(stream_shared(a, p.k, p.a));
  launch.steps.push(step);
  return launch;
}

Source emit_stream(const KernelSpec& spec, const Target&) {
  const Algorithm& a = spec.algorithm;
  const std::string shapes = fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveN = {}, kWaveK = {};\n"
      "  static constexpr int kWarpTileN = {}, kWarpTileK = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.n, a.wave.k, a.warp_tile.n, a.warp_tile.k);
  return cuda_source(spec, {"stream_gemm.h", "StreamGemm"}, shapes, "", "");
}

// ---- estimate ----

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

Estimate estimate_gpu_stream(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                             int) {
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

}  // namespace

const Way kStreamGpu = {.backend = "cuda",
                        .pipeline = Pipeline::stream,
                        .rules = kStreamRules,
                        .serves = stream_serves,
                        .emit = emit_stream,
                        .bind = bind_gpu_stream,
                        .estimate = estimate_gpu_stream,
                        .own = {.add_own = add_own_streams, .is_described = is_one_warp_deep}};

}  // namespace tessera::gemm
