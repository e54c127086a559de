#include "tessera/families/tile/features.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/device/cuda/tile_sizes.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::tile {
namespace {

using enum FeatureGroup;
using W = const WorkFacts&;
using M = const MachineFacts&;
using E = const EstimateFacts&;

constexpr auto kMachine = std::to_array<MachineFeature>({
    // ---- the problem on the machine ----
    {{"arithmetic_intensity", "flop/byte", "flops / max(bytes, 1)", problem},
     [](W w, M) { return w.flops / std::max(w.bytes, 1.0); }},
    {{"bytes_over_l2", "1", "bytes / bytes of L2 (CPU: of all threads)", problem},
     [](W w, M m) { return quotient(w.bytes, m.on_cpu ? m.l2 * m.threads : m.l2); }},
    {{"bytes_over_l3", "1", "bytes / bytes of L3", problem},
     [](W w, M m) { return quotient(w.bytes, m.l3); }},
    {{"log2_ideal_seconds", "log2", "log2(max(flops / peak, bytes / bandwidth, 1 ns))", problem},
     [](W w, M) { return w.ideal_log2; }},
    // ---- the machine ----
    {{"hw_units", "1", "cores or SMs", hardware}, [](W, M m) { return double(m.target->units); }},
    {{"hw_threads", "1", "CPU: threads allowed; GPU: 0", hardware},
     [](W, M m) { return m.on_cpu ? double(m.threads) : 0; }},
    {{"hw_clock", "GHz", "clock_ghz of the target's row", hardware},
     [](W, M m) { return m.target->clock_ghz; }},
    {{"hw_bandwidth", "GB/s", "memory_gb_per_s of the target's row", hardware},
     [](W, M m) { return m.target->memory_gb_per_s; }},
    {{"hw_launch", "us", "launch_us of the target's row", hardware},
     [](W, M m) { return m.target->launch_us; }},
    {{"hw_shared_kb", "KiB", "shared memory of a block; CPU: 0", hardware},
     [](W, M m) { return number(m.target->shared_memory_bytes) / 1024; }},
    {{"hw_l1_kb", "KiB", "first cache of the target's row", hardware},
     [](W, M m) { return m.l1 / 1024; }},
    {{"hw_l2_kb", "KiB", "second cache of the target's row", hardware},
     [](W, M m) { return m.l2 / 1024; }},
    {{"hw_l3_kb", "KiB", "third cache of the target's row", hardware},
     [](W, M m) { return m.l3 / 1024; }},
    {{"hw_warp_size", "1", "lanes that step together", hardware},
     [](W, M m) { return double(m.target->warp_size); }},
    {{"hw_vector_bytes", "bytes", "CPU: of a register; GPU: 0", hardware},
     [](W, M m) { return double(m.target->vector_bytes); }},
    {{"hw_registers", "1", "CPU: vector registers; GPU: registers of a unit", hardware},
     [](W, M m) {
       return double(m.on_cpu ? m.target->vector_registers : m.target->registers_per_unit);
     }},
    {{"hw_block_threads", "1", "most threads of a block", hardware},
     [](W, M m) { return double(m.target->max_threads_per_block); }},
    {{"hw_peak", "Gflop/s", "of the best instruction for the types, of all units", hardware},
     [](W, M m) { return m.peak * 1e-9; }},
    {{"hw_balance", "flop/byte", "hw_peak / hw_bandwidth", hardware},
     [](W, M m) { return m.peak / m.bandwidth; }},
});

constexpr auto kEstimate = std::to_array<EstimateFeature>({
    {{"log2_seconds", "log2", "log2(estimate().seconds)", interaction},
     [](W, E e) { return log2_of(e.seconds); }},
    {{"compute_share", "1", "estimate().compute_seconds / seconds", interaction},
     [](W, E e) { return e.estimate.compute_seconds / e.seconds; }},
    {{"memory_share", "1", "estimate().memory_seconds / seconds", interaction},
     [](W, E e) { return e.estimate.memory_seconds / e.seconds; }},
    {{"overhead_share", "1", "estimate().overhead_seconds / seconds", interaction},
     [](W, E e) { return e.estimate.overhead_seconds / e.seconds; }},
    {{"estimate_utilisation", "1", "estimate().utilisation", interaction},
     [](W, E e) { return e.estimate.utilisation; }},
    {{"log2_over_ideal", "log2", "log2_seconds - log2_ideal_seconds", interaction},
     [](W w, E e) { return log2_of(e.seconds) - w.ideal_log2; }},
});

double peak_for(const Instruction* best, const Target& target, int units) {
  if (best == nullptr) best = find_instruction(target, DType::fp32, DType::fp32, DType::fp32);
  return best == nullptr ? 1e9 : std::max(peak_of(*best, target, units), 1.0);
}

constexpr std::array kUsual = {
    Feature{"first_size", "1", "the size of the chart's rows", problem},
    Feature{"second_size", "1", "the size of the chart's columns", problem},
    Feature{"types", "code", "the class of the problem's second label of types", problem},
    Feature{"bytes", "bytes", "least traffic", problem},
    Feature{"tile_m", "1", "tile_m", kernel},
    Feature{"tile_n", "1", "tile_n", kernel},
    Feature{"wave_m", "1", "wave_m", kernel},
    Feature{"wave_n", "1", "wave_n", kernel},
    Feature{"slices", "1", "slices", kernel},
    Feature{"estimate", "seconds", "predicted time", interaction},
    Feature{"units", "1", "units in use", hardware},
};

struct UsualCase {
  const Problem& problem;
  const Target& target;
  int threads;
  const Family& family;
  const Facts& facts;
};

// A number for a word, the same on every machine.
double code_of(std::string_view word) {
  double code = 0;
  for (const char letter : word.substr(0, 6)) code = 32 * code + letter % 32;
  return code;
}

// In the order of kUsual.
constexpr std::array<double (*)(const UsualCase&, const KernelSpec&), kUsual.size()> kValues = {
    [](const UsualCase& c, const KernelSpec&) { return double(c.facts.axes[0].size); },
    [](const UsualCase& c, const KernelSpec&) { return double(c.facts.axes[1].size); },
    [](const UsualCase& c, const KernelSpec&) { return code_of(c.facts.types.back().value); },
    [](const UsualCase& c, const KernelSpec&) { return c.family.bytes(c.problem); },
    [](const UsualCase&, const KernelSpec& spec) { return double(spec.algorithm.tile.m); },
    [](const UsualCase&, const KernelSpec& spec) { return double(spec.algorithm.tile.n); },
    [](const UsualCase&, const KernelSpec& spec) { return double(spec.algorithm.wave.m); },
    [](const UsualCase&, const KernelSpec& spec) { return double(spec.algorithm.wave.n); },
    [](const UsualCase&, const KernelSpec& spec) { return double(spec.algorithm.slices); },
    [](const UsualCase& c, const KernelSpec& spec) {
      return c.family.estimate(spec, c.problem, c.target, c.threads).seconds;
    },
    [](const UsualCase& c, const KernelSpec&) { return double(units_used(c.threads, c.target)); },
};

}  // namespace

std::span<const MachineFeature> machine_features() { return kMachine; }
std::span<const EstimateFeature> estimate_features() { return kEstimate; }

double bytes_of_cache(const Target& target, std::size_t level) {
  return level < target.caches.size() ? number(target.caches[level].bytes) : 0;
}

MachineFacts machine_facts(const Target& target, int threads, const Instruction* best) {
  MachineFacts m;
  m.target = &target;
  m.on_cpu = !is_gpu(target);
  m.threads = units_used(threads, target);
  const int units = m.on_cpu ? m.threads : target.units;
  m.units = std::max(1, units);
  m.peak = peak_for(best, target, units);
  m.bandwidth = std::max(target.memory_gb_per_s, 1.0) * 1e9;
  m.l1 = bytes_of_cache(target, 0);
  m.l2 = bytes_of_cache(target, 1);
  m.l3 = bytes_of_cache(target, 2);
  return m;
}

WorkFacts work_facts(double flops, double bytes, const MachineFacts& m) {
  const double ideal = std::max({flops / m.peak, bytes / m.bandwidth, kLeastSeconds});
  return {flops, bytes, log2_of(ideal)};
}

EstimateFacts estimate_facts(const Estimate& estimate) {
  return {estimate, std::max(estimate.seconds, kLeastSeconds)};
}

double blocks_on_unit(const MachineFacts& m, double shared_bytes, double block_threads) {
  const double by_shared =
      number(m.target->shared_memory_bytes) / (shared_bytes + device::kSharedReserve);
  return at_least(floor_of(std::min(by_shared, kUnitThreads / block_threads)), 1);
}

void check_features(Op op, std::size_t features, std::size_t specs, std::size_t room,
                    std::size_t wanted) {
  if (room != features * specs) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: features of {} kernels take {} x {} = {} numbers, got room for {}",
                            to_string(op), specs, features, specs, features * specs, room));
  }
  if (wanted == 0 || wanted == features) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: there are {} features to want, got {}",
                                                       to_string(op), features, wanted));
}

std::size_t wanted_count(Op op, std::span<const FeatureUse> wanted, std::size_t feature,
                         std::size_t specs) {
  const FeatureUse how = wanted.empty() ? FeatureUse::all : wanted[feature];
  if (how > FeatureUse::all) {
    check_enum(fmt::format("{}: use of a feature", to_string(op)), how, FeatureUse::all);
  }
  return how == FeatureUse::none ? 0 : how == FeatureUse::first ? 1 : specs;
}

std::span<const Feature> usual_features() { return kUsual; }

void extract_usual(const Problem& problem, const Target& target, int threads,
                   std::span<const KernelSpec> specs, std::span<double> columns,
                   std::span<const FeatureUse> wanted) {
  const Family& family = family_of(problem);
  check_features(family.op, kUsual.size(), specs.size(), columns.size(), wanted.size());
  const Facts facts = family.facts(problem);
  if (specs.empty()) return;
  const UsualCase c = {problem, target, threads, family, facts};
  for (std::size_t f = 0; f < kValues.size(); ++f) {
    const std::size_t count = wanted_count(family.op, wanted, f, specs.size());
    for (std::size_t i = 0; i < count; ++i) {
      columns[f * specs.size() + i] = kValues[f](c, specs[i]);
    }
  }
}

}  // namespace tessera::tile
