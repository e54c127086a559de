// Kernels for GPUs: a warp or wave takes a token, a block puts a part of the slots in their order.
// Few tokens take one block for both.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/route.h"
#include "tessera/families/route/route.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::route {
namespace {

constexpr int kLeastHeld = 64;             // experts
constexpr int kMostShared = 48 << 10;      // bytes that every GPU gives a block without being asked
constexpr std::int64_t kTokensOfWarp = 4;  // that one block still chooses for
constexpr std::int64_t kMostChoosing = 4096;  // blocks; warps take further tokens
constexpr std::int64_t kMostOrdering = 64;    // blocks, each of which reads all ids
constexpr std::int64_t kLeastSlots = 2048;    // of a block that orders

// Counted in instructions, not measured.
constexpr double kTokenSeconds = 1.5e-6;
constexpr double kChoiceSeconds = 6e-8;  // one of the top_k, and 32 experts of a lane as much
constexpr double kOrderSeconds = 3e-6;
constexpr double kSlotSeconds = 4e-10;  // of counting, by a block
constexpr double kStepSeconds = 1.5e-6;

int threads_of(const Algorithm& a, const Target& target) { return a.wave.m * target.warp_size; }
// What route_lanes.h has in shared memory.
int shared_bytes(const Algorithm& a) { return (a.wave.m + 2) * (a.tile.n + 1) * 4; }
bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

constexpr tile::Rule<Case> kGpuRules[] = {
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.m <= c.target.max_threads_per_block && w.n == 1 && w.k == 1 &&
              threads_of(c.algorithm, c.target) <= c.target.max_threads_per_block;
     },
     [](const Case& c) {
       return fmt::format("wave must be m x 1 x 1 warps of {} threads, at most {} in all, got {}",
                          c.target.warp_size, c.target.max_threads_per_block,
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m == c.algorithm.wave.m && t.k == 1 && t.n >= kLeastHeld &&
              t.n <= device::kMostExperts && is_power_of_two(t.n);
     },
     [](const Case& c) {
       return fmt::format("tile must be {} x n x 1, n a power of two from {} to {}, got {}",
                          c.algorithm.wave.m, kLeastHeld, device::kMostExperts,
                          to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return shared_bytes(c.algorithm) <= kMostShared; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory, a block has {}",
                          shared_bytes(c.algorithm), kMostShared);
     }},
};

// A block has a token for each of its warps.
std::vector<Algorithm> gpu_algorithms(const Target& target) {
  std::vector<Algorithm> all = rows_algorithms(target);
  for (Algorithm& a : all) a.tile.m = a.wave.m;
  return all;
}

Verdict gpu_serves(const KernelSpec& spec, const RouteProblem& p, const Target&) {
  if (p.experts <= spec.algorithm.tile.n) return {};
  return {fmt::format("experts must be at most {}, which a warp holds, got {}",
                      spec.algorithm.tile.n, p.experts)};
}

std::vector<tile::GpuEntry> entries_of(const KernelSpec& spec) {
  const auto& s = std::get<RouteSignature>(spec.signature);
  if (!chooses(s)) return {{"", "order"}};
  if (!s.order) return {{"", "choose"}};
  return {{"", "choose"}, {"_order", "order"}, {"_few", "run_all"}};
}

Source emit_cuda(const KernelSpec& spec, const Target& target) {
  return tile::cuda_source(spec, kAbi, rows_template(spec), threads_of(spec.algorithm, target),
                           entries_of(spec));
}
Source emit_hip(const KernelSpec& spec, const Target& target) {
  return tile::hip_source(spec, kAbi, rows_template(spec), threads_of(spec.algorithm, target),
                          entries_of(spec));
}

bool is_few(const Algorithm& a, const RouteProblem& p) {
  return chooses(p) && p.order && p.tokens > 0 && p.tokens <= kTokensOfWarp * a.wave.m;
}

// A multiple of what its warps look at together.
std::int64_t slots_of_block(const Algorithm& a, const RouteProblem& p, const Target& target) {
  const std::int64_t unit = threads_of(a, target);
  const std::int64_t all = p.tokens * p.top_k;
  if (is_few(a, p)) return tile::ceil_div(all, unit) * unit;
  const std::int64_t each = std::max(kLeastSlots, tile::ceil_div(all, kMostOrdering));
  return tile::ceil_div(each, unit) * unit;
}

Launch bind_gpu(const KernelSpec& spec, const RouteProblem& p, const Target& target,
                const RouteOperands& o) {
  const Algorithm& a = spec.algorithm;
  Launch launch;
  device::RouteArguments arguments = rows_arguments(p, o);
  arguments.blocks =
      std::clamp<std::int64_t>(tile::ceil_div(p.tokens, std::int64_t{a.wave.m}), 1, kMostChoosing);
  arguments.block_slots = slots_of_block(a, p, target);
  launch.arguments.set(arguments);
  Step step;
  step.block = {static_cast<unsigned>(threads_of(a, target)), 1, 1};
  if (is_few(a, p)) {
    step.entry = 2;
    launch.steps.push(step);
  } else {
    step.grid[0] = static_cast<unsigned>(arguments.blocks);
    if (chooses(p) && p.tokens > 0) launch.steps.push(step);
    step.entry = chooses(p) ? 1 : 0;
    step.grid[0] = static_cast<unsigned>(
        std::max<std::int64_t>(1, tile::ceil_div(p.tokens * p.top_k, arguments.block_slots)));
    if (p.order) launch.steps.push(step);
  }
  for (const Tensor& tensor : tensors(p)) launch.pointers.push(pointer(o, tensor.operand));
  return launch;
}

Estimate estimate_gpu(const KernelSpec& spec, const RouteProblem& p, const Target& target, int) {
  const Algorithm& a = spec.algorithm;
  const double tokens = double(p.tokens), slots = tokens * double(p.top_k);
  const double held = double(a.tile.n) / 32 / target.warp_size;
  const bool few = is_few(a, p);
  const double resident =
      (few ? 1.0 : target.units * tile::kUnitThreads / threads_of(a, target)) * a.wave.m;
  const double rounds = std::ceil(tokens / resident);
  const double choice = kTokenSeconds + double(p.top_k) * kChoiceSeconds * (1 + held);
  const double choosing = chooses(p) ? rounds * choice : 0;
  const double counting = slots * kSlotSeconds * (16.0 / a.wave.m);
  const double ordering = p.order ? kOrderSeconds + counting : 0;
  const int steps = few || !p.order || !chooses(p) ? 1 : 2;
  return tile::total_of(choosing + ordering, bytes(p) / (target.memory_gb_per_s * 1e9),
                        target.launch_us * 1e-6 + (steps - 1) * kStepSeconds);
}

constexpr Algorithm kGeneral = {.pipeline = Pipeline::rows,
                                .tile = {8, device::kMostExperts, 1},
                                .wave = {8, 1, 1},
                                .warp_tile = {}};

}  // namespace

const Way kRowsCuda = {.backend = "cuda",
                       .pipeline = Pipeline::rows,
                       .rules = kGpuRules,
                       .serves = gpu_serves,
                       .algorithms = gpu_algorithms,
                       .emit = emit_cuda,
                       .bind = bind_gpu,
                       .estimate = estimate_gpu,
                       .own = {kGeneral}};

const Way kRowsHip = {.backend = "hip",
                      .pipeline = Pipeline::rows,
                      .rules = kGpuRules,
                      .serves = gpu_serves,
                      .algorithms = gpu_algorithms,
                      .emit = emit_hip,
                      .bind = bind_gpu,
                      .estimate = estimate_gpu,
                      .own = {kGeneral}};

}  // namespace tessera::route
