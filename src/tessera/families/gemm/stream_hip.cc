// Kernels of the pipeline stream on AMD GPUs, for few rows or few columns
// (src/tessera/device/hip/gemm/stream_gemm.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/stream_gpu.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

constexpr std::array kHipFewRows = {1, 2, 4};
constexpr int kManyRows = 4;          // of a wave
constexpr int kMostHipWords = 2;      // of 16 bytes, that a lane asks for of each row
constexpr int kKeptBytes = 32 << 10;  // of the few rows in LDS: two workgroups share a unit

// ---- rules ----

int word_elements(DType type) { return tile::kLaneBytes / size_of(type); }
int turn_elements(const Algorithm& a, const Target& target) {
  return a.warp_tile.k * target.warp_size;
}
std::int64_t few_bytes(const Case& c) {
  const Algorithm& a = c.algorithm;
  return std::int64_t{a.tile.m} * a.tile.k * size_of(c.signature.a);
}

constexpr Rule kHipStreamRules[] = {
    kWaveRule,
    kUnusedFieldsRule,
    kNoPreshuffleRule,
    kStreamTypesRule,
    kStreamLayoutRule,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m == 1 && (w.n * w.k == 4 || w.n * w.k == 8);
     },
     [](const Case& c) {
       return fmt::format(
           "stream has one wave along m and 4 or 8 others on AMD GPUs (1x8x1, 1x2x4), got {}",
           to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return std::find(kHipFewRows.begin(), kHipFewRows.end(), c.algorithm.tile.m) !=
              kHipFewRows.end();
     },
     [](const Case& c) {
       return fmt::format("stream keeps 1, 2 or 4 rows on AMD GPUs, got tile_m = {}",
                          c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.m == a.tile.m && a.warp_tile.n == kManyRows &&
              a.tile.n == kManyRows * a.wave.n;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("{} waves of {}x{} need tile {}x{} with stream, got {}x{} of {}x{}",
                          a.wave.n, a.tile.m, kManyRows, a.tile.m, kManyRows * a.wave.n, a.tile.m,
                          a.tile.n, a.warp_tile.m, a.warp_tile.n);
     }},
    {[](const Case& c) {
       const int word = word_elements(c.signature.a), elements = c.algorithm.warp_tile.k;
       return elements >= word && elements % word == 0 && elements <= kMostHipWords * word;
     },
     [](const Case& c) {
       return fmt::format("a lane of stream reads 1 to {} words of {} {} of a row, got {} elements",
                          kMostHipWords, word_elements(c.signature.a), to_string(c.signature.a),
                          c.algorithm.warp_tile.k);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       const int turn = turn_elements(a, c.target);
       return a.tile.k >= turn && a.tile.k % turn == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_k must be a multiple of the {} elements of a wave, got {}",
                          turn_elements(c.algorithm, c.target), c.algorithm.tile.k);
     }},
    {[](const Case& c) { return few_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS for {} of k in {} rows, {} has {}", few_bytes(c),
                          c.algorithm.tile.k, c.algorithm.tile.m, c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- algorithms, text, launch ----

// More waves along k give few rows, or long ones, enough waves.
constexpr Shape3 kStreamWaves[] = {{1, 8, 1}, {1, 2, 4}, {1, 1, 8}};

void add_hip_streams(DType operand, int few, std::vector<Algorithm>& all) {
  for (const Shape3& wave : kStreamWaves) {
    all.push_back({.pipeline = Pipeline::stream,
                   .tile = {few, kManyRows * wave.n, kKeptBytes / few / size_of(operand)},
                   .wave = wave,
                   .warp_tile = {few, kManyRows, kMostHipWords * word_elements(operand)}});
  }
}

// The algorithms for a problem with so many rows or columns, whichever are fewer.
void add_own_hip_streams(const OwnQuery& query, std::vector<Algorithm>& all) {
  if (!is_streamed(query.signature.a)) return;
  if (query.problem == nullptr) {
    for (const int few : kHipFewRows) add_hip_streams(query.signature.a, few, all);
    return;
  }
  const std::int64_t few = std::min(query.problem->m, query.problem->n);
  const auto* const fits = std::lower_bound(kHipFewRows.begin(), kHipFewRows.end(), few);
  if (fits != kHipFewRows.end()) add_hip_streams(query.signature.a, *fits, all);
}

// What stream_serves() compares.
Served hip_stream_served(const KernelSpec& spec) { return {.most_few = spec.algorithm.tile.m}; }

Source emit_hip_stream(const KernelSpec& spec, const Target&) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::string config =
      "struct Config {\n" + gpu_types_text(s) +
      fmt::format(
          "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
          "  static constexpr int kWaveN = {}, kWaveK = {};\n"
          "  static constexpr int kWarpTileN = {}, kWarpTileK = {};\n",
          a.tile.m, a.tile.n, a.tile.k, a.wave.n, a.wave.k, a.warp_tile.n, a.warp_tile.k) +
      tile::epilogue_fields(s.epilogue) + "};\n";
  return hip_source(spec, {"stream_gemm.h", "StreamGemm"}, config, "");
}

std::int64_t hip_stream_tiles(const Algorithm& a, const GemmProblem& p) {
  return tiles(std::max(p.m, p.n), a.tile.n);
}

Launch bind_hip_stream(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                       const device::GemmArguments& g) {
  constexpr std::int64_t kMostOfGrid = std::numeric_limits<std::uint32_t>::max();  // threads
  const Algorithm& a = spec.algorithm;
  device::HipGemmArguments arguments{};
  arguments.gemm = g;
  drop_unused_strides(arguments.gemm);
  const std::int64_t most = kMostOfGrid / tile::block_lanes(a, target),
                     all = hip_stream_tiles(a, p);
  const bool is_empty = p.m == 0 || p.n == 0 || p.batch == 0;
  arguments.blocks = is_empty ? 0 : static_cast<int>(p.batch > most / all ? most : all * p.batch);
  Launch launch;
  launch.arguments.set(arguments);
  list_pointers(p, g, launch);
  if (is_empty) return launch;
  launch.steps.push({.grid = {static_cast<unsigned>(arguments.blocks), 1, 1},
                     .block = {static_cast<unsigned>(tile::block_lanes(a, target)), 1, 1}});
  return launch;
}

// ---- estimate ----

// Guesses: nothing was measured.
constexpr double kTurnLatency = 1200;  // cycles from a turn's loads to their words
constexpr double kPartCycles = 2000;   // to bring the few rows' part of k to LDS
constexpr double kFinishCycles = 1000;
constexpr double kLaneSum = 40;  // cycles to add a sum up over the lanes of a wave

// Vector instructions of a wave for a turn: of each element a conversion and the products.
double turn_instructions(const Algorithm& a, DType type) {
  const double elements = a.warp_tile.k, few = a.tile.m;
  const double conversion = size_of(type) == 2 ? 1 : 0;
  return elements * (kManyRows * (conversion + few) + few * conversion);
}

Estimate estimate_hip_stream(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                             int) {
  const Algorithm& a = spec.algorithm;
  const double launch = target.launch_us * 1e-6;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, launch, 1);
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  const double units = std::max(1, target.units);
  const double all = static_cast<double>(hip_stream_tiles(a, p)) * static_cast<double>(p.batch);
  const double parts = blocks(static_cast<double>(p.k), a.tile.k);
  const double turns =
      blocks(static_cast<double>(p.k), double(turn_elements(a, target)) * a.wave.k);
  const double of_unit = std::ceil(all / units);
  const double at_once = std::min(2.0, of_unit);  // workgroups that share a unit
  const double sums = kLaneSum * a.tile.m * kManyRows;
  const double chain = parts * kPartCycles + turns * kTurnLatency + sums + kFinishCycles;
  // A unit has four SIMDs, and an instruction takes four cycles of one.
  const double busy = turns * turn_instructions(a, p.a) * a.wave.n * a.wave.k;
  const double cycles = std::max(std::ceil(of_unit / at_once) * chain, of_unit * busy);
  const double memory = bytes_of(p) / (std::max(target.memory_gb_per_s, 1.0) * 1e9);
  return total_of(cycles / hertz, memory, launch, 1);
}

}  // namespace

const Way kStreamHip = {.backend = "hip",
                        .pipeline = Pipeline::stream,
                        .rules = kHipStreamRules,
                        .serves = stream_serves,
                        .emit = emit_hip_stream,
                        .bind = bind_hip_stream,
                        .estimate = estimate_hip_stream,
                        .own = {.add_own = add_own_hip_streams,
                                .served = hip_stream_served,
                                .is_described = is_one_warp_deep}};

}  // namespace tessera::gemm
