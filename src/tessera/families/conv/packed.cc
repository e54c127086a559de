// Kernels for CPUs that pack the factors of an implicit product into panels, see
// src/tessera/device/cpu/conv/packed_conv.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/device/conv.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/objects.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/types.h"

namespace tessera::conv {
namespace {

constexpr int kMostTile = 65536;
constexpr int kMostColumns = 64;     // of a register block, see ConvFactors
constexpr double kLoads = 2;         // of vectors in a cycle
constexpr double kBlockCycles = 1;   // of a step of a register block, besides
constexpr double kPackCycles = 1.5;  // to pack a vector of words
constexpr double kSumCycles = 3;     // to store, load and convert a vector of sums
constexpr double kTurnCycles = 6;    // to begin a pixel of A in gradients by w
constexpr double kNear = 0.75;       // of L1, which a panel may take
constexpr double kKeptCycles = 1.5;  // of a vector of a panel that leaves L1 before it is read

int lanes_of(const Target& target) { return target.vector_bytes / 4; }

const Instruction* word_instruction(const ConvSignature& s, int products, const Target& target) {
  return tile::find_word_instruction(s.in, s.acc, products, target);
}

int registers_of(const Case& c) {
  const int vectors = c.algorithm.warp_tile.n / lanes_of(c.target);
  return c.algorithm.warp_tile.m * vectors + vectors + 1;
}

constexpr tile::Rule<Case> kPackedRules[] = {
    {[](const Case& c) {
       const Shape3 &t = c.algorithm.tile, &w = c.algorithm.warp_tile;
       return std::min({t.m, t.n, t.k, w.m, w.n, w.k}) >= 1 &&
              std::max({t.m, t.n, t.k}) <= kMostTile;
     },
     [](const Case& c) {
       return fmt::format("tile sizes must be between 1 and {}, got {} and warp tile {}", kMostTile,
                          to_string(c.algorithm.tile), to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const Shape3 &t = c.algorithm.tile, &w = c.algorithm.warp_tile;
       return t.m % w.m == 0 && t.n % w.n == 0 && t.k % w.k == 0;
     },
     [](const Case& c) {
       return fmt::format("tile {} is not a multiple of warp tile {}", to_string(c.algorithm.tile),
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w == Shape3{0, 0, 1} || w == Shape3{};
     },
     [](const Case& c) {
       return fmt::format("wave must be 0x0x1 or 1x1x1, got {}", to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const int n = c.algorithm.warp_tile.n;
       return c.target.vector_bytes >= 4 && n % lanes_of(c.target) == 0 && n <= kMostColumns;
     },
     [](const Case& c) {
       return fmt::format("warp_tile_n must be a multiple of {}, at most {}, got {}",
                          lanes_of(c.target), kMostColumns, c.algorithm.warp_tile.n);
     }},
    {[](const Case& c) {
       return word_instruction(c.signature, c.algorithm.warp_tile.k, c.target) != nullptr;
     },
     [](const Case& c) {
       return fmt::format("{} has no instruction for {} with {} product{} per lane", c.target.name,
                          to_string(c.signature.in), c.algorithm.warp_tile.k,
                          c.algorithm.warp_tile.k == 1 ? "" : "s");
     }},
    {[](const Case& c) { return registers_of(c) <= c.target.vector_registers; },
     [](const Case& c) {
       return fmt::format("needs {} vector registers, {} has {}", registers_of(c), c.target.name,
                          c.target.vector_registers);
     }},
};

std::vector<Algorithm> packed_algorithms(const Target& target) {
  return blocked_algorithms(target, Pipeline::packab);
}

// ---- text ----

std::string_view column_type(const ConvSignature& s) {
  if (s.direction == ConvDirection::backward_weight) return tile::storage_type(s.in);
  if (s.layout == ConvLayout::nhwgc) return tile::storage_type(s.weight);
  return tile::storage_type(s.direction == ConvDirection::forward ? s.in : s.out);
}

std::vector<tile::CpuObject> objects_of(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::string_view math = tile::math_type(s.in, a.warp_tile.k);
  const bool is_last = s.layout == ConvLayout::nhwgc;
  const std::string types = fmt::format(
      "PackedConvTypes<ConvDirection::{}, {}, {}, {}, {}, {}>", to_string(s.direction), is_last,
      tile::storage_type(s.in), tile::storage_type(s.weight), tile::storage_type(s.out), math);
  const std::string shape = fmt::format("const PackedConvShape<{}>&, const void*, ", types);
  const bool along_depth = s.direction == ConvDirection::forward
                               ? is_last
                               : s.direction == ConvDirection::backward_weight && !is_last;
  const std::string block =
      fmt::format("{}, {}, {}", math, a.warp_tile.m, a.warp_tile.n / lanes_of(target));
  std::vector<tile::CpuObject> objects = {
      {"block.h", {{"void", "multiply_any", block + ", 0", "const BlockTask&, i64, int"}}},
      {"conv/packed_driver.h",
       {{"void", "packed_conv_run", types, shape + "const CpuThread&"},
        {"i64", "packed_conv_workspace_bytes", types, shape + "int"}}},
      {"conv/packed_driver.h",
       {{"void", "pack_part",
         fmt::format("{}, {}, {}, {}", column_type(s), math, a.warp_tile.n, along_depth),
         fmt::format("const PanelSource<{}>&, u32*", column_type(s))}}}};
  // Rows of images are read where they lie, in runs; int8's words have changed signs.
  const bool reads_images = is_last && s.direction != ConvDirection::backward_weight;
  if (reads_images && s.in != DType::int8) {
    objects.push_back(
        {"conv/conv_block.h",
         {{"void", "multiply_runs", block, "const BlockTask&, const ConvRun*, i64"}}});
  }
  return objects;
}

Source emit_packed(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const std::string entry;
  const std::string math =
      fmt::format("  using Math = {};\n", tile::math_type(s.in, spec.algorithm.warp_tile.k));
  Source source = tile::cpu_source(
      spec, target, kAbi,
      {"conv/packed_conv.h", "PackedConv", "ConvArguments", config_text(spec, "float") + math},
      std::span(&entry, 1));
  tile::add_objects(objects_of(spec, target), source);
  return source;
}

// ---- estimate ----

double blocks_of_side(double size, double block) { return std::ceil(size / block); }

// The pixels of a line that make up one row of the product, and the taps of a line that a row
// meets, as in device/cpu/conv/conv_view.h.
struct Cell {
  double pixels = 1, taps = 1;
};
Cell cell_of(const ConvProblem& p, double most_columns, double lanes) {
  const bool is_forward = p.direction == ConvDirection::forward;
  const auto filter = double(p.filter[device::kWidth]), stride = double(p.stride[device::kWidth]);
  const auto channels = double(is_forward ? p.k : p.c);
  const bool is_data = p.direction == ConvDirection::backward_data;
  const Cell alone = {1, is_data ? filter / stride : filter};
  if (p.direction == ConvDirection::backward_weight || p.layout != ConvLayout::nhwgc || p.g != 1) {
    return alone;
  }
  const std::int64_t apart = (is_forward ? p.out_strides : p.in_strides)[device::kImageW];
  if (double(apart) != channels) return alone;
  const auto width = double((is_forward ? out_size(p) : p.size)[device::kWidth]);
  const double reach = (filter - 1) * double(p.dilation[device::kWidth]);
  const auto pad = double(p.pad[device::kWidth]), step = is_forward ? 1 : stride;
  constexpr double kWorthIt = 0.8;
  double least = kWorthIt * alone.taps * std::ceil(channels / lanes);
  Cell best = alone;
  for (double cell = step; cell * channels <= most_columns && cell <= width; cell += step) {
    const double taps =
        is_forward ? (cell - 1) * stride + reach + 1
                   : std::floor((cell - 1 + pad) / stride) + 1 - std::ceil((pad - reach) / stride);
    const double cost = taps * std::ceil(cell * channels / lanes) / cell;
    if (cell == 1 || taps < 1 || cost >= least) continue;
    least = cost;
    best = {cell, taps};
  }
  return best;
}

Estimate estimate_packed(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                         int threads) {
  const Problem problem = p;
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const Instruction* const word = word_instruction(s, a.warp_tile.k, target);
  const bool is_turned =
      s.direction != ConvDirection::backward_weight && s.layout == ConvLayout::nchw;
  const View view = view_of(p);
  const double lanes = lanes_of(target);
  const Cell cell = cell_of(p, a.warp_tile.n, lanes);
  // A stride leaves a part of the taps to each pixel of a gradient by x.
  const bool is_data = s.direction == ConvDirection::backward_data;
  const double strides = is_data ? double(p.stride[0] * p.stride[1]) : 1;
  const double taps = cell.taps / double(p.filter[device::kWidth]);
  const double all_depth = double(view.depth) * taps / a.warp_tile.k;
  const double depth = all_depth / strides;
  const double rows = double(is_turned ? view.columns : view.rows) / cell.pixels;
  const double columns = double(is_turned ? view.rows : view.columns) * cell.pixels;
  const double row_blocks = blocks_of_side(rows, a.warp_tile.m);
  const double column_blocks = blocks_of_side(columns, a.warp_tile.n);
  const double used = a.wave.m == 1 ? 1 : units_used(threads, target);
  const double share = std::max(1.0, std::min(used, row_blocks * column_blocks * double(p.g)));
  // Register blocks, which load every row and every vector of columns for a word of the depth; the
  // factors' panels; and sums that come again with each block of the depth.
  const double vectors = a.warp_tile.n / lanes;
  const double macs = a.warp_tile.m * vectors / (word == nullptr ? 1 : word->per_cycle);
  const double block_cycles = std::max(macs, (a.warp_tile.m + vectors) / kLoads) + kBlockCycles;
  double cycles = row_blocks * column_blocks * depth * block_cycles;
  const double times = blocks_of_side(columns, a.tile.n);
  cycles += rows * depth * times / lanes * kPackCycles;
  if (s.direction == ConvDirection::backward_weight) {
    const double row_tiles = blocks_of_side(rows, a.tile.m);
    const double l1 = target.caches.empty() ? 0 : double(target.caches.front().bytes);
    const double panel = double(a.tile.k) / a.warp_tile.k * a.warp_tile.n * 4;
    const bool is_kept = row_tiles > 1 || panel > kNear * l1;
    cycles += row_tiles * depth * times * kTurnCycles;
    if (is_kept) cycles += columns * depth / lanes * kKeptCycles;
  }
  cycles += columns * all_depth / lanes * kPackCycles;
  cycles += rows * columns / lanes * blocks_of_side(depth * a.warp_tile.k, a.tile.k) * kSumCycles;
  const double compute = double(p.g) * cycles / (target.clock_ghz * 1e9 * share);
  const double memory = bytes(problem) / tile::cpu_bandwidth(target, bytes(problem), used);
  return tile::total_of(compute, memory, target.launch_us * 1e-6);
}

}  // namespace

const Way kPackedCpu = {.backend = "cpu",
                        .pipeline = Pipeline::packab,
                        .rules = kPackedRules,
                        .algorithms = packed_algorithms,
                        .emit = emit_packed,
                        .bind = bind_on_cpu,
                        .estimate = estimate_packed};

}  // namespace tessera::conv
