// The gradients of attention on CPUs: text, launch, predicted times.
// device/cpu/fmha/flash_backward.h says how the kernels work, which have the rules of attention's.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cpu/fmha/backward_work.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

// The cycles that a vector of scores takes for its exponentials, gradients and transposition.
constexpr double kCyclesOfGradients = 16;
constexpr double kCyclesOfPackedTokens = 16;  // of a vector of queries or gradients of outputs
constexpr double kCyclesOfBytes = 24;         // of a vector of scores, for dropout

Source emit_backward_cpu(const KernelSpec& spec, const Target& target) {
  const std::array<std::string, 1> ends = {""};
  Source source = tile::cpu_source(spec, target, kAbi,
                                   {"fmha/flash_backward.h", "FmhaBackwardKernel",
                                    "FmhaBackwardArguments", backward_config_text(spec)},
                                   ends);
  tile::add_objects(product_objects(spec, target), source);
  return source;
}

std::int64_t backward_parts_of(const Algorithm& a, const FmhaProblem& p) {
  if (p.num_splits == 1) return 1;
  const double floats = double(p.seqlen_q) * double(p.heads) / double(p.heads_kv) * double(p.hdim);
  return device::backward_parts(p.batch * p.heads_kv, tile::ceil_div(p.seqlen_k, a.tile.m),
                                static_cast<std::int64_t>(std::min(floats, 1e18)));
}

Launch bind_backward_cpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                         const FmhaOperands& o) {
  Launch launch;
  launch.arguments.set(backward_arguments(p, o));
  launch.steps.push({});
  launch.parts = backward_parts_of(spec.algorithm, p);
  return launch;
}

Estimate estimate_backward_cpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                               int limit) {
  const Algorithm& a = spec.algorithm;
  const double pairs = double(p.batch) * double(p.heads_kv), seen = scores(p);
  if (seen == 0) return tile::total_of(0, bytes(p) / 1e9, target.launch_us * 1e-6);
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double items = pairs * double(backward_parts_of(a, p));
  const double used = std::clamp<double>(limit, 1, std::max(1.0, items));
  const double idle = std::ceil(items / used) * used / items;
  // Keys behind the last one of a block, and what a mask cuts from blocks, are multiplied, too.
  const double keys = std::max(1.0, double(p.seqlen_k));
  const double padding = std::ceil(keys / a.warp_tile.m) * a.warp_tile.m / keys;
  const double cut = p.mask == FmhaMask::none
                         ? 0
                         : double(p.batch) * double(p.heads) * double(p.seqlen_q) * a.tile.n / 2;
  const double elements = 3 * double(p.hdim) + 2 * double(p.hdim_v);
  const double passes = p.dbias ? 1 + (double(p.hdim) + double(p.hdim_v)) / elements : 1;
  const double products = (seen + cut) * elements * padding * passes;
  const double packed = seen / std::min<double>(a.tile.m, keys) * 2 * double(p.hdim + p.hdim_v);
  const double cycles = (seen * (kCyclesOfGradients + (p.p_drop == 0 ? 0 : kCyclesOfBytes)) +
                         packed * kCyclesOfPackedTokens) *
                        passes / lanes;
  const double compute =
      (products / rate_or_fp32(target, p.in) + cycles / (target.clock_ghz * 1e9)) * idle / used;
  return tile::total_of(compute, bytes(p) / tile::cpu_bandwidth(target, bytes(p), used),
                        cpu_launch_seconds(target, used));
}

}  // namespace

const Way kBackwardCpu = {.backend = "cpu",
                          .pipeline = Pipeline::flash,
                          .rules = kFlashCpuRules,
                          .serves = serves_heads,
                          .emit = emit_backward_cpu,
                          .bind = bind_backward_cpu,
                          .estimate = estimate_backward_cpu,
                          .own = {.kind = FmhaKind::backward,
                                  .is_general = true,
                                  .stage = "dq dk dv",
                                  .longer_stage = "dq dk dv dbias"}};

}  // namespace tessera::fmha
