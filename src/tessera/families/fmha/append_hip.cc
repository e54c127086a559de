// Appending to a cache on AMD GPUs, alone or before attention: rules, text, launch and predicted
// times. device/hip/fmha/append_fmha.h says how the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/device/hip/fmha/append_arguments.h"
#include "tessera/families/fmha/append.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/hip.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::fmha {
namespace {

int append_threads(int lanes) { return kHipAppendWaves * lanes; }
constexpr int kHipAppendRegisters = 64;     // a guess, of a thread
constexpr double kHipAppendSeconds = 2e-6;  // a guess: first bytes, last bytes
constexpr Shape3 kHipAppendWave = {kHipAppendWaves, 1, 1};

constexpr Rule kAppendHipRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.tile == Shape3{} && a.warp_tile == Shape3{} && a.wave == kHipAppendWave;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile, wave and warp tile must be 1x1x1, {} and 1x1x1, got {}, {} and {}",
                          to_string(kHipAppendWave), to_string(a.tile), to_string(a.wave),
                          to_string(a.warp_tile));
     }},
};

std::vector<Algorithm> append_hip_algorithms(const Target&) {
  return {{.pipeline = Pipeline::direct, .tile = {}, .wave = kHipAppendWave, .warp_tile = {}}};
}

std::array<unsigned, 3> append_hip_grid(const FmhaProblem& p, const device::FmhaAppendArguments& g,
                                        int threads) {
  const device::FmhaAppendBlock block =
      device::append_block(g, static_cast<device::FmhaRotary>(p.rotary), p.rotate_q,
                           16 / size_of(p.in), device::bits_for(threads, 10));
  const std::int64_t rows = std::int64_t{1} << block.row_bits;
  return hip_grid_of({tile::ceil_div(p.seqlen_q, block.tokens),
                      tile::ceil_div(device::rows_of_token(g, p.rotate_q), rows), p.batch},
                     threads);
}

Step append_hip_step(const device::HipAppendArguments& g, int lanes) {
  Step step;
  step.block = {static_cast<unsigned>(append_threads(lanes)), 1, 1};
  std::copy_n(g.grid.side, 3, step.grid.begin());
  return step;
}

Source append_on_hip(const KernelSpec& spec, const Target& target) {
  constexpr std::array<tile::GpuEntry, 2> kEntries = {{{"", "run"}, {"_check", "check"}}};
  return tile::hip_source(spec, kAbi,
                          {"fmha/append_fmha.h", "AppendFmhaKernel", "HipAppendArguments",
                           append_config(spec, kHipAppendWaves, target.fp8_encoding)},
                          append_threads(target.warp_size),
                          std::span(kEntries).first(is_paged(spec) ? 2 : 1));
}

Launch bind_append_hip(const KernelSpec&, const FmhaProblem& p, const Target& target,
                       const FmhaOperands& o) {
  const int lanes = target.warp_size;
  const device::HipAppendArguments g = append_hip_arguments(p, o, lanes);
  Launch launch;
  launch.arguments.set(g);
  add_check_step(p, append_threads(lanes), launch);
  if (has_tokens(p)) launch.steps.push(append_hip_step(g, lanes));
  return launch;
}

Estimate append_time_on_hip(const KernelSpec&, const FmhaProblem& p, const Target& target, int) {
  if (!has_tokens(p)) return tile::total_of(0, 0, target.launch_us * 1e-6);
  const int threads = append_threads(target.warp_size);
  const auto grid = append_hip_grid(p, append_arguments(p, {}), threads);
  const double blocks = double(grid[0]) * grid[1] * grid[2];
  const double bandwidth = tile::gpu_bandwidth(target, blocks, threads, kHipAppendRegisters,
                                               append_bytes(p) / 2 / std::max(1.0, blocks));
  return tile::total_of(0, append_bytes(p) / bandwidth,
                        target.launch_us * 1e-6 + kHipAppendSeconds);
}

}  // namespace

device::HipAppendArguments append_hip_arguments(const FmhaProblem& p, const FmhaOperands& o,
                                                int lanes) {
  device::HipAppendArguments g{};
  g.append = append_arguments(p, o);
  std::ranges::copy(append_hip_grid(p, g.append, append_threads(lanes)), g.grid.side);
  return g;
}

Source attention_on_hip(const KernelSpec& spec, const Target& target, tile::Template attention,
                        int threads, int at_once, std::span<const tile::GpuEntry> more) {
  std::vector<tile::GpuEntry> entries = {{"", "run", at_once}};
  if (is_paged(spec)) entries.push_back({"_check", "check"});
  const std::string name = fmt::format("ExtendFmha<{}>::Of", attention.name);
  const std::string arguments = fmt::format("HipExtendArguments<{}>", attention.arguments);
  if (extends(spec)) {
    entries.push_back({"_append", "append"});
    attention.config += fmt::format("  struct Append {{\n{}  }};\n",
                                    append_config(spec, kHipAppendWaves, target.fp8_encoding));
    attention.before = "#include \"tessera/device/hip/fmha/extend_fmha.h\"\n\n" + attention.before;
    attention.name = name, attention.arguments = arguments;
  }
  entries.insert(entries.end(), more.begin(), more.end());
  return tile::hip_source(spec, kAbi, attention, threads, entries);
}

std::uint8_t first_more_entry(const KernelSpec& spec) {
  return static_cast<std::uint8_t>(1 + (is_paged(spec) ? 1 : 0) + (extends(spec) ? 1 : 0));
}

void add_first_steps_on_hip(const KernelSpec& spec, const FmhaProblem& p, int threads,
                            Launch& launch, int lanes) {
  add_check_step(p, threads, launch);
  if (!extends(spec) || !has_tokens(p)) return;
  Step step = append_hip_step(append_hip_arguments(p, {}, lanes), lanes);
  step.entry = is_paged(spec) ? 2 : 1;
  launch.steps.push(step);
}

const Way kAppendHip = {.backend = "hip",
                        .pipeline = Pipeline::direct,
                        .rules = kAppendHipRules,
                        .algorithms = append_hip_algorithms,
                        .emit = append_on_hip,
                        .bind = bind_append_hip,
                        .estimate = append_time_on_hip,
                        .is_unlisted = true,
                        .own = {.kind = FmhaKind::append, .is_general = true, .stage = "append"}};

}  // namespace tessera::fmha
