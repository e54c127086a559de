#include "tessera/families/tile/gpu_estimate.h"

#include <algorithm>
#include <cmath>

#include "tessera/families/tile/epilogue.h"

namespace tessera::tile {

double gpu_macs_per_cycle(DType a, DType b, const Target& target, bool wide) {
  double best = 0;
  for (const Instruction& i : target.instructions) {
    const bool fits = i.a == a && (i.b == b || (size_of(i.b) == 1 && size_of(b) == 1));
    if (!fits || (!wide && (i.name == "wgmma" || i.name == "mfma"))) continue;
    best = std::max(best, i.per_cycle * i.shape.m * i.shape.n * i.shape.k);
  }
  return best > 0 ? best : 1;
}

// Steps such as relu cost nothing, because comparisons hide behind conversions and stores.
double output_cycles(const Epilogue& epilogue) {
  double cycles = 0;
  for (int i = 0; i < num_ops(epilogue); ++i) {
    const EpilogueOp op = epilogue.ops[static_cast<std::size_t>(i)];
    if (is_function(op)) cycles += op == EpilogueOp::gelu ? kGpuModel.gelu : kGpuModel.function;
  }
  return cycles + epilogue.num_d * kGpuModel.read;
}

GpuCase gpu_case(const Target& target, DType a, DType out, const Epilogue& epilogue) {
  const bool cuda = target.backend == "cuda";
  GpuCase c;
  c.units = std::max(1, target.units);
  c.hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  c.warp_size = target.warp_size;
  c.shared_bytes = static_cast<double>(target.shared_memory_bytes) + device::kSharedReserve;
  c.registers = target.registers_per_unit;
  c.most_resident = cuda ? kMaxBlocks : 1;
  c.bandwidth = std::max(target.memory_gb_per_s, 1.0) * 1e9 * kGpuModel.memory_share;
  c.launch_seconds = target.launch_us * 1e-6;
  c.by_fma = flag(cuda && a == DType::fp32);
  c.is_hot = flag(cuda && a != DType::fp32);
  c.size_out = size_of(out);
  c.output_cycles = output_cycles(epilogue);
  c.finished_cycles = flag(num_ops(epilogue) > 0) * kGpuModel.by_threads;
  return c;
}

GpuKernel gpu_kernel(const Algorithm& a) {
  GpuKernel x{};
  x.is_pingpong = flag(a.scheduler == Scheduler::pingpong);
  x.swaps = flag(a.swap_ab);
  x.tile_m = a.tile.m, x.tile_n = a.tile.n, x.tile_k = a.tile.k;
  x.tile_mn = x.tile_m * x.tile_n;
  x.tile_volume = x.tile_mn * x.tile_k;
  x.wave_m = a.wave.m, x.wave_n = a.wave.n;
  x.num_waves = x.wave_m * x.wave_n * a.wave.k;
  x.lane_mn = static_cast<double>(a.warp_tile.m) * a.warp_tile.n;
  x.splits = a.splits, x.slices = a.slices, x.stages = a.stages;
  x.cluster_m = a.cluster_m, x.cluster_n = a.cluster_n;
  x.cluster_blocks = x.cluster_m * x.cluster_n * x.splits;
  x.fetch_share = 1;
  return x;
}

// The order matters, because each number depends on earlier ones.
void count_steps(const GpuCase& c, GpuKernel& x) {
  x.tiles_k = std::ceil(c.k / x.tile_k);
  x.k_steps = std::ceil(x.tiles_k / (x.splits * x.slices));
  x.block_threads = block_threads(c, x);
  x.accumulators = accumulators(c, x);
  x.resident = resident_blocks(c, x);
  x.blocks = all_blocks(c, x);
  x.step_bytes = step_bytes(x);
  x.step_operand_bytes = step_operand_bytes(x);
  x.fma_cycles = fma_cycles(c, x);
  x.alone_cycles = alone_cycles(c, x);
  x.step_cycles = step_cycles(c, x);
}

}  // namespace tessera::tile
