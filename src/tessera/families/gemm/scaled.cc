#include "tessera/families/gemm/scaled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/device/cuda/gemm/scaled_output_arguments.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"

namespace tessera::gemm {
namespace {

std::int64_t rows_of_block(GemmScale scale) {
  return scale == GemmScale::none ? 0 : block_of(scale).rows;
}

// Beside the products: a warp multiplies and adds every sum once for each block of k. The products
// of 128 k by wgmma take about four times as long as that, and the other consumer's products hide a
// part of it. The products of mma are slower, so it weighs less there.
constexpr double kPromoteByMma = 1.1;
constexpr double kPromoteEach32 = 1.4;

// The same by wgmma, by tile, on an H200 (docs/performance/hopper_scaled_gemm.md). The products of
// tiles of few columns read more of shared memory for each of them.
struct Promotion {
  int tile_m, tile_n;
  double factor;
};
constexpr Promotion kPromoteByWgmma[] = {{256, 128, 1.10}, {256, 96, 1.45},  {256, 64, 1.6},
                                         {128, 176, 1.22}, {128, 160, 1.22}, {128, 112, 1.33},
                                         {128, 96, 1.31}};
constexpr double kPromoteOther = 1.15;
constexpr double kPromoteByColumn = 1.1;  // times that, where each column has a scale
// Times that for tiles of 256x128 in clusters: their products without scales count as slower.
constexpr double kPromoteShared = 0.68;
// Times that for one consumer of 128 rows, beside which nobody multiplies while it adds.
constexpr double kPromoteAlone = 1.35;

double promotion(const GemmSignature& s, const Algorithm& a) {
  double factor = kPromoteOther;
  for (const Promotion& row : kPromoteByWgmma) {
    if (row.tile_m == a.tile.m && row.tile_n == a.tile.n) factor = row.factor;
  }
  const bool is_large = a.tile.m == 256 && a.tile.n == 128;
  if (is_large && a.cluster_m * a.cluster_n > 1) factor *= kPromoteShared;
  if (a.wave.m == 1 && a.tile.m > 64) factor *= kPromoteAlone;
  const GemmScale of_columns = a.swap_ab ? s.scale_a : s.scale_b;
  return block_of(of_columns).rows == 1 ? factor * kPromoteByColumn : factor;
}

// Kernels by mma read scales from L2 where a block of k ends, and only other blocks of threads hide
// that. Not measured.
constexpr double kWaitCycles = 600;

double waits_for_scales(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                        int depth) {
  const Algorithm& a = spec.algorithm;
  const auto& s = std::get<GemmSignature>(spec.signature);
  const double shared = static_cast<double>(shared_memory(s, a).all) + device::kSharedReserve;
  const double blocks = std::max(1.0, std::floor(device::kSharedPerUnit / shared));
  const double all = static_cast<double>(tiles(p.m, a.tile.m) * tiles(p.n, a.tile.n)) *
                     static_cast<double>(p.batch);
  const double turns = std::ceil(all / (blocks * std::max(1, target.units)));
  const double hertz = std::max(target.clock_ghz, 0.1) * 1e9;
  return turns * static_cast<double>(tiles(p.k, depth)) * kWaitCycles / hertz;
}

// Where there is one matrix for all groups, so are its scales.
device::CudaScales scales_of(const GemmProblem& p, const GemmOperands& o) {
  const GroupMatrices has = has_groups(p) ? group_matrices(p.grouping) : GroupMatrices{1, 1, 1};
  device::CudaScales x{};
  if (p.scale_a != GemmScale::none) {
    const std::int64_t matrix = has.a ? p.batch_stride_scale_a : 0;
    x.a = {o.scale_a, p.stride_scale_a_m, p.stride_scale_a_k, matrix};
  }
  if (p.scale_b != GemmScale::none) {
    const std::int64_t matrix = has.b ? p.batch_stride_scale_b : 0;
    x.b = {o.scale_b, p.stride_scale_b_n, p.stride_scale_b_k, matrix};
  }
  x.quads = p.scale_quads ? 1 : 0;
  return x;
}

// Puts the scales behind the other arguments, which come first in X.
template <class X>
void set_scales(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  X x{};
  std::memcpy(&x.cuda, launch.arguments.data(), sizeof(x.cuda));
  x.scales = scales_of(p, o);
  launch.arguments.set(x);
  if (p.k > 0 && p.scale_a != GemmScale::none) launch.pointers.push(o.scale_a);
  if (p.k > 0 && p.scale_b != GemmScale::none) launch.pointers.push(o.scale_b);
}

}  // namespace

std::string scale_fields(const GemmSignature& s) {
  if (!has_scales(s)) return {};
  return fmt::format(
      "  static constexpr int kScaleRowsA = {}, kScaleKA = {}, kScaleRowsB = {}, kScaleKB = {};\n"
      "  static constexpr bool kScaleE8m0 = {};\n",
      rows_of_block(s.scale_a), block_of(s.scale_a).k, rows_of_block(s.scale_b),
      block_of(s.scale_b).k, yes_no(s.scale_type == GemmScaleType::e8m0));
}

std::string_view scaled_arguments_name(const GemmSignature& s) {
  if (has_outputs(s)) return "CudaScaledTmaOutputArguments";
  return has_groups(s) ? "CudaScaledGroupArguments" : "CudaScaledGemmArguments";
}

void add_scales(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  if (has_outputs(p)) return set_scales<device::CudaScaledOutputArguments>(p, o, launch);
  if (has_groups(p)) return set_scales<device::CudaScaledGroupArguments>(p, o, launch);
  set_scales<device::CudaScaledGemmArguments>(p, o, launch);
}

void add_scales_of_outputs_by_tma(const GemmProblem& p, const GemmOperands& o, Launch& launch) {
  using Arguments = device::CudaScaledTmaOutputArguments;
  set_scales<Arguments>(p, o, launch);
  if (p.quant == NormQuant::none) return;
  Arguments x;
  std::memcpy(static_cast<void*>(&x), launch.arguments.data(), sizeof(x));
  const device::OutputArguments from = output_arguments(p, o);
  x.out_scales = from.out_scales;
  x.row_of_scales = from.row_of_scales, x.block_of_scales = from.block_of_scales;
  x.matrix_of_scales = from.matrix_of_scales, x.step_of_scales = from.step_of_scales;
  launch.arguments.set(x);
  launch.pointers.push(o.out_scales);
}

Launch bind_scaled_on_cuda(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                           const GemmOperands& o) {
  Launch launch = has_groups(p) ? own_of(spec, target).bind_groups(spec, p, target, o)
                                : tile::bind<Types>(spec, p, target, o);
  add_scales(p, o, launch);
  return launch;
}

Estimate with_scales(const Estimate& without, const KernelSpec& spec, const GemmProblem& p,
                     const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool each_32 = s.scale_a == GemmScale::by_1x32 || s.scale_b == GemmScale::by_1x32;
  const bool by_wgmma = spec.algorithm.pipeline == Pipeline::tmaws;
  const double factor = by_wgmma  ? promotion(s, spec.algorithm)
                        : each_32 ? kPromoteEach32
                                  : kPromoteByMma;
  Estimate found = without;
  found.seconds += (factor - 1) * found.compute_seconds;
  found.compute_seconds *= factor;
  if (!by_wgmma) {
    const double waits = waits_for_scales(spec, p, target, each_32 ? 32 : 128);
    found.seconds += waits, found.compute_seconds += waits;
  }
  return found;
}

}  // namespace tessera::gemm
