// The grouped kernels: which there are, which problems they serve, their text and predicted times.
// What a tile means: device/cuda/conv/grouped_conv.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/device/cuda/abi.h"
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
constexpr std::int64_t kMostStep = (std::int64_t{1} << 31) - 1;
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

bool is_wide_shape(const Case& c) {
  const Algorithm& a = c.algorithm;
  if (a.stages < 2 || a.stages > kMostGroupedStages || a.wave.m > kMostGroups || a.wave.n != 1 ||
      a.warp_tile.k != 1 || a.warp_tile.n != a.tile.n) {
    return false;
  }
  if (is_weight(c)) return a.warp_tile.m % 64 == 0;
  return a.stages >= a.wave.m && a.warp_tile.m == a.tile.m && (a.tile.m == 64 || a.tile.m == 128);
}

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
    {[](const Case& c) { return c.algorithm.stages == 1 || is_wide_shape(c); },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "with 2 to {} stages grouped multiplies by wgmma: all columns, one product and 1 to {} "
           "warpgroups; by w, multiples of 64 rows; otherwise 64 or 128 results, a warp tile of "
           "all "
           "of them and no more warpgroups than stages; got {} stages, tile {}, wave {}, warp tile "
           "{} and {}",
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
// The stride of groups that is none of channels side by side; -1: there is none.
std::int64_t wrong_group_stride(const ConvProblem& p) {
  if (p.g == 1) return -1;
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
// The longest way from one place of an image to the next one, in elements.
std::int64_t longest_step(const ConvProblem& p) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (const ConvStrides& strides : {p.in_strides, p.out_strides}) {
      if (std::max(p.size[i], out_size(p)[i]) > 1) {
        most = std::max(most, strides[i + kGroupedStrideD] * p.stride[i]);
      }
    }
  }
  return most;
}
GroupedPlan plan_of(const GroupedAsk& x) {
  device::GroupedArguments arguments{};
  return grouped_plan(x.problem, x.algorithm, x.target, arguments);
}
double part_bytes(const GroupedPlan& plan) { return plan.part_bytes * plan.parts; }
double counter_bytes(const GroupedPlan& plan) {
  return plan.part_bytes == 0 ? 0 : plan.blocks / plan.parts * 4;
}

constexpr tile::Rule<GroupedAsk> kGroupedProblemRules[] = {
    {[](const GroupedAsk& x) {
       const ConvProblem& p = x.problem;
       return p.n >= 1 && std::max(p.c, p.k) > p.g;
     },
     [](const GroupedAsk& x) {
       return fmt::format(
           "grouped needs an image and two channels of x or y in each group, got n={}, c={}, k={} "
           "and g={}",
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
    {[](const GroupedAsk& x) {
       return grouped_shape(x.problem.direction, x.algorithm).joined == 1 ||
              grouped_product(x.problem).columns <= 8;
     },
     [](const GroupedAsk& x) {
       return fmt::format(
           "a warp has two products of 8 columns, which must be all columns of a product, got {}",
           grouped_product(x.problem).columns);
     }},
    {[](const GroupedAsk& x) { return wrong_group_stride(x.problem) < 0; },
     [](const GroupedAsk& x) {
       const ConvProblem& p = x.problem;
       return fmt::format(
           "grouped needs the channels of all groups side by side, {} and {} in a group, got a "
           "stride of {}",
           p.c / p.g, p.k / p.g, wrong_group_stride(p));
     }},
    {[](const GroupedAsk& x) { return grouped_fits(x.problem); },
     [](const GroupedAsk& x) {
       return fmt::format(
           "grouped has room for {} taps and {} residues of a gradient by x, got {:.0f} and {:.0f}",
           device::kMostGroupedTaps, device::kMostGroupedClasses, grouped_taps(x.problem),
           grouped_classes(x.problem));
     }},
    {[](const GroupedAsk& x) { return largest_size(x.problem) <= kMostGroupedSize; },
     [](const GroupedAsk& x) {
       return fmt::format("grouped counts images, channels and places up to {}, got {}",
                          kMostGroupedSize, largest_size(x.problem));
     }},
    {[](const GroupedAsk& x) { return longest_step(x.problem) <= kMostStep; },
     [](const GroupedAsk& x) {
       return fmt::format("grouped steps from place to place by up to {} elements, got {}",
                          kMostStep, longest_step(x.problem));
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
              part_bytes(plan) <= kMostPartBytes;
     },
     [](const GroupedAsk& x) {
       const GroupedPlan plan = plan_of(x);
       return fmt::format(
           "grouped counts blocks and tiles up to {:.0f} and keeps at most {:.0f} bytes of sums, "
           "got "
           "{:.0f}, {:.0f} and {:.0f}",
           kMostGroupedBlocks, kMostPartBytes, plan.blocks, plan.tiles, part_bytes(plan));
     }},
    {[](const GroupedAsk& x) { return counter_bytes(plan_of(x)) <= device::kCounterBytes; },
     [](const GroupedAsk& x) {
       return fmt::format("grouped has {} bytes of counters for blocks that share sums, got {:.0f}",
                          device::kCounterBytes, counter_bytes(plan_of(x)));
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
// The channels and columns of a product, and how many products there are.
struct GroupedSizes {
  int channels, columns;
  bool one_product;
};
// Products of a block: as many as make a place 32 to 128 bytes long.
std::vector<int> product_counts(const GroupedSizes& of, int columns) {
  std::vector<int> counts;
  for (const int count : {1, 2, 4, 8}) {
    const bool is_short = count < 8 && count * of.channels < 16 && !of.one_product;
    const bool is_wide = count > 1 && count * std::max(of.channels, columns) > kMostTogether;
    if (is_short || is_wide || (of.one_product && count > 1)) continue;
    counts.push_back(count);
  }
  return counts;
}

void add_image_kernels(const GroupedSizes& of, std::vector<Algorithm>& all) {
  const auto [channels, columns, one_product] = of;
  for (const int own : column_counts(columns)) {
    const int width = warp_columns_of(own, 64);
    if (width == 0) continue;
    const int rows = 32;
    for (const int products : product_counts(of, own)) {
      const int joined = own == 8 && products % 2 == 0 ? 2 : 1;
      for (const int results : {64, 128, 256}) {
        const int down = std::min(results / rows, 4);
        const int across = std::min(products * own / width / joined, 8 / down);
        all.push_back(grouped_algorithm({results, own, channels}, {down, across, 1},
                                        {rows, width, products}));
      }
    }
  }
}

constexpr int kLeastWide = 40;  // channels; fewer leave wgmma mostly idle

void add_wide_kernels(const GroupedSizes& of, std::vector<Algorithm>& all) {
  const auto [channels, columns, one_product] = of;
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

void add_weight_kernels(const GroupedSizes& of, int taps, std::vector<Algorithm>& all) {
  const auto [channels, columns, one_product] = of;
  const int blocks = static_cast<int>(tile::ceil_div(std::int64_t{taps} * channels, 16));
  for (const int own : column_counts(columns)) {
    const int widest = warp_columns_of(own, 56);
    for (int width = widest; width >= 8 && width >= widest / 2; width = width / 16 * 8) {
      if (own % width != 0) continue;
      const int most = std::min(9, kMostWeightSums / (width / 2));
      const auto parts = static_cast<int>(tile::ceil_div(blocks, most));
      const auto rows = static_cast<int>(tile::ceil_div(blocks, parts)) * 16;
      for (const int products : product_counts(of, own)) {
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

// By wgmma three warpgroups share the rows of a block evenly.
void add_wide_weight_kernels(const GroupedSizes& of, int taps, std::vector<Algorithm>& all) {
  const auto [channels, columns, one_product] = of;
  if (channels < kLeastWide) return;
  const auto blocks = static_cast<int>(taps * tile::ceil_div(channels, 64));
  for (const int own : column_counts(columns)) {
    const int most = std::min(kMostWeightSums / (own / 2), 8);
    const auto rounds = static_cast<int>(tile::ceil_div(blocks, std::int64_t{most} * kMostGroups));
    const auto each = static_cast<int>(tile::ceil_div(blocks, std::int64_t{rounds} * kMostGroups));
    for (const int results : {64, 112, 208}) {
      for (const int stages : {2, 3}) {
        Algorithm a =
            grouped_algorithm({results, own, channels}, {kMostGroups, 1, 1}, {each * 64, own, 1});
        a.stages = stages;
        all.push_back(a);
      }
    }
  }
}

// Channels of x and y in the groups of networks; algorithms_for() makes those of a problem.
std::vector<Algorithm> grouped_algorithms(const Target&) {
  std::vector<Algorithm> all;
  for (const int channels : {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128}) {
    const GroupedSizes of = {channels, channels, false};
    add_image_kernels(of, all);
    add_wide_kernels(of, all);
    add_weight_kernels(of, kTapsOfLists, all);
    add_wide_weight_kernels(of, kTapsOfLists, all);
  }
  return all;
}

// Dense layers whose image tmaws reads once for each tap, by lines that are mostly empty, or by
// many taps.
bool is_narrow(const ConvProblem& p, const GroupedProduct& product) {
  constexpr int kMostNarrow = 112;  // channels
  const bool is_aligned = product.depth % 8 == 0 && product.columns % 8 == 0;
  if (grouped_taps(p) > 1) return is_aligned && product.depth <= kMostNarrow;
  // tmaws would store such pixels element by element.
  return p.direction == ConvDirection::backward_data && product.columns % 8 != 0;
}

std::vector<Algorithm> grouped_for(const ConvProblem& p, const Target& target) {
  if (!grouped_fits(p)) return {};
  const GroupedProduct product = grouped_product(p);
  if (product.depth > kMostChannels || (p.g < 2 && !is_narrow(p, product))) return {};
  // tmaws reads wide groups of whole tiles where they lie, at a better rate.
  constexpr int kWhole = 64;
  if (product.depth >= 2 * kWhole && product.depth % kWhole == 0 && product.columns % kWhole == 0) {
    return {};
  }
  const GroupedSizes of = {
      up_to_8(product.depth),
      up_to_8(std::min<std::int64_t>(product.columns, std::int64_t{4} * kMostGroupedColumns)),
      product.products == 1};
  std::vector<Algorithm> all;
  if (p.direction == ConvDirection::backward_weight) {
    add_weight_kernels(of, static_cast<int>(grouped_taps(p)), all);
    add_wide_weight_kernels(of, static_cast<int>(grouped_taps(p)), all);
  } else {
    add_image_kernels(of, all);
    add_wide_kernels(of, all);
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
  using tile::WgmmaFrom;
  const tile::Wgmma instruction = {
      s.in, s.in, shape.columns, shape.by_weight ? WgmmaFrom::row_lines : WgmmaFrom::k_lines,
      shape.by_data || shape.by_weight ? WgmmaFrom::row_lines : WgmmaFrom::k_lines};
  return tile::wgmma_text({&instruction, 1});
}

Source emit_grouped(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const GroupedShape shape = grouped_shape(s.direction, spec.algorithm);
  const int threads = shape.threads();
  const std::array<tile::GpuEntry, 1> entries = {
      {{"", "run", blocks_sharing(s, spec.algorithm, target)}}};
  const std::string config =
      config_text(spec, "tf32") + fmt::format("  static constexpr int kThreads = {};\n", threads);
  const std::string before = shape.is_wide() ? instruction_text(s, shape) : std::string();
  return tile::cuda_source(
      spec, kAbi, {"conv/grouped_conv.h", "GroupedConv", "GroupedArguments", config, before},
      threads, entries);
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
