// Gates, rows by index and outputs of 8 bits on AMD GPUs: the launch of the steps that
// src/tessera/device/hip/gemm/outputs_gemm.h describes.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/gemm/outputs_arguments.h"
#include "tessera/device/hip/gemm/scaled_arguments.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/outputs.h"

namespace tessera::gemm {
namespace {

constexpr std::int64_t kMostBlocks =
    std::numeric_limits<std::uint32_t>::max() / device::kHipOutputThreads;

// A place in the workspace, which the kernel adds to its address.
void* in_workspace(std::int64_t place) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(place));
}

// The product whose output is the sums.
struct SumsProblem {
  GemmProblem problem;
  GemmOperands operands;
};
SumsProblem sums_of(const GemmProblem& p, const GemmOperands& o, const OutputPlaces& places) {
  SumsProblem sums{p, o};
  GemmProblem& q = sums.problem;
  q.gate = GemmGate::none, q.quant = NormQuant::none, q.indexing = GemmIndexing::none;
  q.gate_interleaved = q.scales_by_column = false, q.index_room = 0;
  q.epilogue = {}, q.alpha = 1, q.beta = 0;
  q.out = q.d = p.acc;
  q.ld_out = p.n, q.batch_stride_out = p.m * p.n;
  sums.operands.out = in_workspace(places.sums);
  if (p.indexing != GemmIndexing::gathered) return sums;
  q.ld_a = places.ld_copy;
  sums.operands.a = in_workspace(places.copy);
  return sums;
}

Launch product_launch(const KernelSpec& spec, const SumsProblem& sums, const Target& target) {
  const auto& [q, o] = sums;
  if (has_scales(q)) return bind_scaled_on_hip(spec, q, target, o);
  if (has_groups(q)) return bind_groups_on_hip(spec, q, target, o);
  return bind_hip(spec, q, target, gemm_arguments(q, o));
}

void list_all(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  list_pointers(p, gemm_arguments(p, o), launch);
  list_outputs(p, o, launch);
  if (has_groups(p)) launch.pointers.push(numbers_of(p, o));
  if (p.check_groups) launch.pointers.push(o.bad_group);
  for (const void* scales : {o.scale_a, o.scale_b}) {
    if (scales != nullptr) launch.pointers.push(scales);
  }
}

Step rows_step(std::uint8_t entry, int blocks) {
  Step step;
  step.entry = entry;
  step.grid[0] = static_cast<unsigned>(blocks);
  step.block[0] = unsigned{device::kHipOutputThreads};
  return step;
}
int blocks_for(std::int64_t rows) {
  return static_cast<int>(std::clamp<std::int64_t>(rows, 1, kMostBlocks));
}

// Product: what the kernel without gates and the like takes.
template <class Product>
Launch bind_steps(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                  const GemmOperands& o) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const OutputPlaces places = output_places(p, device::kHipCounterBytes);
  const Launch product = product_launch(spec, sums_of(p, o, places), target);
  device::HipOutputs<Product> x{};
  std::memcpy(&x.product, product.arguments.data(), sizeof(x.product));
  x.outputs = output_arguments(p, o);
  x.ld_copy = places.ld_copy;
  x.line_blocks = blocks_for(a_is_row_major(p.layout) ? p.m : p.k);
  x.row_blocks = blocks_for(p.m * matrices(p, group_matrices(p.grouping).out));
  Launch launch;
  launch.arguments.set(x);
  launch.blocks_offset = product.blocks_offset;
  launch.workspace.bytes = static_cast<std::size_t>(places.end);
  launch.workspace.address_offset = offsetof(device::HipOutputs<Product>, workspace);
  list_all(p, o, launch);
  const bool gathers = p.indexing == GemmIndexing::gathered && p.k > 0;
  for (const Step& step : product.steps) {
    const bool is_product = step.entry == 0;
    if (is_product && gathers) {
      launch.steps.push(rows_step(hip_entry(s, "_gather"), x.line_blocks));
    }
    launch.steps.push(step);
    if (is_product) launch.steps.push(rows_step(hip_entry(s, "_finish"), x.row_blocks));
  }
  return launch;
}

}  // namespace

Launch bind_outputs_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                           const GemmOperands& o) {
  using device::HipGemmArguments, device::HipGroupedArguments, device::HipScaled;
  if (has_scales(p)) {
    return has_groups(p) ? bind_steps<HipScaled<HipGroupedArguments>>(spec, p, target, o)
                         : bind_steps<HipScaled<HipGemmArguments>>(spec, p, target, o);
  }
  return has_groups(p) ? bind_steps<HipGroupedArguments>(spec, p, target, o)
                       : bind_steps<HipGemmArguments>(spec, p, target, o);
}

}  // namespace tessera::gemm
