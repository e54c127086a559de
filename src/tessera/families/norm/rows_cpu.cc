// Kernels for CPUs: a thread takes whole rows, or slices of few long ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::norm {
namespace {

constexpr double kCyclesOfVector = 8;  // both passes of one vector
constexpr double kCyclesOfExp = 4;     // one of a vector
constexpr double kCyclesOfChunk = 60;

int lanes_of(const Target& target) { return std::max(1, target.vector_bytes / 4); }

constexpr tile::Rule<Case> kCpuRules[] = {
    tile::kRowOf<Case, tile::kWarpTileOfOne>,
    tile::kRowOf<Case, kClusterOfOne>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m <= 1 && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("wave must be 1x1x1 or 0x1x1, got {}", to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return tile_fits(c.algorithm.tile, 1, lanes_of(c.target)); },
     [](const Case& c) { return tile_does_not_fit(c.algorithm.tile, 1, lanes_of(c.target)); }},
    {[](const Case& c) {
       return c.signature.quant != NormQuant::block ||
              c.algorithm.tile.n % device::kQuantBlock == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_n must be a multiple of {} with quant=block, got {}",
                          device::kQuantBlock, c.algorithm.tile.n);
     }},
};

std::vector<Algorithm> cpu_algorithms(const Target& target) {
  return rows_algorithms(target, [](const Algorithm& a) { return a.tile.m; });
}

Source emit_cpu(const KernelSpec& spec, const Target& target) {
  const std::array<std::string, 2> ends = {"", "_result"};
  const auto steps = static_cast<std::size_t>(steps_of(spec.algorithm));
  return tile::cpu_source(spec, target, kAbi, rows_template(spec), std::span(ends).first(steps));
}

Estimate estimate_cpu(const KernelSpec& spec, const NormProblem& p, const Target& target,
                      int limit) {
  const Algorithm& a = spec.algorithm;
  const double tiles = is_cut(p) ? std::ceil(double(p.columns) / a.tile.n) : 1;
  const double work = static_cast<double>(p.rows) * a.slices * tiles;
  const double threads = a.wave.m == 1 ? 1 : limit;
  const double used = std::min(threads, work);
  const double idle = std::ceil(work / used) * used / work;  // while others do the last rows
  const double lanes = lanes_of(target);
  const double again = bytes_again(a, p);
  const bool has_exp = p.kind == NormKind::softmax || is_gated(p.kind);
  const int exps = !has_exp ? 0 : again > 0 || is_gated(p.kind) ? 2 : 1;  // the held row keeps them
  const double of_vector = kCyclesOfVector + exps * kCyclesOfExp;
  const double chunks = std::max<double>(a.slices, std::ceil(double(p.columns) / a.tile.n));
  const double cycles =
      elements(p) / lanes * of_vector + static_cast<double>(p.rows) * chunks * kCyclesOfChunk;
  const double compute = cycles * idle / (target.clock_ghz * 1e9 * used);
  const double reread = a.slices > 1 ? again : again / static_cast<double>(p.rows) * used;
  const double memory = bytes(p) / tile::cpu_bandwidth(target, bytes(p), used) +
                        again / tile::cpu_bandwidth(target, reread, used);
  const double entering = threads > 1 ? target.launch_us * 1e-6 : 1e-7;
  return tile::total_of(compute, memory, entering * steps_of(a));
}

}  // namespace

const Way kRowsCpu = {
    .backend = "cpu",
    .pipeline = Pipeline::rows,
    .rules = kCpuRules,
    .serves = rows_serve,
    .algorithms = cpu_algorithms,
    .emit = emit_cpu,
    .bind = bind_rows,
    .estimate = estimate_cpu,
    .own = {
        {.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {0, 1, 1}, .warp_tile = {}},
        {.pipeline = Pipeline::rows, .tile = {1, 4096, 1}, .wave = {0, 1, 1}, .warp_tile = {}}}};

}  // namespace tessera::norm
