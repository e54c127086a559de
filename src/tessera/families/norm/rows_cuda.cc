// Kernels for NVIDIA GPUs: a block of warps takes whole rows, or slices of few long ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::norm {
namespace {

constexpr int kVectorBytes = 16;    // that a thread moves at once
constexpr int kMoreRegisters = 48;  // than the values that a thread holds
constexpr int kLeastRegisters = 40;
constexpr int kMostCudaTile = 32768;
constexpr int kMostCluster = 8;  // blocks of a cluster, of every device

// What the estimate counts, by what an H200 was seen to do.
constexpr double kBlockSeconds = 1.0e-6;  // from a block's first load to its last store
constexpr double kOfLongRow = 3;          // times as long where a row is read in parts
constexpr double kStagedSeconds = 5e-11;  // a byte that goes through shared memory
constexpr double kLateSeconds = 7e-7;     // weights that are asked for behind the row
constexpr double kMergeSeconds = 7e-8;    // the lanes of a warp
constexpr double kMeetSeconds = 5e-8;     // the warps of a block, and for each of them:
constexpr double kMeetingWarp = 2e-8;
constexpr double kClusterSeconds = 7e-7;  // the blocks of a cluster
constexpr double kValueSeconds = 4e-9;    // a value of a thread, one after the other
constexpr double kMoreSeconds = 4.5e-9;   // ... that is added to a residual
constexpr double kStepSeconds = 1.5e-6;   // between two steps of a launch
constexpr double kReached = 0.88;         // of the nominal bandwidth, by a copy
constexpr double kIssued = 0.65;          // of the schedulers' cycles
constexpr double kWarpsOfScheduler = 8;   // that keep it busy
constexpr double kCyclesOfSector = 1.4;
constexpr double kRowsOfLong = 1.7;  // whose sectors the elements of long rows touch, as it were
constexpr int kFewValues = 32;       // of a thread; 64 were slow on an H200
constexpr double kSlowedByValues = 1.5;
constexpr double kSchedulers = 4;          // of a unit
constexpr double kGatedInstructions = 10;  // of a value: the function and the product
constexpr double kUsualInstructions = 70;  // of a warp, whatever it holds

int threads_of(const Algorithm& a) { return a.wave.m * a.wave.n * kWarp; }
int threads_of_row(const Algorithm& a) {
  return std::max(1, a.wave.n * kWarp / std::max(1, a.warp_tile.m));
}
int values_of(const Algorithm& a) { return a.tile.n / threads_of_row(a); }
int registers_needed(const Algorithm& a) {
  return std::max(kLeastRegisters, values_of(a) + kMoreRegisters);
}
int registers_of_thread(const Case& c) {
  return std::min(c.target.registers_per_thread,
                  c.target.registers_per_unit / threads_of(c.algorithm));
}
int rows_of(const Algorithm& a) { return a.wave.m * a.warp_tile.m; }
int tile_unit(const Case& c) {
  return threads_of_row(c.algorithm) * kVectorBytes / size_of(c.signature.in);
}
bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

// Threads that share a row only as long as they hold all of it.
bool holds_all(const Algorithm& a) { return a.warp_tile.m > 1 || a.cluster_n > 1; }

constexpr tile::Rule<Case> kCudaRules[] = {
    {[](const Case& c) { return !is_cut(c.signature) || c.algorithm.cluster_n == 1; },
     [](const Case& c) {
       return fmt::format("cluster must be 1x1 with kind={} and quant={}, got 1x{}",
                          to_string(c.signature.kind), to_string(c.signature.quant),
                          c.algorithm.cluster_n);
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       const int most = c.target.max_threads_per_block;
       return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m <= most && w.n <= most &&
              threads_of(c.algorithm) <= most;
     },
     [](const Case& c) {
       return fmt::format("wave must be m x n x 1 warps of {} threads, at most {} in all, got {}",
                          kWarp, c.target.max_threads_per_block, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return w.n == 1 && w.k == 1 && w.m <= kWarp && is_power_of_two(w.m) &&
              (w.m == 1 || c.algorithm.wave.n == 1);
     },
     [](const Case& c) {
       return fmt::format(
           "warp tile must be 1x1x1 where wave_n is not 1, else a power of two up to {} x 1 x 1, "
           "got {} with wave {}",
           kWarp, to_string(c.algorithm.warp_tile), to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return is_power_of_two(a.cluster_n) && a.cluster_n <= kMostCluster &&
              (a.cluster_n == 1 || (a.wave.m == 1 && a.warp_tile.m == 1));
     },
     [](const Case& c) {
       return fmt::format(
           "cluster must be 1x1, 1x2, 1x4 or 1x{}, and 1x1 where a block has several rows, got "
           "1x{} "
           "with {} rows",
           kMostCluster, c.algorithm.cluster_n, rows_of(c.algorithm));
     }},
    {[](const Case& c) { return !holds_all(c.algorithm) || c.algorithm.slices == 1; },
     [](const Case& c) {
       return fmt::format("slices must be 1 with cluster 1x{} and warp tile {}, got {}",
                          c.algorithm.cluster_n, to_string(c.algorithm.warp_tile),
                          c.algorithm.slices);
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       const int unit = tile_unit(c);
       return t.m == rows_of(c.algorithm) && t.k == 1 && t.n >= unit && t.n <= kMostCudaTile &&
              t.n % unit == 0;
     },
     [](const Case& c) {
       return fmt::format("tile must be {} x n x 1, n a multiple of {} up to {}, got {}",
                          rows_of(c.algorithm), tile_unit(c), kMostCudaTile,
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return registers_needed(c.algorithm) <= registers_of_thread(c); },
     [](const Case& c) {
       return fmt::format("needs {} registers a thread, {} has {} for each of {} threads",
                          registers_needed(c.algorithm), c.target.name, registers_of_thread(c),
                          threads_of(c.algorithm));
     }},
};

// What is best somewhere by the estimate, among all that is legal.
bool is_listed(const Algorithm& a) {
  const int values = values_of(a);
  if (values < 4 || values > 64) return false;
  if (a.warp_tile.m > 1) {
    return a.wave == Shape3{4, 1, 1} && values <= 32 && a.cluster_n * a.slices == 1;
  }
  if (a.cluster_n * a.slices == 1) return true;
  return (a.cluster_n == 1 || a.slices == 1) && a.wave.m == 1 && a.wave.n >= 8 && values >= 16 &&
         values <= 32;
}

// A block has as many rows as its warps stand for.
std::vector<Algorithm> cuda_algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::norm, target);
  std::vector<Algorithm> all;
  const auto add = [&](const Algorithm& a) {
    if (is_listed(a)) all.push_back(a);
  };
  tile::for_each_shape(space, space.tiles, tile::warp_tiles_for(space, DType::fp32),
                       [&](Algorithm a) {
                         a.tile.m = rows_of(a);
                         for (const int slices : {1, 8, 32, 128}) a.slices = slices, add(a);
                         a.slices = 1;
                         for (const Shape3& cluster : space.clusters) {
                           a.cluster_n = cluster.n;
                           if (a.cluster_n > 1) add(a);
                         }
                       });
  return all;
}

Verdict cuda_serves(const KernelSpec& spec, const NormProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  if (is_cut(p)) return cut_rows_serve(a, p);
  const std::int64_t held = std::int64_t{a.tile.n} * a.cluster_n;
  if ((holds_all(a) || p.quant != NormQuant::none) && p.columns > held) {
    return {fmt::format("columns must be at most {}, which {} threads of {} blocks hold, got {}",
                        held, threads_of_row(a), a.cluster_n, p.columns)};
  }
  return rows_serve(spec, p, target);
}

// The registers of what is loaded beside a row: a residual, gates, the weights in fp32 of a long
// part of it. Outputs of 8 bits take some, too.
template <class Asked>
int more_registers(const Algorithm& a, const Asked& asked) {
  constexpr int kFew = 8, kOfScales = 24;
  const int values = values_of(a);
  const bool is_quantised = asked.quant != NormQuant::none;
  const bool weights = asked.scale && asked.shift && asked.weight == DType::fp32 && values >= 32;
  if (asked.residual) return values + (is_quantised ? kFew : 0);
  if (is_gated(asked.kind)) return values / 2 + kFew;
  return (weights ? values / 2 : 0) + (is_quantised ? kOfScales : 0);
}

// The compiler is told to let so many blocks be resident.
template <class Asked>
int resident_blocks(const Algorithm& a, const Asked& asked, const Target& target) {
  const int registers = (registers_needed(a) + more_registers(a, asked) + 7) / 8 * 8;
  return std::max(1, std::min({int(tile::kUnitThreads) / threads_of(a), 32,
                               target.registers_per_unit / (registers * threads_of(a))}));
}

// Rows that the threads hold, then those that they do not; or the two steps of slices.
std::vector<tile::GpuEntry> entries_of(const KernelSpec& spec, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const auto& signature = std::get<NormSignature>(spec.signature);
  if (a.slices > 1) return {{"", "run_slice"}, {"_result", "run_result"}};
  std::vector<tile::GpuEntry> all = {{"", "run", resident_blocks(a, signature, target)}};
  const bool is_quantised = signature.quant != NormQuant::none;
  if (!holds_all(a) && !is_quantised && !is_elementwise(signature.kind))
    all.push_back({"_long", "run_long"});
  return all;
}

Source emit_cuda(const KernelSpec& spec, const Target& target) {
  const Algorithm& a = spec.algorithm;
  tile::Template from = rows_template(spec);
  from.config += fmt::format("  static constexpr int kWarpRows = {}, kSplits = {};\n",
                             a.warp_tile.m, a.cluster_n);
  return tile::cuda_source(spec, kAbi, from, threads_of(a), entries_of(spec, target));
}

// The bytes of shared memory that a matrix's rows of one block take, and 16 before and behind. The
// blocks of a cluster have equal shares of a row.
std::int64_t staged_bytes(const Algorithm& a, const NormProblem& p) {
  const std::int64_t unit = std::int64_t{a.cluster_n} * kVectorBytes / size_of(p.in);
  const std::int64_t share = (p.columns + unit - 1) / unit * unit / a.cluster_n;
  const std::int64_t columns = std::min(p.columns, share);
  return (rows_of(a) * columns * size_of(p.in) / kVectorBytes + 3) * kVectorBytes;
}
constexpr std::int64_t kUnstaged = 8192;  // bytes of shared memory that kernels have beside it
constexpr double kReservedBytes = 1024;   // of shared memory, for each block by the driver

// Rows that are no whole vectors go through shared memory, where they lie without gaps.
bool is_staged(const Algorithm& a, const NormProblem& p, const Target& target) {
  const bool is_held = a.slices == 1 && p.columns <= std::int64_t{a.tile.n} * a.cluster_n;
  if (!is_held || is_elementwise(p.kind) || p.in != p.out ||
      p.columns * size_of(p.in) % kVectorBytes == 0)
    return false;
  for (const std::int64_t ld : {p.ld_in, p.ld_residual, p.ld_out, p.ld_sum}) {
    if (ld != kPacked && ld != p.columns) return false;
  }
  return staged_bytes(a, p) * (p.residual ? 2 : 1) + kUnstaged <= target.shared_memory_bytes;
}
// Where each begins at a multiple of 16 bytes.
bool begin_aligned(const NormOperands& o) {
  for (const void* data :
       {o.in, o.residual, static_cast<const void*>(o.out), static_cast<const void*>(o.sum)}) {
    if (reinterpret_cast<std::uintptr_t>(data) % kVectorBytes != 0) return false;
  }
  return true;
}

Launch bind_cuda(const KernelSpec& spec, const NormProblem& p, const Target& target,
                 const NormOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch = bind_rows(spec, p, target, o);
  if (is_cut(p)) {
    for (Step& step : launch.steps) step.grid[1] = tiles_of(a, p);
    return launch;
  }
  const bool is_long = a.slices == 1 && p.columns > std::int64_t{a.tile.n} * a.cluster_n;
  if (is_long && !launch.steps.empty()) launch.steps[0].entry = 1;
  if (launch.steps.empty() || !is_staged(a, p, target) || !begin_aligned(o)) return launch;
  device::NormArguments arguments = rows_arguments(p, o);
  arguments.staged_bytes = staged_bytes(a, p);
  launch.arguments.set(arguments);
  launch.steps[0].shared_memory_bytes =
      static_cast<std::size_t>(arguments.staged_bytes) * (p.residual ? 2 : 1);
  return launch;
}

// ---- the predicted time ----

struct Work {
  double blocks, rounds;  // `rounds`: how often a unit's resident blocks are replaced
  double passes;          // over what a block has to read, in tiles
  double merges;          // of the threads of a row
  double resident;        // blocks of a unit
  double staged;          // bytes of a block that go through shared memory
};

double merges_of(const NormProblem& p) {
  if (is_elementwise(p.kind)) return p.quant == NormQuant::row ? 1 : 0;
  return p.kind == NormKind::rmsnorm ? 1 : 2;
}

Work work_of(const Algorithm& a, const NormProblem& p, const Target& target) {
  const double blocks = std::ceil(static_cast<double>(p.rows) / rows_of(a)) * a.cluster_n *
                        a.slices * (is_cut(p) ? tiles_of(a, p) : 1);
  const double staged =
      is_staged(a, p, target) ? static_cast<double>(staged_bytes(a, p)) * (p.residual ? 2 : 1) : 0;
  const double room = target.shared_memory_bytes / (staged + kReservedBytes);
  const double resident =
      std::max(1.0, std::min<double>(resident_blocks(a, p, target), std::floor(room)));
  const double rounds = blocks / (resident * target.units);
  const double columns = static_cast<double>(p.columns) / a.slices / a.cluster_n;
  const bool is_held = is_cut(p) || (a.slices == 1 && columns <= a.tile.n);
  return {.blocks = blocks,
          .rounds = rounds < 4 ? std::ceil(rounds) : rounds + 0.5,
          .passes = is_held ? 1 : 2 * std::ceil(columns / a.tile.n),
          .merges = merges_of(p),
          .resident = resident,
          .staged = staged};
}

// The warps' instructions. Elements whose rows are no whole vectors are moved one by one.
double issue_seconds(const Work& w, const Algorithm& a, const NormProblem& p,
                     const Target& target) {
  const bool is_wide = p.columns * size_of(p.in) % kVectorBytes == 0;
  const double moved = is_wide ? 1 : 5 + p.scale + p.shift + 3 * p.residual;
  const double of_value = 6 + (is_gated(p.kind) ? kGatedInstructions : 0) +
                          (p.kind == NormKind::rmsnorm ? 0 : 2) + p.scale + p.shift +
                          2 * p.residual + moved;
  const double merging =
      w.merges * (2 * std::log2(std::min(kWarp, threads_of_row(a))) +
                  (a.wave.n > 1 ? 20 + a.wave.n : 0) + (a.cluster_n > 1 ? 60 : 0));
  const double of_warp = kUsualInstructions + w.passes * (values_of(a) * of_value + merging);
  const double of_unit = std::max(1.0, w.blocks / target.units) * a.wave.m * a.wave.n;
  const double resident = w.resident * a.wave.m * a.wave.n;
  const double warps = std::min(1.0, resident / (kSchedulers * kWarpsOfScheduler));
  const bool is_slowed = values_of(a) > kFewValues && w.staged == 0;
  const double issue =
      of_warp / (kSchedulers * kIssued * std::sqrt(warps)) * (is_slowed ? kSlowedByValues : 1);
  // Lanes of many rows touch as many sectors of memory with each instruction.
  const double touched = w.passes > 1 ? kRowsOfLong : std::min<double>(a.warp_tile.m, 16);
  const double rows = is_wide || w.staged > 0 ? 0 : touched;
  const double parts = double(threads_of_row(a)) * a.cluster_n * a.slices;
  const double used = std::ceil(static_cast<double>(p.columns) / parts);
  const double sectors = used * (2 + 2 * p.residual) * 2 * rows * kCyclesOfSector;
  return of_unit * std::max(issue, sectors) / (target.clock_ghz * 1e9);
}

// Whether a thread asks for its weights together with the row, as HeldRows::kAsksEarly has it.
bool asks_late(const Work& w, const Algorithm& a, const NormProblem& p) {
  const int elements = (p.scale + p.shift) * values_of(a);
  const bool is_wide = p.columns * size_of(p.in) % kVectorBytes == 0;
  const int most = is_wide ? 32 / size_of(p.weight) : 8;
  return elements > 0 && (w.passes > 1 || elements > most);
}

double block_seconds(const Work& w, const Algorithm& a, const NormProblem& p) {
  const double meeting = kMergeSeconds +
                         (a.wave.n > 1 ? kMeetSeconds + a.wave.n * kMeetingWarp : 0) +
                         (a.cluster_n > 1 ? kClusterSeconds : 0);
  const double of_value = kValueSeconds + (p.residual ? kMoreSeconds : 0);
  const double of_pass = kBlockSeconds * (w.passes > 1 ? kOfLongRow : 1) + values_of(a) * of_value;
  return w.passes * of_pass + w.merges * meeting + w.staged * kStagedSeconds +
         (asks_late(w, a, p) ? kLateSeconds : 0);
}

// Traffic, waiting and computing overlap, the better the more unlike they are.
Estimate estimate_cuda(const KernelSpec& spec, const NormProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const Work w = work_of(a, p, target);
  const double again = w.passes > 1 ? elements(p) * size_of(p.in) : 0;
  const bool is_cached = again < 0.5 * tile::cache_bytes(target);
  const double traffic =
      (bytes(p) + (is_cached ? again / 3 : again)) / (target.memory_gb_per_s * 1e9 * kReached);
  const double waiting = std::max(1.0, w.rounds) * block_seconds(w, a, p);
  const double issue = issue_seconds(w, a, p, target);
  const double together =
      std::pow(std::pow(traffic, 4) + std::pow(waiting, 4) + std::pow(issue, 4), 0.25);
  return tile::total_of(issue, together,
                        target.launch_us * 1e-6 + (steps_of(a) - 1) * kStepSeconds);
}

}  // namespace

const Way kRowsCuda = {
    .backend = "cuda",
    .pipeline = Pipeline::rows,
    .rules = kCudaRules,
    .serves = cuda_serves,
    .algorithms = cuda_algorithms,
    .emit = emit_cuda,
    .bind = bind_cuda,
    .estimate = estimate_cuda,
    .own = {{.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {1, 8, 1}, .warp_tile = {}},
            {.pipeline = Pipeline::rows,
             .tile = {1, 32768, 1},
             .wave = {1, 16, 1},
             .warp_tile = {},
             .cluster_n = 8}}};

}  // namespace tessera::norm
