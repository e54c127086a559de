// The grouped kernels: which there are, which problems they serve, their text and predicted times.
// What a tile means: device/cuda/conv/grouped_conv.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/conv/grouped_internal.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::conv {
namespace {

constexpr int kMostChannels = 128;        // of the image in a product
constexpr int kMostGroupedColumns = 128;  // of a block
constexpr int kMostTogether = 64;         // channels of all products of a block, beyond one's own
constexpr int kMostImageSums = 64;        // of a thread, without spills
constexpr int kMostWideSums = 56;         // by wgmma
constexpr int kMostFinishedSums = 48;     // the same, with an epilogue, or four warpgroups in 3-D
constexpr int kMostWeightSums = 112;
constexpr int kMostResults = 512;  // of a tile
constexpr int kMostWarps = 16;
constexpr int kMostGroups = 3;  // warpgroups that multiply
constexpr int kMostGroupedStages = 4;
constexpr std::int64_t kMostGroupedSize = std::int64_t{1} << 28;
constexpr double kMostGroupedBlocks = 0x1p30;
constexpr double kMostPartBytes = 0x1p30;

bool is_weight(const Case& c) { return c.signature.direction == ConvDirection::backward_weight; }
int most_grouped_sums(const Case& c) {
  if (is_weight(c)) return kMostWeightSums;
  if (c.algorithm.stages == 1) return kMostImageSums;
  const bool finishes = num_ops(c.signature.epilogue) > 0 ||
                        (c.signature.ndim == 3 && c.algorithm.wave.m == kMostGroups);
  return finishes ? kMostFinishedSums : kMostWideSums;
}
GroupedShape shape_of(const Case& c) { return grouped_shape(c.signature.direction, c.algorithm); }
bool is_multiple(int value, int unit, int most) {
  return value >= unit && value <= most && value % unit == 0;
}

// ---- legality ----

constexpr tile::Rule<Case> kGroupedRules[] = {
    {[](const Case& c) { return c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format(
           "grouped copies neighbouring channels, which lie side by side in nhwgc only, got {}",
           to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const ConvSignature& s = c.signature;
       return (s.in == DType::fp16 || s.in == DType::bf16) && s.weight == s.in && s.out == s.in;
     },
     [](const Case& c) {
       const ConvSignature& s = c.signature;
       return fmt::format(
           "grouped multiplies and stores fp16 or bf16 alone, got in={}, weight={} and out={}",
           to_string(s.in), to_string(s.weight), to_string(s.out));
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return is_multiple(t.k, 8, kMostChannels) && is_multiple(t.n, 8, kMostGroupedColumns) &&
              is_multiple(t.m, 16, kMostResults);
     },
     [](const Case& c) {
       return fmt::format(
           "grouped has tiles of multiples of 16 results up to {}, of 8 columns up to {} and of 8 "
           "channels up to {}, got {}",
           kMostResults, kMostGroupedColumns, kMostChannels, to_string(c.algorithm.tile));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.n >= 1 && w.k == 1 && w.m * w.n <= kMostWarps;
     },
     [](const Case& c) {
       return fmt::format("grouped has 1 to {} warps over m and n (wave_k is 1), got {}",
                          kMostWarps, to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.stages == 1 || (!is_weight(c) && a.stages >= 2 && a.stages <= kMostGroupedStages &&
                                a.wave.m <= std::min(kMostGroups, a.stages) && a.wave.n == 1 &&
                                a.warp_tile.k == 1 && a.warp_tile.n == a.tile.n &&
                                a.warp_tile.m == a.tile.m && (a.tile.m == 64 || a.tile.m == 128));
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "with 2 to {} stages grouped multiplies by wgmma, forward and backward_data: 64 or 128 "
           "results, a warp tile of the whole tile, one product and 1 to {} warpgroups, no more "
           "than stages, got {} stages, tile {}, wave {}, warp tile {} and {}",
           kMostGroupedStages, kMostGroups, a.stages, to_string(a.tile), to_string(a.wave),
           to_string(a.warp_tile), to_string(c.signature.direction));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.m >= 16 && a.warp_tile.m % 16 == 0 && a.warp_tile.n >= 8 &&
              a.warp_tile.n % 8 == 0 && a.tile.n % a.warp_tile.n == 0;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "a warp has multiples of 16 rows, and of 8 columns that divide {}, got {}x{}", a.tile.n,
           a.warp_tile.m, a.warp_tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.k == 1 ||
              (a.warp_tile.k > 1 && a.warp_tile.k * a.tile.k <= kMostTogether &&
               a.warp_tile.k * a.tile.n <= kMostGroupedColumns);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "warp_tile_k is the products of a block, which have at most {} channels and {} columns "
           "together, got {} products of {} and {}",
           kMostTogether, kMostGroupedColumns, a.warp_tile.k, a.tile.k, a.tile.n);
     }},
    {[](const Case& c) { return shape_of(c).sums() <= most_grouped_sums(c); },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread ({}x{} of a warp), at most {} fit",
                          shape_of(c).sums(), c.algorithm.warp_tile.m, c.algorithm.warp_tile.n,
                          most_grouped_sums(c));
     }},
};

// ---- problems ----

struct GroupedAsk {
  const Algorithm& algorithm;
  const ConvProblem& problem;
  const Target& target;
};

int up_to_8(std::int64_t channels) { return static_cast<int>(tile::ceil_div(channels, 8) * 8); }
double taps_of(const ConvProblem& p) {
  return double(p.filter[0]) * double(p.filter[1]) * double(p.filter[2]);
}
double classes_of(const ConvProblem& p) {
  if (p.direction != ConvDirection::backward_data) return 1;
  double classes = 1;
  for (std::size_t i = 0; i < 3; ++i) classes *= double(std::min(p.stride[i], p.size[i]));
  return classes;
}
bool fits_tables(const ConvProblem& p) {
  return taps_of(p) <= device::kMostGroupedTaps && classes_of(p) <= device::kMostGroupedClasses;
}
// The stride of groups that is none of channels side by side; -1: there is none.
std::int64_t wrong_group_stride(const ConvProblem& p) {
  if (p.in_strides[1] != p.c / p.g) return p.in_strides[1];
  return p.out_strides[1] != p.k / p.g ? p.out_strides[1] : -1;
}
std::int64_t largest_size(const ConvProblem& p) {
  const Spatial out = out_size(p);
  std::int64_t most = std::max({p.n, p.c, p.k});
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t right = std::max<std::int64_t>(p.pad_right[i], 0);
    most = std::max({most, p.size[i] + p.pad[i] + right, out[i] * p.stride[i],
                     p.filter[i] * p.dilation[i], p.filter[i] * p.weight_strides[i + 3]});
  }
  return most;
}
GroupedPlan plan_of(const GroupedAsk& x) {
  device::GroupedArguments arguments{};
  return grouped_plan(x.problem, x.algorithm, x.target, arguments);
}
double part_bytes(const ConvProblem& p, const GroupedPlan& plan) {
  const std::int64_t channels = p.c / p.g;
  return plan.parts < 2 ? 0 : double(p.k) * double(channels) * taps_of(p) * 4 * plan.parts;
}

constexpr tile::Rule<GroupedAsk> kGroupedProblemRules[] = {
    {[](const GroupedAsk& x) {
       const ConvProblem& p = x.problem;
       return p.n >= 1 && p.g > 1 && std::max(p.c, p.k) > p.g;
     },
     [](const GroupedAsk& x) {
       return fmt::format(
           "grouped needs an image, two groups and two channels of x or y in each, got n={}, c={}, "
           "k={} and g={}",
           x.problem.n, x.problem.c, x.problem.k, x.problem.g);
     }},
    {[](const GroupedAsk& x) {
       return up_to_8(grouped_product(x.problem).depth) == x.algorithm.tile.k;
     },
     [](const GroupedAsk& x) {
       return fmt::format("tile_k must be {}, the channels that are multiplied, filled up, got {}",
                          up_to_8(grouped_product(x.problem).depth), x.algorithm.tile.k);
     }},
    {[](const GroupedAsk& x) {
       return x.algorithm.tile.n <= up_to_8(grouped_product(x.problem).columns);
     },
     [](const GroupedAsk& x) {
       return fmt::format("tile_n must be at most {}, the channels of a product, filled up, got {}",
                          up_to_8(grouped_product(x.problem).columns), x.algorithm.tile.n);
     }},
    {[](const GroupedAsk& x) { return wrong_group_stride(x.problem) < 0; },
     [](const GroupedAsk& x) {
       const ConvProblem& p = x.problem;
       return fmt::format(
           "grouped needs the channels of all groups side by side, {} and {} in a group, got a "
           "stride of {}",
           p.c / p.g, p.k / p.g, wrong_group_stride(p));
     }},
    {[](const GroupedAsk& x) { return fits_tables(x.problem); },
     [](const GroupedAsk& x) {
       return fmt::format(
           "grouped has room for {} taps and {} residues of a gradient by x, got {:.0f} and {:.0f}",
           device::kMostGroupedTaps, device::kMostGroupedClasses, taps_of(x.problem),
           classes_of(x.problem));
     }},
    {[](const GroupedAsk& x) { return largest_size(x.problem) <= kMostGroupedSize; },
     [](const GroupedAsk& x) {
       return fmt::format("grouped counts images, channels and places up to {}, got {}",
                          kMostGroupedSize, largest_size(x.problem));
     }},
    {[](const GroupedAsk& x) { return plan_of(x).fits; },
     [](const GroupedAsk& x) {
       return fmt::format(
           "the filters of a block and what one result reads need {:.0f} bytes of shared memory, "
           "{} "
           "has {}",
           plan_of(x).shared_bytes, x.target.name, x.target.shared_memory_bytes);
     }},
    {[](const GroupedAsk& x) {
       const GroupedPlan plan = plan_of(x);
       return std::max(plan.blocks, plan.tiles) <= kMostGroupedBlocks &&
              part_bytes(x.problem, plan) <= kMostPartBytes;
     },
     [](const GroupedAsk& x) {
       const GroupedPlan plan = plan_of(x);
       return fmt::format(
           "grouped counts blocks and tiles up to {:.0f} and keeps at most {:.0f} bytes of sums, "
           "got "
           "{:.0f}, {:.0f} and {:.0f}",
           kMostGroupedBlocks, kMostPartBytes, plan.blocks, plan.tiles,
           part_bytes(x.problem, plan));
     }},
};

Verdict grouped_serves(const KernelSpec& spec, const ConvProblem& p, const Target& target) {
  const GroupedAsk x = {spec.algorithm, p, target};
  return {tile::broken_sentence(kGroupedProblemRules, x)};
}

// ---- the space ----

constexpr int kTapsOfLists = 9;  // of the filters that enumeration is for

Algorithm grouped_algorithm(const Shape3& tile, const Shape3& wave, const Shape3& warp) {
  return {.pipeline = Pipeline::grouped, .tile = tile, .wave = wave, .warp_tile = warp};
}

// The widest warp tile of whole columns that shares `columns`; 0: none is wide enough.
int warp_columns_of(int columns, int most) {
  for (int width = std::min(columns, most); width >= 8; width -= 8) {
    if (columns % width == 0) return columns > 64 && width < 24 ? 0 : width;
  }
  return 0;
}

// Columns of a block: all, and where filters are large, half and a quarter of them.
std::vector<int> column_counts(int columns) {
  std::vector<int> counts;
  for (const int parts : {1, 2, 4}) {
    const int count = up_to_8(tile::ceil_div(columns, parts));
    if (count > kMostGroupedColumns || (parts > 1 && columns < 32)) continue;
    if (counts.empty() || counts.back() != count) counts.push_back(count);
  }
  return counts;
}
// Products of a block: as many as make a place 32 to 128 bytes long.
std::vector<int> product_counts(int channels, int columns) {
  std::vector<int> counts;
  for (const int count : {1, 2, 4, 8}) {
    const bool is_short = count < 8 && count * channels < 16;
    if (is_short || (count > 1 && count * std::max(channels, columns) > kMostTogether)) continue;
    counts.push_back(count);
  }
  return counts;
}

void add_image_kernels(int channels, int columns, std::vector<Algorithm>& all) {
  for (const int own : column_counts(columns)) {
    const int width = warp_columns_of(own, 64);
    if (width == 0) continue;
    const int rows = width <= 8 ? 64 : 32;
    for (const int products : product_counts(channels, own)) {
      for (const int results : {64, 128, 256}) {
        const int down = std::min(results / rows, 4);
        const int across = std::min(products * own / width, 8 / down);
        all.push_back(grouped_algorithm({results, own, channels}, {down, across, 1},
                                        {rows, width, products}));
      }
    }
  }
}

// By wgmma: from 40 channels on, fewer leave it mostly idle.
void add_wide_kernels(int channels, int columns, std::vector<Algorithm>& all) {
  constexpr int kLeastWide = 40;
  if (channels < kLeastWide) return;
  for (const int own : column_counts(columns)) {
    for (const int results : {64, 128}) {
      if (results * own / 128 > kMostWideSums) continue;
      for (const int groups : {2, 3}) {
        for (int stages = groups; stages <= 3; ++stages) {
          Algorithm a =
              grouped_algorithm({results, own, channels}, {groups, 1, 1}, {results, own, 1});
          a.stages = stages;
          all.push_back(a);
        }
      }
    }
  }
}

void add_weight_kernels(int channels, int columns, int taps, std::vector<Algorithm>& all) {
  const int blocks = static_cast<int>(tile::ceil_div(std::int64_t{taps} * channels, 16));
  for (const int own : column_counts(columns)) {
    const int widest = warp_columns_of(own, 56);
    for (int width = widest; width >= 8 && width >= widest / 2; width = width / 16 * 8) {
      if (own % width != 0) continue;
      const int most = std::min(9, kMostWeightSums / (width / 2));
      const auto parts = static_cast<int>(tile::ceil_div(blocks, most));
      const auto rows = static_cast<int>(tile::ceil_div(blocks, parts)) * 16;
      for (const int products : product_counts(channels, own)) {
        const int units = products * parts * (own / width);
        const auto rounds = static_cast<int>(tile::ceil_div(units, 8));
        const auto at_once = static_cast<int>(tile::ceil_div(units, rounds));
        for (const int sharers : {1, 2, 4}) {
          if (at_once * sharers > 8 || at_once * sharers * 4 <= 8) continue;
          for (const int results : {64, 112, 208}) {
            all.push_back(grouped_algorithm({results, own, channels}, {at_once, sharers, 1},
                                            {rows, width, products}));
          }
        }
      }
      if (width == 8) break;
    }
  }
}

// Channels of x and y in the groups of networks; algorithms_for() makes those of a problem.
std::vector<Algorithm> grouped_algorithms(const Target&) {
  std::vector<Algorithm> all;
  for (const int channels : {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128}) {
    add_image_kernels(channels, channels, all);
    add_wide_kernels(channels, channels, all);
    add_weight_kernels(channels, channels, kTapsOfLists, all);
  }
  return all;
}

std::vector<Algorithm> grouped_for(const ConvProblem& p, const Target& target) {
  if (p.g < 2 || !fits_tables(p)) return {};
  const GroupedProduct product = grouped_product(p);
  if (product.depth > kMostChannels) return {};
  // tmaws reads wide groups of whole tiles where they lie, at a better rate.
  constexpr int kWhole = 64;
  if (product.depth >= 2 * kWhole && product.depth % kWhole == 0 && product.columns % kWhole == 0) {
    return {};
  }
  const int channels = up_to_8(product.depth);
  const int columns =
      up_to_8(std::min<std::int64_t>(product.columns, std::int64_t{4} * kMostGroupedColumns));
  std::vector<Algorithm> all;
  if (p.direction == ConvDirection::backward_weight) {
    add_weight_kernels(channels, columns, static_cast<int>(taps_of(p)), all);
  } else {
    add_image_kernels(channels, columns, all);
    add_wide_kernels(channels, columns, all);
  }
  std::erase_if(all, [&](const Algorithm& a) {
    return !tile::broken_sentence<GroupedAsk>(kGroupedProblemRules, {a, p, target}).empty();
  });
  return all;
}

// ---- text ----

constexpr int kMostBlocksTogether = 8;
constexpr int kUnitParts = 4, kMostUnitWarps = 64;
constexpr int kRegisterUnit = 8;  // in which threads get registers

// How many blocks are to share a unit, for which the compiler saves registers. Each of a unit's
// four parts has the registers of a quarter of the warps.
int blocks_sharing(const ConvSignature& s, const Algorithm& a, const Target& target) {
  const int warps = grouped_shape(s.direction, a).threads() / target.warp_size;
  const int of_part = target.registers_per_unit / (kUnitParts * target.warp_size);
  int blocks = kMostBlocksTogether;
  for (; blocks > 1; --blocks) {
    const auto share = static_cast<int>(tile::ceil_div(blocks * warps, kUnitParts));
    const int registers = of_part / share / kRegisterUnit * kRegisterUnit;
    if (blocks * warps <= kMostUnitWarps && registers >= grouped_registers(s, a)) break;
  }
  return blocks;
}

// The one wgmma that a kernel uses.
std::string instruction_text(const ConvSignature& s, const GroupedShape& shape) {
  const tile::Wgmma instruction = {
      s.in, s.in, shape.columns, tile::WgmmaFrom::k_lines,
      shape.by_data ? tile::WgmmaFrom::row_lines : tile::WgmmaFrom::k_lines};
  return tile::wgmma_text({&instruction, 1});
}

Source emit_grouped(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const GroupedShape shape = grouped_shape(s.direction, spec.algorithm);
  const int threads = shape.threads();
  const std::array<tile::GpuEntry, 2> entries = {
      {{"", "run", blocks_sharing(s, spec.algorithm, target)}, {"_sum", "run_sum"}}};
  const std::string config =
      config_text(spec, "tf32") + fmt::format("  static constexpr int kThreads = {};\n", threads);
  const bool by_weight = s.direction == ConvDirection::backward_weight;
  const std::string before = shape.is_wide() ? instruction_text(s, shape) : std::string();
  return tile::cuda_source(
      spec, kAbi, {"conv/grouped_conv.h", "GroupedConv", "GroupedArguments", config, before},
      threads, std::span(entries).first(by_weight ? 2 : 1));
}

// ---- time ----

// The first numbers are fitted by hand to what a prototype of these kernels took on an H200, the
// others count instructions.
constexpr double kStartSeconds = 3.2e-6;   // of blocks that load, multiply and store in turn
constexpr double kAddStepSeconds = 3e-6;   // of the second step, besides its bytes
constexpr double kTimesTheBytes = 2.2;     // how much longer memory takes than its bandwidth says
constexpr double kBandwidthReached = 0.9;  // of the nominal one
constexpr double kCyclesOfChunk = 0.6;     // of a unit, for each copy of 16 bytes
constexpr double kCyclesOfElement = 0.35;  // for each that is copied by itself
constexpr double kCyclesOfBlock = 600;
constexpr double kFewer = 0.06;  // by wgmma, for each warpgroup and tile less than three
constexpr double kAlone = 0.5;   // how much longer a block takes that nothing runs beside
constexpr double kCyclesOfMma = 1.6;
constexpr int kLeastReads = 44;  // columns of a wgmma that takes no longer than reading its rows
constexpr double kCyclesOfColumn = 1.4;  // of wgmma, for 64 x 16
constexpr double kCyclesOfMatrices = 4;  // to read four of 8 x 8 from shared memory
// Gradients by w took 1.3 to 3.9 times what is counted, 2.06 times in the geometric mean of 18
// problems: an H200, bench/drawn_conv.py --seed 20261128 --kinds grouped, 2026-11-28, 22026da3.
constexpr double kTimesByWeight = 2.06;

// Cycles of a unit for 16 rows x 16 of the depth x a warp's columns.
double cycles_of_step(const GroupedShape& s) {
  const double eights = s.warp_columns / 8.0;
  const double reads = kCyclesOfMatrices * (1 + std::ceil(eights / 2) / (s.rows / 16.0));
  return std::max(reads, kCyclesOfMma * eights);
}

double cycles_of_tile(const ConvProblem& p, const GroupedShape& s, const GroupedPlan& plan) {
  const double units = double(s.products) * s.columns / s.warp_columns;
  const double places = plan.places * s.products * s.channels / 8;
  if (s.is_wide()) {
    const double steps = taps_of(p) * std::ceil(s.channels / 16.0);
    return std::max(places * kCyclesOfChunk,
                    s.rows / 64.0 * steps * std::max(s.columns, kLeastReads) * kCyclesOfColumn);
  }
  if (!s.by_weight) {
    const double steps = s.channels == 8 ? plan.steps / 2 : plan.steps;
    const double rows = std::ceil(plan.results / s.rows) * s.rows / 16;
    return places * kCyclesOfChunk + rows * units * steps * cycles_of_step(s);
  }
  const double rows = std::ceil(plan.results / 16);
  const double gradient = rows * 16 * s.products * s.columns / 8;
  const double blocks = std::ceil(taps_of(p) * s.channels / s.rows) * (s.rows / 16.0);
  return (places + gradient) * kCyclesOfChunk +
         rows * units * blocks * cycles_of_step(s) / plan.unit_blocks;
}

double filter_cycles(const ConvProblem& p, const GroupedShape& s) {
  if (s.by_weight) return 0;
  const double elements = double(s.products) * s.columns * s.channels * taps_of(p);
  const bool by_chunk = p.c / p.g % 8 == 0 && grouped_product(p).together == 1;
  return by_chunk ? elements / 8 * kCyclesOfChunk : elements * kCyclesOfElement;
}

Estimate estimate_grouped(const KernelSpec& spec, const ConvProblem& p, const Target& target, int) {
  constexpr double kNever = 1e6;
  const GroupedShape s = grouped_shape(p.direction, spec.algorithm);
  const GroupedPlan plan = fits_tables(p) ? plan_of({spec.algorithm, p, target}) : GroupedPlan{};
  if (!plan.fits) return tile::total_of(kNever, 0, target.launch_us * 1e-6);
  const Problem problem = p;
  const double hertz = target.clock_ghz * 1e9;
  const double speed = target.memory_gb_per_s * 1e9 * kBandwidthReached;
  const double shared = s.is_wide() ? plan.walkers : plan.parts;
  const double tiles = s.by_weight || s.is_wide() ? std::ceil(plan.tiles / shared) : 1;
  const double block = kCyclesOfBlock + filter_cycles(p, s) + tiles * cycles_of_tile(p, s, plan);
  const double beside = std::clamp(plan.blocks / target.units, 1.0, plan.resident);
  const double fewer = (kMostGroups - s.warps) + std::max(3 - s.stages, 0);
  const double waits = s.is_wide() ? 1 + kFewer * fewer : 1 + kAlone / beside;
  const double times = s.by_weight ? kTimesByWeight : 1;
  const double compute = times * std::ceil(plan.blocks / target.units) * block * waits / hertz;
  const double memory = times * kTimesTheBytes * bytes(problem) / speed;
  const double sums = plan.parts < 2 ? 0 : kAddStepSeconds + part_bytes(p, plan) / speed;
  return tile::total_of(compute, memory, times * (target.launch_us * 1e-6 + kStartSeconds + sums));
}

}  // namespace

const Way kGroupedCuda = {.backend = "cuda",
                          .pipeline = Pipeline::grouped,
                          .rules = kGroupedRules,
                          .serves = grouped_serves,
                          .algorithms = grouped_algorithms,
                          .emit = emit_grouped,
                          .bind = bind_grouped,
                          .estimate = estimate_grouped,
                          .own = {.for_problem = grouped_for}};

}  // namespace tessera::conv
