// Kernels for CPUs: threads share tokens, and then slots.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/device/route.h"
#include "tessera/families/route/route.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::route {
namespace {

// The cycles of one thread, counted in instructions.
constexpr double kCyclesOfLogit = 2.5;
constexpr double kCyclesOfChoice = 30;
constexpr double kCyclesOfSlot = 4;
constexpr double kAloneSeconds = 1e-7;  // of a call without other threads

constexpr tile::Rule<Case> kCpuRules[] = {
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m <= 1 && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("wave must be 1x1x1 or 0x1x1, got {}", to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return c.algorithm.tile == Shape3{1, device::kMostExperts, 1};
     },
     [](const Case& c) {
       return fmt::format("tile must be 1x{}x1, got {}", device::kMostExperts,
                          to_string(c.algorithm.tile));
     }},
};

Source emit_cpu(const KernelSpec& spec, const Target& target) {
  const std::array<std::string, 2> ends = {"", "_order"};
  const auto& s = std::get<RouteSignature>(spec.signature);
  const std::size_t steps = chooses(s) && s.order ? 2 : 1;
  tile::Template from = rows_template(spec);
  from.config += fmt::format("  static constexpr bool kOrder = {};\n", s.order);
  return tile::cpu_source(spec, target, kAbi, from, std::span(ends).first(steps));
}

Launch bind_cpu(const KernelSpec& spec, const RouteProblem& p, const Target&,
                const RouteOperands& o) {
  Launch launch;
  launch.arguments.set(rows_arguments(p, o));
  launch.max_threads = spec.algorithm.wave.m;  // 1, or 0 for as many as there are
  Step step;
  if (chooses(p) && p.tokens > 0) launch.steps.push(step);
  step.entry = chooses(p) ? 1 : 0;
  if (p.order) launch.steps.push(step);
  return launch;
}

// Each thread reads all ids to know where its own slots go.
Estimate estimate_cpu(const KernelSpec& spec, const RouteProblem& p, const Target& target,
                      int limit) {
  const double tokens = double(p.tokens);
  const double slots = tokens * double(p.top_k);
  const double threads = spec.algorithm.wave.m == 1 ? 1 : limit;
  const double used = std::clamp(tokens, 1.0, threads);
  const double choosing =
      chooses(p) ? tokens * double(p.experts) * kCyclesOfLogit + slots * kCyclesOfChoice : 0;
  const double ordering = p.order ? slots * kCyclesOfSlot * (1 + 1 / used) : 0;
  const double compute = (choosing / used + ordering) / (target.clock_ghz * 1e9);
  const double entering = threads > 1 ? target.launch_us * 1e-6 : kAloneSeconds;
  return tile::total_of(compute, bytes(p) / tile::cpu_bandwidth(target, bytes(p), used),
                        entering * (chooses(p) && p.order ? 2 : 1));
}

}  // namespace

const Way kRowsCpu = {.backend = "cpu",
                      .pipeline = Pipeline::rows,
                      .rules = kCpuRules,
                      .algorithms = rows_algorithms,
                      .emit = emit_cpu,
                      .bind = bind_cpu,
                      .estimate = estimate_cpu,
                      .own = {{.pipeline = Pipeline::rows,
                               .tile = {1, device::kMostExperts, 1},
                               .wave = {0, 1, 1},
                               .warp_tile = {}}}};

}  // namespace tessera::route
