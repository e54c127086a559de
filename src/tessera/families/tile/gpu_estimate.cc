#include "tessera/families/tile/gpu_estimate.h"

#include <algorithm>

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

}  // namespace tessera::tile
