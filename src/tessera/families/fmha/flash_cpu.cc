// Attention on CPUs: rules, text, launch, predicted times. device/cpu/fmha/flash_fmha.h says how
// the kernels work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cpu/fmha/flash_parts.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {
namespace {

constexpr int kMostBlock = 4096;  // rows or keys

// Reckoned from instructions and the prototype's share, except for packing: tiles of 24, 96 and 192
// rows side by side on an AMD EPYC (Zen 4) at work gave 12 to 17 cycles for three shapes.
constexpr double kCyclesOfScores = 8;    // of a vector, for its exponentials and what is around
constexpr double kCyclesOfPacking = 16;  // of a vector of keys or values
constexpr double kFewRowsShare = 0.5;    // of the products that few rows in place reach
constexpr double kCyclesOfDropout = 2;   // of a score's random byte, measured with 64 keys

// ---- which kernels there are ----

int vector_lanes(const Case& c) { return std::max(1, c.target.vector_bytes / 4); }

bool register_block_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  const int vectors = w.n / vector_lanes(c);
  return w.k == 1 && w.m >= 1 && vectors >= 1 && w.n % vector_lanes(c) == 0 &&
         w.m * vectors + vectors < c.target.vector_registers;
}

bool blocks_fit(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  const Shape3& w = c.algorithm.warp_tile;
  return t.m >= 1 && t.m <= kMostBlock && t.n >= 1 && t.n <= kMostBlock && t.m % w.m == 0 &&
         t.n % w.n == 0 && t.k == kMostHdim;
}

std::vector<Algorithm> flash_algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::fmha, target);
  return tile::shapes_with(space, Pipeline::flash, tile::warp_tiles_for(space, DType::fp32));
}

// ---- the text ----

// And products of few rows in place.
std::vector<tile::CpuObject> cpu_objects(const KernelSpec& spec, const Target& target) {
  const DType type = kv_type(signature_in(spec));
  std::vector<tile::CpuObject> objects = product_objects(spec, target);
  if (size_of(type) == 1) return objects;  // never read in place
  const std::string in(tile::storage_type(type));
  const std::string run = fmt::format("const TokenRun<{}>&, const FloatRows&", in);
  objects.push_back({"fmha/flash_few.h",
                     {{"void", "multiply_few_keys", in, "const FloatRows&, i64, " + run},
                      {"void", "add_few_values", in, "const FloatRows&, i64, " + run}}});
  return objects;
}

Source emit_flash_cpu(const KernelSpec& spec, const Target& target) {
  tile::Template from = {"fmha/flash_fmha.h", "FmhaKernel", "FmhaArguments", config_text(spec)};
  if (extends(spec)) {
    from.header = "fmha/extend_fmha.h", from.name = "ExtendFmha";
    from.config += extended_config(spec, 0);
  }
  Source source = tile::cpu_source(spec, target, kAbi, from, cpu_entries(spec));
  tile::add_objects(cpu_objects(spec, target), source);
  return source;
}

// ---- the launch ----

// Blocks of rows of which each packs the keys and values that it sees.
double ceil_div(const Algorithm& a, const FmhaProblem& p) {
  const std::int64_t group = p.heads / p.heads_kv;
  const double rows = double(p.seqlen_q) * double(group);
  return std::ceil(rows / a.tile.m) * double(p.heads_kv) * double(p.batch);
}

// Scores that a mask takes away from a register block, which is multiplied whole.
double cut_scores(const Algorithm& a, const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) return 0;
  const double queries =
      std::min(double(p.seqlen_q), double(a.warp_tile.m) * double(p.heads_kv) / double(p.heads));
  return double(p.batch) * double(p.heads) * double(p.seqlen_q) * std::max(1.0, queries) / 2;
}

// Into how many parts the keys of the longest sequence are cut.
std::int64_t parts_of_keys(const Algorithm& a, const FmhaProblem& p) {
  const device::FmhaArguments g = arguments_of(p, {});
  const auto layout = static_cast<device::FmhaCacheLayout>(p.cache_layout);
  const std::int64_t heads = device::flash_heads_together(g, layout, size_of(kv_type(p)), a.tile.m);
  const double shared = std::ceil(double(p.heads_kv) / double(heads)) / double(p.heads_kv);
  const double items = std::min(std::round(ceil_div(a, p) * shared), 1e18);
  return device::flash_parts(
      {static_cast<device::i64>(items), heads, p.seqlen_k, p.num_splits, a.tile.n});
}

Launch bind_flash_cpu(const KernelSpec& spec, const FmhaProblem& p, const Target&,
                      const FmhaOperands& o) {
  Launch launch;
  add_check_step(p, 1, launch);
  set_arguments(arguments_of(p, o), p, o, launch);
  if (has_queries(p)) launch.steps.push({});
  launch.parts = parts_of_keys(spec.algorithm, p);
  return launch;
}

// ---- predicted times ----

Estimate estimate_flash_cpu(const KernelSpec& spec, const FmhaProblem& p, const Target& target,
                            int limit) {
  const Algorithm& a = spec.algorithm;
  const double lanes = std::max(1, target.vector_bytes / 4);
  const double blocks = ceil_div(a, p);
  const auto parts = static_cast<double>(parts_of_keys(a, p));
  const double used = std::min<double>(limit, blocks * parts);
  const double idle = std::ceil(blocks * parts / used) * used / (blocks * parts);  // at the end
  const double rows = double(p.heads) * double(p.seqlen_q) * double(p.batch);
  const double own =
      double(p.seqlen_q) * double(p.heads) / double(p.heads_kv);  // of a key-value head
  const bool in_place = own <= device::kFlashFewRows;
  const double padding =
      in_place ? 1 / kFewRowsShare : std::ceil(own / a.warp_tile.m) * a.warp_tile.m / own;
  const double multiplied = scores(p) + cut_scores(a, p);
  const double elements = double(p.hdim) + std::ceil(double(p.hdim_v) / lanes) * lanes;
  const double products = multiplied * elements;
  const double seen = multiplied / std::max(1.0, rows);  // keys of a row
  const double packed = in_place ? 0 : blocks * seen * elements / lanes;
  const double dropout = p.p_drop == 0 ? 0 : scores(p) * kCyclesOfDropout;
  const double cycles = scores(p) / lanes * kCyclesOfScores + packed * kCyclesOfPacking + dropout;
  const double rate = rate_or_fp32(target, in_place ? DType::fp32 : kv_type(p));
  const double compute =
      (products * padding / rate + cycles / (target.clock_ghz * 1e9)) * idle / used;
  const double memory = bytes(p) / tile::cpu_bandwidth(target, bytes(p), used);
  return tile::total_of(compute, memory, cpu_launch_seconds(target, used));
}

}  // namespace

constexpr Rule kFlashCpuRules[] = {
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) {
       return c.algorithm.wave == Shape3{0, 1, 1};
     },
     [](const Case& c) {
       return fmt::format("wave must be 0x1x1, got {}", to_string(c.algorithm.wave));
     }},
    {register_block_fits,
     [](const Case& c) {
       return fmt::format(
           "warp tile must be m x n x 1, n a multiple of {} lanes, with less than {} "
           "registers in use, got {}",
           vector_lanes(c), c.target.vector_registers, to_string(c.algorithm.warp_tile));
     }},
    {blocks_fit,
     [](const Case& c) {
       return fmt::format(
           "tile must be m x n x {}, at most {}, m and n multiples of warp tile {}, got {}",
           kMostHdim, kMostBlock, to_string(c.algorithm.warp_tile), to_string(c.algorithm.tile));
     }},
};

std::vector<tile::CpuObject> product_objects(const KernelSpec& spec, const Target& target) {
  const FmhaSignature& s = signature_in(spec);
  const Shape3& w = spec.algorithm.warp_tile;
  const std::string in(tile::storage_type(kv_type(s)));
  const auto panels = [&](bool adds) {
    return tile::Instantiation{
        "void", "multiply_panels",
        fmt::format("FlashMath<{}>, {}, {}, {}", in, w.m, w.n * 4 / target.vector_bytes, adds),
        "const FloatRows&, const float*, i64, i64, i64, const FloatRows&"};
  };
  const std::string placed = fmt::format("PlacedTokens<{}>", in);
  const std::string packing = fmt::format("{}, FlashMath<{}>::kPerWord, {}", w.n, in, placed);
  const std::string tokens = fmt::format("const {}&, i64, i64, ", placed);
  std::vector<tile::CpuObject> objects = {{"fmha/flash_block.h", {panels(false), panels(true)}}};
  if (size_of(kv_type(s)) == 1) return objects;  // packed with factors
  objects.push_back({"fmha/flash_pack.h",
                     {{"void", "pack_keys", packing, tokens + "float*"},
                      {"void", "pack_values", packing, tokens + "i64, float*"}}});
  return objects;
}

const Way kFlashCpu = {.backend = "cpu",
                       .pipeline = Pipeline::flash,
                       .rules = kFlashCpuRules,
                       .serves = serves_heads,
                       .algorithms = flash_algorithms,
                       .emit = emit_flash_cpu,
                       .bind = bind_flash_cpu,
                       .estimate = estimate_flash_cpu,
                       .own = {.is_general = true,
                               .packs_heads = true,
                               .stage = "attend",
                               .longer_stage = "append and attend"}};

}  // namespace tessera::fmha
