// The kernel for AMD GPUs that takes every valid problem (src/tessera/device/hip/gemm/
// general_gemm.h), with groups, scales of blocks, gates, rows by index and outputs of 8 bits.
#include <fmt/format.h>

#include <cstring>

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/device/hip/gemm/scaled_arguments.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/scales.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

// 256 lanes.
Algorithm general_on(const Target& target) {
  return {.pipeline = Pipeline::direct,
          .tile = {64, 64, 16},
          .wave = {2, 2 * tile::kWaveLanes / target.warp_size, 1},
          .warp_tile = {4, 4, 1}};
}

// The kernel for every problem has one shape.
constexpr Rule kGeneralRules[] = {
    // RDNA multiplies fp32 on its ordinary lanes alone.
    {[](const Case& c) { return has_matrix(c) || find_instruction_named(c, "fma") != nullptr; },
     [](const Case& c) { return no_instruction(c, matrix_name(c)); }},
    kUnusedFieldsRule,
    kNoPreshuffleRule,
    {[](const Case& c) {
       const Algorithm g = general_on(c.target);
       const Algorithm& a = c.algorithm;
       return a.tile == g.tile && a.wave == g.wave && a.warp_tile == g.warp_tile;
     },
     [](const Case& c) {
       const Algorithm g = general_on(c.target);
       const Algorithm& a = c.algorithm;
       return fmt::format("direct has tile {}, wave {} and warp tile {} only, got {}, {} and {}",
                          to_string(g.tile), to_string(g.wave), to_string(g.warp_tile),
                          to_string(a.tile), to_string(a.wave), to_string(a.warp_tile));
     }},
};

bool is_general_on_hip(const Algorithm&, const GemmProblem&) { return true; }
std::vector<Algorithm> general_algorithms(const Target& target) { return {general_on(target)}; }

// The launch without scales, with their arguments.
template <class Base>
Launch with_scales_of(const GemmProblem& p, const GemmOperands& o, Launch launch) {
  const device::ScaledArguments scales = scaled_arguments(p, o);
  device::HipScaled<Base> arguments{};
  std::memcpy(&arguments.base, launch.arguments.data(), sizeof(arguments.base));
  arguments.a = scales.a, arguments.b = scales.b;
  launch.arguments.set(arguments);
  for (const void* pointer : {scales.a.data, scales.b.data}) {
    if (pointer != nullptr) launch.pointers.push(pointer);
  }
  return launch;
}

}  // namespace

Launch bind_scaled_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                          const GemmOperands& o) {
  if (has_groups(p)) {
    return with_scales_of<device::HipGroupedArguments>(p, o,
                                                       bind_groups_on_hip(spec, p, target, o));
  }
  return with_scales_of<device::HipGemmArguments>(p, o,
                                                  bind_hip(spec, p, target, gemm_arguments(p, o)));
}

const Way kDirectHip = {.backend = "hip",
                        .pipeline = Pipeline::direct,
                        .rules = kGeneralRules,
                        .serves = [](const KernelSpec&, const GemmProblem& p,
                                     const Target&) { return outputs_serve_on_gpus(p); },
                        .algorithms = general_algorithms,
                        .emit = emit_hip,
                        .bind = bind_hip,
                        .estimate = estimate_hip,
                        .own = {.is_general = is_general_on_hip,
                                .bind_groups = bind_groups_on_hip,
                                .runs_lists = true,
                                .bind_outputs = bind_outputs_on_hip,
                                .bind_scaled = bind_scaled_on_hip,
                                .scales_outputs = true,
                                .served = [](const KernelSpec&) { return Served{}; }}};

}  // namespace tessera::gemm
