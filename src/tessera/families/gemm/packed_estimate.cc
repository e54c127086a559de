// How long a CPU kernel should take. The estimate counts the instructions that
// src/tessera/device/cpu issues, the packing, and the traffic between caches, each at the rates of
// the target's row. Its purpose is ranking, so constants matter only where they separate kernels.
#include <algorithm>
#include <cmath>

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/packed.h"
#include "tessera/families/gemm/scales.h"

namespace tessera::gemm {
namespace {

// Every constant that is not in the target's row. Provenance: the constants were fitted by
// simulated annealing to 12,900 timings (119 fp32, bf16 and int8 problems of bench/shapes square,
// odd and skinny, one thread) on an AMD Zen 4 server core, so that the kernel with the least
// estimate is as fast as possible. It is 2.4% slower than the fastest measured kernel in the
// geometric mean and 21% at worst. Not fitted: convert_cycles of fp16 and 8-bit floats,
// in_place_a_column, the epilogue's cycles, over_k and barrier_us. lane_sum_cycles, ragged_cycles
// and turn_cycles were read off single timings with short k. "Cycles" are clock cycles of a core.
struct CpuModel {
  double broadcast = 1;            // cost of a load that repeats an element of A, in vector loads
  double latency = 9.0;            // cycles until an accumulator can be used again
  double issue_share = 0.988;      // share of the peak that a full register block in L1 reaches
  double block_cycles = 1.02;      // cycles to enter and leave a register block
  double store_cycles = 0.454;     // cycles for each accumulator stored, or loaded when k has parts
  double finish_cycles = 2.5;      // cycles for each output vector scaled, fused or converted
  double step_cycles = 2;          // cycles for each vector and cheap step (bias, add, relu, ...)
  double function_cycles = 30;     // cycles for each vector and function (gelu, tanh, ...)
  double copy_cycles = 0.109;      // cycles to pack an element whose panel dimension is contiguous
  double transpose_cycles = 0.31;  // cycles to pack an element whose k is contiguous
  double convert_cycles[4] = {0.1, 0.08, 0.4, 0.08};  // further cycles to pack an element of fp16,
                                                      // bf16, 8-bit floats, int8
  double lane_sum_cycles = 12;  // streaming along k: cycles for each output to sum over lanes
  double ragged_cycles = 4;     // cycles for each row of the wide operand that ends within a vector
  double turn_cycles = 70;      // streaming A: cycles to write a row of several outputs
  double gather_cycles = 0.2;   // cycles for each row of k that a streamed vector is made of
  double spill_share = 1.25;    // share of packing's traffic beyond L2 that is not hidden
  double panel_run = 0;         // cycles to start packing a panel's row from a row-major B
  double page_run = 0;          // further cycles when the panel's rows are many and pages apart
  double as_is_share = 1;  // share of gathering and converting for words that memory holds as such
  double scatter_cycles = 0;  // cycles to pack a word of the narrow operand when k is strided
  double again_share = 0;     // share of the time to reread a narrow operand larger than half of L2
  double exposed_share = 0;   // share of a blocked kernel's traffic that instructions do not hide
  double run_start = 165.0;   // elements that stream in the time to start a run
  double clock_boost = 1.4;   // clock of a busy core over the clock in the target's row
  double cache_share = 0.501;       // share of a cache that a block may fill without being evicted
  double stall_share = 0.02;        // share of the cycles of loads below L1 that are not hidden
  double in_place_a = 1.01;         // factor of reading a row-major A in place
  double in_place_a_column = 1.18;  // factor of reading a column-major A in place
  double aliased_a = 1.35;   // further factor when one set of L1 must hold more rows than it has
                             // ways
  double in_place_b = 1.01;  // factor of reading a B larger than L2 in place
  double aliased_b = 1.04;   // further factor when B's rows share sets of the caches
  double core_memory_share = 0.352;  // share of the machine's bandwidth that one core reaches
  double stream_share = 0.993;       // share of that bandwidth that stream kernels reach
  double blocked_share = 0.795;      // share of that bandwidth that blocked kernels reach
  double call_us = 0.0522;           // microseconds of a launch on one thread
  double over_k = 1.05;     // factor of sharing k: the team waits for its slowest thread twice
  double barrier_us = 1.0;  // microseconds of one barrier of the whole team
};
constexpr CpuModel kOnePipe;

// The constants of cores that multiply two vectors of 512 bits in a cycle, fitted in the same way
// to 26,192 timings of 198 such problems on an AMD Zen 5 server core. The kernel with the least
// estimate is 5% slower than the fastest measured kernel; on 27 problems outside of the fit, all
// with more than 16 rows and columns, it is 2% slower. Not fitted: scatter_cycles, again_share.
constexpr CpuModel kTwoPipes = {
    .broadcast = 1.306,
    .latency = 5.565,
    .issue_share = 0.8154,
    .block_cycles = 0,
    .store_cycles = 0.7192,
    .finish_cycles = 1.493,
    .copy_cycles = 0.117,
    .transpose_cycles = 0.1105,
    .convert_cycles = {0.1, 0.08639, 0.4, 0.2423},
    .lane_sum_cycles = 7.79,
    .ragged_cycles = 0,
    .turn_cycles = 20.95,
    .gather_cycles = 2,
    .spill_share = 0.2189,
    .panel_run = 1.315,
    .page_run = 1.164,
    .as_is_share = 0.4134,
    .scatter_cycles = 2,
    .again_share = 1,
    .exposed_share = 0.7487,
    .run_start = 24.2,
    .clock_boost = 1.474,
    .cache_share = 0.2166,
    .stall_share = 0.0007179,
    .in_place_a = 1.004,
    .aliased_a = 1.196,
    .in_place_b = 1.014,
    .aliased_b = 1.25,
    .core_memory_share = 0.7955,
    .stream_share = 1.029,
    .blocked_share = 0.7259,
    .call_us = 0.2256,
};

// Cycles to multiply a vector of sums by two scales and to add it to another, once for each block
// of scales: the difference of 1x32 and 1x128 at 1024 cubed on an AMD Zen 5 core.
constexpr double kScaleCycles = 3;

// What the model needs from the target and the spec, looked up once.
struct Machine {
  const CpuModel& model;
  const KernelSpec& spec;
  const GemmSignature& signature;
  const Target& target;
  int threads;
  int words_of_step;
  int lanes;
  double macs_rate;         // multiply instructions on vectors in a cycle
  double loads_rate;        // vectors loaded from L1 in a cycle
  double l1, l2;            // bytes of the cache that a block may use
  int l1_ways;              // lines of L1 that share a set
  double l2_rate, l3_rate;  // bytes in a cycle
  double hertz;
};

// The constants of cores like the target's, which multiply one or two vectors of 512 bits in a
// cycle.
const CpuModel& model_of(const Target& target) {
  const Instruction* fma = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  const bool wide = target.vector_bytes == 64 && fma != nullptr && fma->per_cycle >= 2;
  return wide ? kTwoPipes : kOnePipe;
}

double cache_bytes(const Target& target, std::size_t level, const CpuModel& model) {
  if (level >= target.caches.size()) return 1e18;
  return static_cast<double>(target.caches[level].bytes) * model.cache_share;
}
double cache_rate(const Target& target, std::size_t level) {
  if (target.caches.empty()) return 16;
  return std::max(1.0, target.caches[std::min(level, target.caches.size() - 1)].bytes_per_cycle);
}

Machine machine(const KernelSpec& spec, const Target& target, int threads) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Instruction* i = find_word_instruction(s, spec.algorithm.warp_tile.k, target);
  const CpuModel& model = model_of(target);
  return {.model = model,
          .spec = spec,
          .signature = s,
          .target = target,
          .threads = threads,
          .words_of_step = own_of(spec, target).words_of_step,
          .lanes = std::max(1, target.vector_bytes / 4),
          .macs_rate = i == nullptr ? 1 : std::max(i->per_cycle, 1e-3),
          .loads_rate = std::max(1.0, cache_rate(target, 0) / std::max(1, target.vector_bytes)),
          .l1 = cache_bytes(target, 0, model),
          .l2 = cache_bytes(target, 1, model),
          .l1_ways = target.caches.empty() ? CacheLevel{}.ways : target.caches.front().ways,
          .l2_rate = cache_rate(target, 1),
          .l3_rate = cache_rate(target, 2),
          .hertz = busy_hertz(target)};
}

// ---- the register block ----

// Cycles to multiply one word of k in a register block of `rows` rows by `vectors` vectors.
double word_cycles(const Machine& x, double rows, double vectors) {
  const double multiply = rows * vectors / (x.macs_rate * x.model.issue_share);
  const double load = (rows * x.model.broadcast + vectors) / x.loads_rate;
  return std::max({multiply, load, x.model.latency});
}

// Calls visit(count, rows) for the whole register blocks of `block` rows, and then for the smallest
// block of multiply_rows() that takes the rest.
template <class Visit>
void for_each_row_block(double rows, int block, Visit visit) {
  const double whole = std::floor(rows / block);
  if (whole > 0) visit(whole, block);
  const double left = rows - whole * block;
  if (left <= 0) return;
  const auto fewer = [](int n) { return n > 8 ? 8 : n > 4 ? n / 2 : 0; };
  while (fewer(block) > 0 && left <= fewer(block)) block = fewer(block);
  visit(1, block);
}

// The vectors that multiply_any() uses for a panel of `columns` columns: those of a whole panel, or
// half of them.
int vectors_for(const Machine& x, double columns) {
  const int vectors = x.spec.algorithm.warp_tile.n / x.lanes;
  const int half = vectors / 2;
  return half > 0 && columns <= half * x.lanes ? half : vectors;
}

// The part of the problem that one thread computes.
struct Share {
  double batches, rows, columns, k;
};

double panel_cycles(const Machine& x, const Share& s, double columns) {
  const Algorithm& a = x.spec.algorithm;
  const double vectors = vectors_for(x, columns);
  const double words = std::ceil(s.k / a.warp_tile.k);
  const double parts = std::max(1.0, blocks(s.k, a.tile.k));
  // A panel of A comes from L2 or below. A panel of B stays in L1 if it fits.
  const double depth_bytes = std::min<double>(s.k, a.tile.k) / a.warp_tile.k * 4;
  const bool a_in_l2 = depth_bytes * std::min<double>(a.tile.m, s.rows) <= x.l2;
  const bool b_in_l1 = depth_bytes * (columns + a.warp_tile.m) <= x.l1;
  const double a_cycles = 4 / (a_in_l2 ? x.l2_rate : x.l3_rate);
  const double b_cycles = b_in_l1 ? 0 : vectors * x.lanes * 4 / x.l2_rate;
  const double runs = has_scales(x.signature) && a.warp_tile.k > 1
                          ? std::ceil(s.k / elements_of_scale(x.signature))
                          : 0;
  double cycles = 0;
  for_each_row_block(s.rows, a.warp_tile.m, [&](double count, int rows) {
    const double stall = x.model.stall_share * (rows * a_cycles + b_cycles);
    const double store = x.model.store_cycles * rows * vectors * (2 * parts - 1);
    const double scale = kScaleCycles * rows * vectors * runs;
    cycles += count * (words * (word_cycles(x, rows, vectors) + stall) + store + scale +
                       parts * x.model.block_cycles);
  });
  return cycles;
}

double in_place_factor(const Machine& x, const GemmProblem& p) {
  const Pipeline pipeline = x.spec.algorithm.pipeline;
  double factor = 1;
  if (pipeline == Pipeline::packb || pipeline == Pipeline::direct) {
    const bool rows = a_is_row_major(p.layout);
    factor *= rows ? x.model.in_place_a : x.model.in_place_a_column;
    const std::int64_t block = std::min<std::int64_t>(p.m, x.spec.algorithm.warp_tile.m);
    const bool one_set = rows && p.ld_a * size_of(p.a) % 4096 == 0;
    if (one_set && block > x.l1_ways) factor *= x.model.aliased_a;
  }
  if (pipeline == Pipeline::packa || pipeline == Pipeline::direct) {
    const double pitch = static_cast<double>(p.ld_b) * 4;
    if (pitch * static_cast<double>(p.k) > x.l2) factor *= x.model.in_place_b;
    if (p.k > 64 && (p.ld_b * 4) % 4096 == 0) factor *= x.model.aliased_b;
  }
  return factor;
}

double multiply_cycles(const Machine& x, const GemmProblem& p, const Share& s) {
  const int width = x.spec.algorithm.warp_tile.n;
  const double whole = std::floor(s.columns / width);
  double cycles = whole * panel_cycles(x, s, width);
  if (s.columns > whole * width) cycles += panel_cycles(x, s, s.columns - whole * width);
  return cycles * in_place_factor(x, p);
}

// ---- packing, the epilogue, traffic between caches ----

double convert_cycles(const Machine& x, DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return x.model.convert_cycles[0];
    case DType::bf16:
      return x.model.convert_cycles[1];
    case DType::fp8:
    case DType::bf8:
      return x.model.convert_cycles[2];
    case DType::int8:
      return x.model.convert_cycles[3];
    default:
      return 0;
  }
}

// The constants hold for 16 lanes. Narrower vectors pack fewer elements at a time.
double pack_cycles(const Machine& x, DType dtype, bool k_contiguous) {
  const double move = k_contiguous ? x.model.transpose_cycles : x.model.copy_cycles;
  return (move + convert_cycles(x, dtype)) * 16 / x.lanes;
}

// Packing an operand that does not stay in L2 writes it and reads it once more.
double spill_cycles(const Machine& x, double elements) {
  const double size = elements * 4 / x.spec.algorithm.warp_tile.k;
  return size <= x.l2 ? 0 : 2 * size / x.l3_rate * x.model.spill_share;
}

// The rows whose partial sums are kept at once, as in packed_gemm.h. B is packed again for each
// such group of rows.
double super_rows(const Machine& x, const Share& s) {
  const Algorithm& a = x.spec.algorithm;
  if (s.k <= a.tile.k) return std::max(1.0, s.rows);
  const std::int64_t fit =
      device::kPartialBytes / (std::int64_t{a.tile.n} * 4) / a.tile.m * a.tile.m;
  return static_cast<double>(std::max<std::int64_t>(fit, a.tile.m));
}

double row_blocks(const Machine& x, const Share& s) {
  const auto rows = static_cast<std::int64_t>(std::ceil(s.rows));
  return static_cast<double>(device::row_blocks(rows, x.spec.algorithm.tile.m));
}

// The columns of B that are packed before the first one is multiplied. This is one panel when A is
// one block of rows.
double columns_at_once(const Machine& x, const Share& s) {
  const Algorithm& a = x.spec.algorithm;
  const bool by_panels = packs_b(a.pipeline);
  return by_panels && row_blocks(x, s) == 1 ? a.warp_tile.n : std::min<double>(s.columns, a.tile.n);
}

// Packing a panel of a row-major B reads a short run of each row.
double run_cycles(const Machine& x, const GemmProblem& p, const Share& s) {
  constexpr std::int64_t kPage = 4096;
  constexpr double kManyRows = 256;  // a little above the number of pages that a core translates
                                     // quickly
  if (!b_is_row_major(p.layout)) return 0;
  const Algorithm& a = x.spec.algorithm;
  const bool by_pages =
      p.ld_b * size_of(p.b) >= kPage && std::min<double>(s.k, a.tile.k) > kManyRows;
  const double each = x.model.panel_run + (by_pages ? x.model.page_run : 0);
  return s.k * blocks(s.columns, a.warp_tile.n) * each;
}

double packing_cycles(const Machine& x, const GemmProblem& p, const Share& s) {
  const Algorithm& a = x.spec.algorithm;
  double cycles = 0;
  if (packs_a(a.pipeline)) {
    const double rows = blocks(s.rows, a.warp_tile.m) * a.warp_tile.m;
    const double times = blocks(s.columns, a.tile.n);
    cycles += rows * s.k * times * pack_cycles(x, p.a, a_is_row_major(p.layout));
    cycles += times * spill_cycles(x, rows * s.k);
  }
  if (!p.preshuffled_b && packs_b(a.pipeline)) {
    const double columns = blocks(s.columns, a.warp_tile.n) * a.warp_tile.n;
    const double times = blocks(s.rows, super_rows(x, s));
    cycles += columns * s.k * times * pack_cycles(x, p.b, !b_is_row_major(p.layout));
    cycles += times * run_cycles(x, p, s);
    if (row_blocks(x, s) > 1) cycles += times * spill_cycles(x, columns * s.k);
  }
  return cycles;
}

// Every block of A's rows reads the block of B again.
double reread_cycles(const Machine& x, const Share& s) {
  const Algorithm& a = x.spec.algorithm;
  const double word_bytes = 4.0 / a.warp_tile.k;
  const double block = std::min<double>(s.k, a.tile.k) * columns_at_once(x, s);
  const double rate = block * word_bytes <= x.l2 ? x.l2_rate : x.l3_rate;
  return s.k * s.columns * word_bytes * row_blocks(x, s) / rate * x.model.stall_share;
}

double finish_cycles(const Machine& x, const GemmProblem& p, const Share& s) {
  const bool same_type = p.acc == p.out || (is_fp32(p.acc) && is_fp32(p.out));
  const bool raw = same_type && num_ops(p.epilogue) == 0 && p.alpha == 1.0F && p.beta == 0;
  if (raw) return 0;
  double per_vector = x.model.finish_cycles;
  for (int i = 0; i < num_ops(p.epilogue); ++i) {
    const EpilogueOp op = p.epilogue.ops[static_cast<std::size_t>(i)];
    per_vector += tile::is_function(op) ? x.model.function_cycles : x.model.step_cycles;
  }
  return s.rows * std::ceil(s.columns / x.lanes) * per_vector;
}

// Seconds to read every operand once, from the cache level or the memory that holds all of them.
double traffic_seconds(const Machine& x, const GemmProblem& p, int threads, double share) {
  const double size = bytes_of(p);
  const double over = threads;
  if (size <= x.l2 * over) return size / (x.l2_rate * over * x.hertz);
  const double machine = std::max(x.target.memory_gb_per_s, 1.0) * 1e9 * share;
  const double memory = machine * std::min(1.0, x.model.core_memory_share * over);
  const double l3 = x.l3_rate * over * x.hertz * share;
  const bool in_l3 = x.target.caches.size() > 2 && size <= cache_bytes(x.target, 2, x.model);
  return size / (in_l3 ? std::max(l3, memory) : memory);
}

// How many times slower streaming is because of short runs. A is read in runs of tile_k. The output
// is written in runs of a tile's row when a tile is at most two register blocks high, otherwise in
// runs of a register block's row.
double run_factor(const Machine& x, const GemmProblem& p) {
  const Algorithm& a = x.spec.algorithm;
  const double a_row = std::max<double>(1, std::min<double>(p.k, a.tile.k));
  const double a_run = a_is_row_major(p.layout) ? a_row : a.tile.m;
  const bool low = a.tile.m <= 2 * a.warp_tile.m;
  const double out_run = std::min<double>(p.n, low ? a.tile.n : a.warp_tile.n);
  const double a_bytes = static_cast<double>(p.m) * p.k * size_of(p.a);
  const double out_bytes = static_cast<double>(p.m) * p.n * size_of(p.out);
  const double starts = a_bytes / a_run + out_bytes / out_run;
  return 1 + x.model.run_start * starts * p.batch / std::max(1.0, bytes_of(p));
}

double useful_share(const GemmProblem& p, double seconds, const Machine& x, int threads) {
  const double peak = x.macs_rate * x.lanes * x.spec.algorithm.warp_tile.k * x.hertz * threads;
  return seconds > 0 ? std::min(1.0, flops_of(p) / 2 / (peak * seconds)) : 1;
}

// The share of a problem's bytes that A and B have. A packed B is not counted, because it is read
// in order, which hides its latency.
double operands_share(const GemmProblem& p) {
  const double a = static_cast<double>(p.m) * p.k * size_of(p.a);
  const double b = p.preshuffled_b ? 0 : static_cast<double>(p.k) * p.n * size_of(p.b);
  return (a + b) * p.batch / std::max(1.0, bytes_of(p));
}

// The seconds for which a blocked kernel waits for memory instead of multiplying.
double waiting_seconds(const Machine& x, const GemmProblem& p, double busy, double traffic) {
  return x.model.exposed_share * std::min(busy, traffic * operands_share(p));
}

// ---- the ways of sharing a problem ----

double overhead_seconds(const Machine& x, int used, int barriers) {
  const double team = used > 1 ? x.target.launch_us + barriers * x.model.barrier_us : 0;
  return (x.model.call_us + team) * 1e-6;
}

device::Grid grid_of(const Machine& x, const GemmProblem& p) {
  const Algorithm& a = x.spec.algorithm;
  device::GemmArguments g{};
  g.m = p.m;
  g.n = p.n;
  g.batch = p.batch;
  return device::best_grid(g, x.threads, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n, x.lanes);
}

Estimate estimate_grid(const Machine& x, const GemmProblem& p, const device::Grid& grid) {
  const Algorithm& a = x.spec.algorithm;
  const auto split = [](std::int64_t size, int block, int parts) {
    const auto whole = static_cast<double>(size);
    return std::min(whole, blocks(blocks(whole, block), parts) * block);
  };
  const Share s = {split(p.batch, 1, grid.batch), split(p.m, a.warp_tile.m, grid.m),
                   split(p.n, a.warp_tile.n, grid.n), static_cast<double>(p.k)};
  const int used = grid.batch * grid.m * grid.n;
  const double cycles = multiply_cycles(x, p, s) + packing_cycles(x, p, s) + reread_cycles(x, s) +
                        finish_cycles(x, p, s);
  const double busy = s.batches * cycles / x.hertz;
  const double traffic = traffic_seconds(x, p, used, x.model.blocked_share);
  return total_of(busy + waiting_seconds(x, p, busy, traffic), traffic * run_factor(x, p),
                  overhead_seconds(x, used, 0), useful_share(p, busy, x, used));
}

// The seconds to write the sums of every thread once and to read them once.
double sums_seconds(const Machine& x, double size, int threads) {
  const bool in_l3 = x.target.caches.size() > 2 && size <= cache_bytes(x.target, 2, x.model);
  const double l3 = x.l3_rate * threads * x.hertz;
  const double machine = std::max(x.target.memory_gb_per_s, 1.0) * 1e9;
  const double memory = machine * std::min(1.0, x.model.core_memory_share * threads);
  return 2 * size / (in_l3 ? std::max(l3, memory) : memory);
}

// Threads share k and then add their sums. The team meets at two barriers in each batch.
Estimate estimate_over_k(const Machine& x, const GemmProblem& p, int parts) {
  const auto grain = static_cast<double>(k_grain(p, x.spec.algorithm, x.words_of_step));
  const double k = blocks(blocks(static_cast<double>(p.k), grain), parts) * grain;
  const Share s = {static_cast<double>(p.batch), static_cast<double>(p.m), static_cast<double>(p.n),
                   std::min(k, static_cast<double>(p.k))};
  const Share rows = {s.batches, std::ceil(s.rows / parts), s.columns, s.k};
  const double cycles = multiply_cycles(x, p, s) + packing_cycles(x, p, s) + reread_cycles(x, s) +
                        finish_cycles(x, p, rows) +
                        rows.rows * std::ceil(s.columns / x.lanes) * x.model.finish_cycles;
  const double sums = sums_seconds(x, s.rows * s.columns * 4 * parts, parts);
  const double busy = s.batches * (cycles / x.hertz + sums) * x.model.over_k;
  const double traffic = traffic_seconds(x, p, parts, x.model.blocked_share);
  return total_of(busy + waiting_seconds(x, p, busy, traffic), traffic,
                  overhead_seconds(x, parts, 2 * static_cast<int>(p.batch)),
                  useful_share(p, busy, x, parts));
}

// The cycles that stream kernels spend at the ends of rows. They matter for short rows only.
double ends_cycles(const Machine& x, const GemmProblem& p, const Share& s) {
  const bool narrow_is_a = device::narrow_is_a(p.m, p.n);
  const bool k_strided = narrow_is_a ? b_is_row_major(p.layout) : !a_is_row_major(p.layout);
  const bool one_column = p.n == 1 && p.ld_out == 1 && p.epilogue.num_d == 0;
  double each = narrow_is_a || one_column ? 0 : x.model.turn_cycles;
  if (!k_strided) {
    const bool ragged = p.k % (x.lanes * x.spec.algorithm.warp_tile.k) != 0;
    each += static_cast<double>(device::narrow_rows(static_cast<std::int64_t>(s.rows))) *
                x.model.lane_sum_cycles +
            (ragged ? x.model.ragged_cycles : 0);
  }
  return s.columns * each;
}

// The cycles to read the narrow operand again when it is larger than half of L2. Dot products read
// it once for every six rows of the wide operand.
double again_cycles(const Machine& x, double narrow_bytes, double wide) {
  const bool fits = x.target.caches.size() < 2 || narrow_bytes * 2 <= x.target.caches[1].bytes;
  return fits ? 0 : wide / 6 * narrow_bytes / x.l3_rate * x.model.again_share;
}

// A stream kernel reads the wide operand once, and converts and multiplies it while reading.
Estimate estimate_stream(const Machine& x, const GemmProblem& p) {
  const Algorithm& a = x.spec.algorithm;
  const bool narrow_is_a = device::narrow_is_a(p.m, p.n);
  const int used = a.wave.m == 0 || a.wave.n == 0 ? x.threads : 1;
  const auto narrow = static_cast<double>(narrow_is_a ? p.m : p.n);
  const auto wide = static_cast<double>(narrow_is_a ? p.n : p.m);
  const DType dtype = narrow_is_a ? p.b : p.a;
  const auto k = static_cast<double>(p.k);
  const double vectors = wide * k / a.warp_tile.k / x.lanes / used;
  const std::int64_t computed = device::narrow_rows(narrow_is_a ? p.m : p.n);
  const auto rows = static_cast<double>(computed);
  const bool k_strided = narrow_is_a ? b_is_row_major(p.layout) : !a_is_row_major(p.layout);
  const double turns = std::ceil(rows / 8);  // how often the wide operand is read
  // With a strided k, the sums of a strip are read and written for every few words of k. They come
  // from L2 when they do not fit L1. Memory is read in runs as long as the strip.
  const bool sums_in_l1 = rows * a.tile.n * 4 <= x.l1;
  const double depth = device::words_at_once(computed, a.warp_tile.k);
  const double moves = k_strided ? rows * 2 / depth / x.loads_rate : 0;
  const double spills = k_strided && !sums_in_l1 ? rows / 4 * x.lanes * 4 / x.l2_rate : 0;
  const double gather = k_strided ? turns * a.warp_tile.k * x.model.gather_cycles : 0;
  const bool as_they_are =
      size_of(dtype) * a.warp_tile.k == 4 && (!k_strided || a.warp_tile.k == 1);
  const double sums = moves + spills;
  const double run = k_strided ? 1 + x.model.run_start / a.tile.n : 1;
  const double converted =
      (turns * convert_cycles(x, dtype) * x.lanes * a.warp_tile.k / 4 + gather) *
      (as_they_are ? x.model.as_is_share : 1);
  const double per_vector =
      std::max(rows / (x.macs_rate * x.model.issue_share), (turns + rows / 2) / x.loads_rate) +
      sums + converted;
  const double scattered = k_strided ? narrow * k / a.warp_tile.k * x.model.scatter_cycles : 0;
  const double narrow_pack =
      narrow * k * pack_cycles(x, narrow_is_a ? p.a : p.b, true) * 4 + scattered;
  const Share s = {1, narrow, wide / used, k};
  const double again = k_strided ? 0 : again_cycles(x, rows * k / a.warp_tile.k * 4, s.columns);
  const double cycles =
      vectors * per_vector + narrow_pack + again + finish_cycles(x, p, s) + ends_cycles(x, p, s);
  const double compute = static_cast<double>(p.batch) * cycles / x.hertz;
  const double memory = traffic_seconds(x, p, used, x.model.stream_share) * run;
  return total_of(compute, memory, overhead_seconds(x, used, 0), useful_share(p, compute, x, used));
}

// ---- what the count leaves out ----

// What the count leaves out of short calls of blocked and stream kernels: copies of incomplete
// panels and blocks. On 402 drawn problems of up to 300 microseconds these calls took up to 6.7
// times as long as counted, 1.5 times those of less than 5 microseconds in the geometric mean. The
// factor keeps the order of kernels. It is not in estimate_cpu(), whose bits are features of
// models.
constexpr double kLeftOut = 0.45;
constexpr double kLongCall = 200e-6;  // seconds, from where on it counts less and less
Estimate with_short_calls(Estimate e) {
  const double busy = e.seconds - e.overhead_seconds;
  const double more = kLeftOut * busy / (1 + busy / kLongCall);
  e.overhead_seconds += more;
  e.seconds += more;
  return e;
}

// Few rows of A by rows of B, in vectors of 8 lanes: each step along k reads half a line, and B's
// next row is lines away. 100 cycles and 5 for each step, at most 650, are what 17 timings of 8
// columns were above the count on an AMD Zen 4 core. Vectors of 16 lanes read whole lines.
constexpr int kNarrowLanes = 8;
double narrow_runs_seconds(const GemmProblem& p, const Target& target, int threads) {
  const int lanes = target.vector_bytes / 4;
  const bool reads_rows = b_is_row_major(p.layout) && p.m <= p.n;
  if (lanes > kNarrowLanes || !reads_rows) return 0;
  const double vectors = std::ceil(static_cast<double>(p.n) / lanes) * static_cast<double>(p.batch);
  const double each = std::min(100 + 5 * static_cast<double>(p.k), 650.0);
  return vectors * each / busy_hertz(target) / threads;
}

}  // namespace

double busy_hertz(const Target& target) {
  return std::max(target.clock_ghz, 0.1) * 1e9 * model_of(target).clock_boost;
}

Estimate estimate_cpu(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                      int threads, const device::Grid* known) {
  const Machine x = machine(spec, target, threads);
  const auto over_grid = [&] {
    return estimate_grid(x, p, known == nullptr ? grid_of(x, p) : *known);
  };
  if (p.m == 0 || p.n == 0 || p.batch == 0) {
    return total_of(0, 0, overhead_seconds(x, 1, 0), 1);
  }
  const Algorithm& a = spec.algorithm;
  if (a.pipeline == Pipeline::stream) return estimate_stream(x, p);
  if (a.wave.k == 1) return over_grid();
  const std::int64_t limit = a.wave.k == 0 ? threads : std::min(a.wave.k, threads);
  const std::int64_t grain = k_grain(p, a, x.words_of_step);
  const std::int64_t parts = std::min(limit, (p.k + grain - 1) / grain);
  return parts > 1 ? estimate_over_k(x, p, static_cast<int>(parts)) : over_grid();
}

Estimate estimate_packed(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                         int threads) {
  return with_short_calls(estimate_cpu(spec, p, target, threads));
}

Estimate estimate_narrow(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                         int threads) {
  Estimate e = with_short_calls(estimate_cpu(spec, p, target, threads));
  const double more = narrow_runs_seconds(p, target, threads);
  e.overhead_seconds += more;
  e.seconds += more;
  return e;
}

}  // namespace tessera::gemm
