// The analytic estimate of GPU kernels: what the busiest unit does, in cycles, against the bytes
// that the problem moves at least.
#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/estimate_internal.h"

namespace tessera::gemm {
namespace {

constexpr GpuModel kGpuModel = {};

}  // namespace

double gpu_macs_per_cycle(DType a, DType b, const Target& target, bool wide) {
  double best = 0;
  for (const Instruction& i : target.instructions) {
    const bool fits = i.a == a && (i.b == b || (size_of(i.b) == 1 && size_of(b) == 1));
    if (!fits || (!wide && (i.name == "wgmma" || i.name == "mfma"))) continue;
    best = std::max(best, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return best > 0 ? best : 1;
}

int copy_bytes(const GemmProblem& p) {
  int width = 16;
  while (p.ld_a * size_of(p.a) % width != 0 || p.ld_b * size_of(p.b) % width != 0) width /= 2;
  return width;
}

double fetch_share(const GemmProblem& p) {
  const std::int64_t b = p.preshuffled_b ? 0 : p.ld_b * size_of(p.b);
  const std::int64_t distance = p.ld_a * size_of(p.a) | b;
  if (distance % 128 == 0) return 1;
  return distance % 64 == 0   ? kGpuModel.fetch_64
         : distance % 32 == 0 ? kGpuModel.fetch_32
                              : kGpuModel.fetch_16;
}

bool stores_aligned(const GemmProblem& p) {
  const bool strided = p.batch > 1 && !p.pointer_arrays;
  const std::int64_t elements = p.n | p.ld_out | (strided ? p.batch_stride_out : 0);
  return elements * size_of(p.out) % 16 == 0;
}

// Comparisons hide behind conversions and stores.
double output_cycles(const Epilogue& epilogue) {
  using enum EpilogueOp;
  double cycles = 0;
  for (int i = 0; i < num_ops(epilogue); ++i) {
    const EpilogueOp op = epilogue.ops[static_cast<std::size_t>(i)];
    if (op == gelu) {
      cycles += kGpuModel.gelu;
    } else if (op == gelu_tanh || op == silu || op == sigmoid || op == tanh) {
      cycles += kGpuModel.function;
    }
  }
  return cycles + epilogue.num_d * kGpuModel.read;
}

double store_factor(const Algorithm& a, bool aligned, bool by_copy) {
  constexpr int kWide = 64;  // columns
  const bool tmaws = a.pipeline == Pipeline::tmaws;
  const int chunk = tmaws && !a.swap_ab ? tmaws_store(a).chunk : kWide;
  if (by_copy) return chunk >= kWide ? 1 : chunk == 32 ? kGpuModel.copy_32 : kGpuModel.copy_16;
  if (aligned) return chunk >= 32 ? kGpuModel.direct : kGpuModel.direct_16;
  return kGpuModel.unaligned * (tmaws ? 1 : 2) * kWide / chunk;
}

double copied_bytes(const GemmProblem& p) {
  const TmawsCopies copies = tmaws_copies(p);
  const double rows_a = copies.a ? static_cast<double>(p.m) * size_of(p.a) : 0;
  const double rows_b = copies.b ? static_cast<double>(p.n) * size_of(p.b) : 0;
  return static_cast<double>(p.batch) * (rows_a + rows_b) * static_cast<double>(p.k);
}

namespace {

constexpr double kWarpgroupRows = 64;

bool is_tmaws(const Algorithm& a) { return a.pipeline == Pipeline::tmaws; }
bool is_pingpong(const Algorithm& a) { return a.scheduler == Scheduler::pingpong; }

// The instruction whose rate the kernel runs at.
double macs_per_cycle(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  return gpu_macs_per_cycle(s.a, s.b, target, spec.algorithm.pipeline != Pipeline::cpasync);
}

// A kernel on a problem, counted out.
struct Work {
  double tiles = 1;          // of the output, all batches
  double parts = 1;          // that K is split into
  double units = 1;          // that clusters can use
  double steps = 1;          // of K that a block multiplies for a tile
  double resident = 1;       // blocks of a unit at a time
  double tile_macs = 0;      // of a step
  double tile_bytes = 0;     // that a step reads from L2
  double operand_bytes = 0;  // that a step's instructions read from shared memory
  double out_bytes = 0;      // of a tile
  double copy_cycles = 0;    // of a step, in which threads issue its copies
  double fetch = 0;          // bytes of L2 that a unit reads in a cycle
  bool aligned = true;       // rows of the output ...
  bool by_copy = true;       // ... which the copy engine may write, as far as the problem goes
  double load_cycles = 0;    // of a step, where threads load rows that no copy can move
  double fma_cycles = 0;     // of a step of fp32 among other blocks ...
  double alone_cycles = 0;   // ... and of a block that is alone
};

// Copies move 4 bytes or more; rows at other distances are loaded by the threads.
double load_cycles(const Algorithm& a, const GemmProblem& p, double bytes, double threads) {
  if (is_tmaws(a) || copy_bytes(p) >= 4) return 0;
  const double each = std::max(1.0, bytes / 16 / threads);
  return kGpuModel.load * (each > kGpuModel.loads ? each : 1);
}

double threads_of(const Algorithm& a, const Target& target) {
  if (!is_tmaws(a)) return static_cast<double>(a.wave.m) * a.wave.n * a.wave.k * target.warp_size;
  return a.wave.m == 1 ? 160 : 128.0 * (a.wave.m + 1);
}

// Blocks of a unit: those of kernels with several consumers take all of its registers.
double resident_blocks(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  if (target.backend != "cuda" || (is_tmaws(a) && a.wave.m > 1)) return 1;
  const auto bytes = static_cast<double>(shared_memory(s, a).all);
  const double threads = threads_of(a, target);
  const double multiplying = is_tmaws(a) ? 128 : threads;
  const double registers = kRegistersBesides + a.tile.m * a.tile.n / multiplying;
  const double by_shared =
      (static_cast<double>(target.shared_memory_bytes) + kSharedReserve) / (bytes + kSharedReserve);
  const double by_registers = target.registers_per_unit / (registers * threads);
  return std::clamp(std::floor(std::min(by_shared, by_registers)), 1.0, kMaxBlocks);
}

double operand_bytes(const Algorithm& a, const Shape3& tile, double element) {
  if (is_tmaws(a)) return tile.m / kWarpgroupRows * (kWarpgroupRows + tile.n) * tile.k * element;
  const double rows = static_cast<double>(tile.m) * a.wave.n;
  const double columns = static_cast<double>(tile.n) * a.wave.m;
  return (rows + columns) * tile.k * element;
}

bool by_fma(const KernelSpec& spec, const Target& target) {
  return target.backend == "cuda" && std::get<GemmSignature>(spec.signature).a == DType::fp32;
}

void count_fma(const Algorithm& a, Work& w) {
  const double warps = a.wave.m * a.wave.n;
  const double lane = a.warp_tile.m * a.warp_tile.n;
  w.fma_cycles = a.tile.k * (lane * warps / 4 * kGpuModel.fma + kGpuModel.fma_among);
  w.alone_cycles = a.tile.k * (lane * blocks(warps, 4) * kGpuModel.fma + kGpuModel.fma_alone);
}

Work work_of(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const auto rows = static_cast<double>(a.swap_ab ? p.n : p.m);
  const auto columns = static_cast<double>(a.swap_ab ? p.m : p.n);
  const double element = (size_of(p.a) + size_of(p.b)) / 2.0;
  const int cluster = a.cluster_m * a.cluster_n;
  Work w;
  w.tiles = blocks(rows, a.tile.m * a.cluster_m) * blocks(columns, a.tile.n * a.cluster_n) *
            cluster * static_cast<double>(p.batch);
  w.units = target.units * (a.splits * cluster > 2 ? kLargeClusters : 1);
  w.parts = static_cast<double>(a.splits) * a.slices;
  w.steps = blocks(blocks(static_cast<double>(p.k), a.tile.k), w.parts);
  w.resident = resident_blocks(spec, target);
  w.tile_macs = static_cast<double>(a.tile.m) * a.tile.n * a.tile.k;
  w.tile_bytes =
      (static_cast<double>(a.tile.m) / a.cluster_n + static_cast<double>(a.tile.n) / a.cluster_m) *
      a.tile.k * element;
  w.operand_bytes = operand_bytes(a, a.tile, element);
  w.load_cycles = load_cycles(a, p, w.tile_bytes, threads_of(a, target));
  if (!is_tmaws(a)) {
    w.copy_cycles = copy_bytes(p) < 16 ? w.tile_bytes * kGpuModel.narrow_copy
                                       : w.tile_bytes / 16 / target.warp_size * kGpuModel.issue;
  }
  if (by_fma(spec, target)) count_fma(a, w);
  w.fetch = kGpuModel.fetch * (is_tmaws(a) && !a.repack ? fetch_share(p) : 1);
  w.aligned = stores_aligned(p);
  w.by_copy = w.aligned && !p.pointer_arrays;
  w.out_bytes = static_cast<double>(a.tile.m) * a.tile.n * size_of(p.out) / a.splits;
  return w;
}

// Cycles of one step of K where nothing is waited for.
double step_cycles(const KernelSpec& spec, const Work& w, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const double multiply = w.tile_macs / (macs_per_cycle(spec, target) * kGpuModel.tensor_share);
  const double read = w.operand_bytes / kGpuModel.shared;
  const double fetch = w.tile_bytes / w.fetch;
  if (by_fma(spec, target)) return std::max(w.fma_cycles, fetch);
  return std::max({multiply, read, fetch, w.copy_cycles}) *
         (is_tmaws(a) ? 1 : 1 + kGpuModel.copies);
}

// Cycles that a tile takes after its last step.
double finish_cycles(const KernelSpec& spec, const Work& w, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const bool by_copy = is_tmaws(a) && w.by_copy && tmaws_copies_out(s, a);
  const double consumers = is_pingpong(a) ? 1 : a.wave.m;
  const double storing = is_tmaws(a) ? consumers : threads_of(a, target) / 128;
  const double byte = kGpuModel.finish_byte * store_factor(a, w.aligned, by_copy);
  const double outputs = static_cast<double>(a.tile.m) * a.tile.n / a.splits;
  double cycles = kGpuModel.finish + w.out_bytes / storing * byte;
  const double by_threads = is_tmaws(a) && !by_copy && num_ops(s.epilogue) > 0;
  const double each = output_cycles(s.epilogue) + by_threads * kGpuModel.by_threads;
  cycles += outputs * each * (is_pingpong(a) ? 2 : 1);
  const double sums = outputs * 4;  // bytes, of an owner
  if (a.splits > 1) {
    cycles += kGpuModel.split + kGpuModel.split_each * a.splits;
    cycles += sums * (a.splits - 1) * kGpuModel.split_byte;
  }
  if (a.slices > 1) {
    const bool fma = by_fma(spec, target);
    const double all = sums * (a.slices + 1) * (fma ? 128 / threads_of(a, target) : 1);
    cycles += fma ? kGpuModel.fma_slice + all * kGpuModel.fma_slice_byte
                  : kGpuModel.slice + all * kGpuModel.slice_byte;
  }
  return cycles;
}

// Cycles of the busiest unit. A block's steps wait for their data if too few are on the way; other
// blocks of the unit multiply meanwhile, and of pingpong consumers the other one while one stores.
double busy_cycles(const KernelSpec& spec, const Work& w, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const double step = step_cycles(spec, w, target);
  const double finish = finish_cycles(spec, w, target);
  const double all = blocks(w.tiles * w.parts, w.units);
  const double together = std::min(w.resident, all);
  const double arrival =
      kGpuModel.latency + (a.cluster_m * a.cluster_n > 1 ? kGpuModel.cluster_wait : 0);
  const double waited =
      std::max({step + kGpuModel.step, arrival / std::max(a.stages - 1, 1), w.alone_cycles}) +
      w.load_cycles;
  const bool pingpong = is_pingpong(a);
  const double started = kGpuModel.shallow * a.cluster_m * a.cluster_n / std::max(a.stages, 1) +
                         (is_tmaws(a) ? 0 : kGpuModel.copy_start) +
                         (a.cluster_m * a.cluster_n > 1 ? kGpuModel.cluster_start : 0);
  const double turns = pingpong ? blocks(all, 2) : blocks(all, together);
  const double steps = w.steps * waited;
  const double restarts = a.splits > 1 ? (turns - 1) * kGpuModel.restart : 0;
  const double turn = pingpong ? std::max(steps * all / turns, steps + finish) : steps + finish;
  const double chain = turns * turn + restarts;
  const double pipe = all * w.steps * step;
  return started + std::max(chain, pipe) + (pingpong || chain < pipe ? finish : 0);
}

// Long work heats the machine until its power limit slows it down, but for the ordinary cores.
double compute_seconds_of(const KernelSpec& spec, const Work& w, const Target& target) {
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  const double busy = busy_cycles(spec, w, target) / hertz;
  const double macs = w.tiles * w.parts * w.steps * w.tile_macs / target.units;
  const double hot = macs / (macs_per_cycle(spec, target) * kGpuModel.hot_share * hertz);
  if (target.backend != "cuda" || by_fma(spec, target) || hot <= busy) return busy;
  return busy + (hot - busy) * busy / (busy + kGpuModel.hot_us * 1e-6);
}

// Every operand that has to be copied is read and written once more.
double repack_seconds(const KernelSpec& spec, const GemmProblem& p, double rate) {
  const double copied = spec.algorithm.repack ? copied_bytes(p) : 0;
  return copied > 0 ? kGpuModel.prepare_us * 1e-6 + 2 * copied / rate : 0;
}

}  // namespace

Estimate estimate_gpu(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const double launch = target.launch_us * 1e-6;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return total_of(0, 0, launch, 1);
  const Work w = work_of(spec, p, target);
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  const double compute = compute_seconds_of(spec, w, target);
  const double rate = std::max(target.memory_gb_per_s, 1.0) * 1e9 * kGpuModel.memory_share;
  const double memory = bytes_of(p) / rate;
  const double overhead = launch + kGpuModel.fill / hertz +
                          kGpuModel.overlap * std::min(compute, memory) +
                          repack_seconds(spec, p, rate);
  const double waves = blocks(w.tiles * w.parts, target.units);
  const double issued = waves * target.units * w.tile_macs * w.steps;
  return total_of(compute, memory, overhead, issued > 0 ? flops_of(p) / 2 / issued : 1);
}

}  // namespace tessera::gemm
