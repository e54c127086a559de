// Appending to a cache: counts; rules, text, launch and predicted times of its kernels.
#include "tessera/families/fmha/append.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

constexpr int kGpuWarps = 4;
constexpr int kWarpThreads = 32;
constexpr int kRegisters = 40;           // of a GPU's thread
constexpr double kCyclesOfVector = 6;    // CPU: of a vector, from load to store
constexpr double kCyclesOfRow = 30;      // CPU: of a head of a token
constexpr double kAppendSeconds = 2e-6;  // first bytes, last bytes

Shape3 wave_for(const Target& target) {
  return is_gpu(target) ? Shape3{kGpuWarps, 1, 1} : Shape3{0, 1, 1};
}

constexpr Rule kAppendRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.tile == Shape3{} && a.warp_tile == Shape3{} && a.wave == wave_for(c.target);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile, wave and warp tile must be 1x1x1, {} and 1x1x1, got {}, {} and {}",
                          to_string(wave_for(c.target)), to_string(a.tile), to_string(a.wave),
                          to_string(a.warp_tile));
     }},
};

// Heads of new tokens that are read and written.
struct AppendRows {
  double of_keys, of_queries;  // values have as many as keys
};
AppendRows rows_of(const FmhaProblem& p) {
  const double tokens = std::min(double(p.batch) * double(p.seqlen_q), double(p.tokens_q));
  return {tokens * double(p.heads_kv), p.rotate_q ? tokens * double(p.heads) : 0};
}

double moved_elements(const FmhaProblem& p) {
  const AppendRows rows = rows_of(p);
  return rows.of_keys * double(p.hdim + p.hdim_v) + rows.of_queries * double(p.hdim);
}

device::FmhaAppendBlock block_of(const FmhaProblem& p, const device::FmhaAppendArguments& g,
                                 int warps) {
  const auto rotary = static_cast<device::FmhaRotary>(p.rotary);
  return device::append_block(g, rotary, p.rotate_q, 16 / size_of(p.in),
                              device::bits_for(warps * kWarpThreads, 10));
}

std::array<unsigned, 3> append_grid(const FmhaProblem& p, const device::FmhaAppendArguments& g,
                                    int warps) {
  const device::FmhaAppendBlock block = block_of(p, g, warps);
  const std::int64_t rows = std::int64_t{1} << block.row_bits;
  return grid_of({tile::ceil_div(p.seqlen_q, block.tokens),
                  tile::ceil_div(device::rows_of_token(g, p.rotate_q), rows), p.batch});
}

std::vector<Algorithm> append_algorithms(const Target& target) {
  return {{.pipeline = Pipeline::direct, .tile = {}, .wave = wave_for(target), .warp_tile = {}}};
}

tile::Template append_template(const KernelSpec& spec) {
  return {"fmha/append_fmha.h", "FmhaAppendKernel", "FmhaAppendArguments",
          append_config(spec, spec.algorithm.wave.m)};
}

Source append_on_cpu(const KernelSpec& spec, const Target& target) {
  return tile::cpu_source(spec, target, kAbi, append_template(spec), cpu_entries(spec));
}

Source append_on_gpu(const KernelSpec& spec, const Target&) {
  constexpr std::array<tile::GpuEntry, 2> kEntries = {{{"", "run"}, {"_check", "check"}}};
  return tile::cuda_source(spec, kAbi, append_template(spec), kGpuWarps * kWarpThreads,
                           std::span(kEntries).first(is_paged(spec) ? 2 : 1));
}

Launch bind_append(const KernelSpec&, const FmhaProblem& p, const Target&, const FmhaOperands& o) {
  const device::FmhaAppendArguments g = append_arguments(p, o);
  Launch launch;
  launch.arguments.set(g);
  add_check_step(p, kGpuWarps * kWarpThreads, launch);
  if (has_tokens(p)) launch.steps.push(append_step(p, g, kGpuWarps));
  return launch;
}

Estimate append_time_on_gpu(const KernelSpec&, const FmhaProblem& p, const Target& target, int) {
  if (!has_tokens(p)) return tile::total_of(0, 0, target.launch_us * 1e-6);
  const auto grid = append_grid(p, append_arguments(p, {}), kGpuWarps);
  const double blocks = double(grid[0]) * grid[1] * grid[2];
  const double bandwidth = tile::gpu_bandwidth(target, blocks, kGpuWarps * kWarpThreads, kRegisters,
                                               append_bytes(p) / 2 / std::max(1.0, blocks));
  return tile::total_of(0, append_bytes(p) / bandwidth, target.launch_us * 1e-6 + kAppendSeconds);
}

Estimate append_time_on_cpu(const KernelSpec&, const FmhaProblem& p, const Target& target,
                            int limit) {
  if (!has_tokens(p)) return tile::total_of(0, 0, target.launch_us * 1e-6);
  const AppendRows rows = rows_of(p);
  const double all = 2 * rows.of_keys + rows.of_queries;
  const double used = std::clamp<double>(all / 32, 1, limit);
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double cycles = moved_elements(p) / lanes * kCyclesOfVector + all * kCyclesOfRow;
  const double memory = append_bytes(p) / tile::cpu_bandwidth(target, append_bytes(p), used);
  return tile::total_of(cycles / (target.clock_ghz * 1e9 * used), memory,
                        cpu_launch_seconds(target, used));
}

// The type of a cache, and what belongs to one of 8 bits.
std::string cache_text(const FmhaSignature& s, Fp8Encoding fp8) {
  std::string text = kv_text(s);
  if (!has_own_kv(s)) return text;
  return text + fmt::format(
                    "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
                    "  static constexpr float kLargest = {};\n",
                    to_string(s.qscale), max_finite_of(kv_type(s), fp8));
}

constexpr Types::Own kAppendOwn = {.kind = FmhaKind::append, .is_general = true, .stage = "append"};

}  // namespace

std::string append_config(const KernelSpec& spec, int warps, Fp8Encoding fp8) {
  const FmhaSignature& s = signature_in(spec);
  return fmt::format(
      "  using In = {};\n"
      "{}"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaRotary kRotary = FmhaRotary::{};\n"
      "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
      "  static constexpr FmhaCacheLayout kCacheLayout = FmhaCacheLayout::{};\n"
      "  static constexpr bool kRotateQ = {};\n"
      "  static constexpr int kWaveM = {};\n",
      tile::storage_type(s.in), cache_text(s, fp8), to_string(s.lengths), to_string(s.rotary),
      to_string(s.pages), to_string(s.cache_layout), s.rotate_q, warps);
}

Step append_step(const FmhaProblem& p, const device::FmhaAppendArguments& g, int warps) {
  Step step;
  step.block = {static_cast<unsigned>(warps * kWarpThreads), 1, 1};
  step.grid = append_grid(p, g, warps);
  return step;
}

bool has_tokens(const FmhaProblem& p) { return has_queries(p) && end_of_positions(p) > 0; }

std::int64_t end_of_positions(const FmhaProblem& p) {
  return p.rotary == FmhaRotary::none ? p.seqlen_k : std::min(p.seqlen_k, p.rotary_positions);
}

device::FmhaAppendArguments append_arguments(const FmhaProblem& p, const FmhaOperands& o) {
  device::FmhaAppendArguments g{};
  g.q = o.q, g.k_new = o.k_new, g.v_new = o.v_new;
  g.cos = o.cos, g.sin = o.sin;
  g.seqlens_q = o.seqlens_q, g.seqlens_k = o.seqlens_k;
  g.k = const_cast<void*>(o.k), g.v = const_cast<void*>(o.v);
  g.out = extends(p) ? o.q_turned : o.out;
  g.batch = p.batch, g.heads = p.heads, g.heads_kv = p.heads_kv;
  g.seqlen_q = p.seqlen_q, g.tokens_q = p.tokens_q;
  g.seqlen_k = p.seqlen_k, g.counts_new = extends(p) ? 1 : 0;
  g.end = end_of_positions(p);
  g.hdim = p.hdim, g.hdim_v = p.hdim_v, g.rotary_dim = p.rotary_dim;
  copy_strides(p.q_strides, g.q_stride);
  copy_strides(extends(p) ? p.q_turned_strides : p.out_strides, g.out_stride);
  copy_strides(p.k_new_strides, g.k_new_stride), copy_strides(p.v_new_strides, g.v_new_stride);
  copy_strides(p.k_strides, g.k_stride), copy_strides(p.v_strides, g.v_stride);
  if (is_packed(p)) {
    for (device::i64* stride : {g.q_stride, g.k_new_stride, g.v_new_stride, g.out_stride}) {
      stride[device::kTokenBatch] = 0;
    }
  }
  set_page_fields(p, o, g);
  g.descale_k = const_cast<float*>(o.descale_k), g.descale_v = const_cast<float*>(o.descale_v);
  return g;
}

// One for each element that is moved, and two products and a sum for each that is turned.
double append_flops(const FmhaProblem& p) {
  const AppendRows rows = rows_of(p);
  return moved_elements(p) + 3 * double(p.rotary_dim) * (rows.of_keys + rows.of_queries);
}

// Each new element is read and written, and a factor for each head where tokens have one; of the
// angles' tables, a row for each new token. Entries of pages are read as often as there are pages
// with new tokens.
double append_bytes(const FmhaProblem& p) {
  const double tokens = std::min(double(p.batch) * double(p.seqlen_q), double(p.tokens_q));
  const double table = std::min(tokens, double(p.rotary_positions)) * double(p.rotary_dim);
  const double pages =
      is_paged(p) ? std::min(tokens, tokens / double(p.page_size) + double(p.batch)) : 0;
  const AppendRows rows = rows_of(p);
  const double to_cache = rows.of_keys * double(p.hdim + p.hdim_v);
  const double to_queries = rows.of_queries * double(p.hdim);
  const double factors = p.qscale == FmhaQscale::per_token ? 2 * rows.of_keys : 0;
  return to_cache * (size_of(p.in) + size_of(kv_type(p))) + 2 * to_queries * size_of(p.in) +
         4 * factors + 4 * table + 4 * double(p.batch) + 4 * pages;
}

Estimate append_estimate(const FmhaProblem& p, const Target& target, int units) {
  const Way& of_gpu = target.backend == "hip" ? kAppendHip : kAppendGpu;
  const Way& way = is_gpu(target) ? of_gpu : kAppendCpu;
  return way.estimate({}, p, target, units);
}

const Way kAppendCpu = {.backend = "cpu",
                        .pipeline = Pipeline::direct,
                        .rules = kAppendRules,
                        .algorithms = append_algorithms,
                        .emit = append_on_cpu,
                        .bind = bind_append,
                        .estimate = append_time_on_cpu,
                        .is_unlisted = true,
                        .own = kAppendOwn};
const Way kAppendGpu = {.backend = "cuda",
                        .pipeline = Pipeline::direct,
                        .rules = kAppendRules,
                        .algorithms = append_algorithms,
                        .emit = append_on_gpu,
                        .bind = bind_append,
                        .estimate = append_time_on_gpu,
                        .is_unlisted = true,
                        .own = kAppendOwn};

}  // namespace tessera::fmha
