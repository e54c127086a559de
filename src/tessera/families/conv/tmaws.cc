// The tmaws kernels: which there are, which problems they serve, and their text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tessera/device/conv.h"
#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::conv {
namespace {

constexpr int kMaxStages = 9;
constexpr int kMostConsumers = 3;
constexpr int kMostOfConsumer = 128;  // rows; listed kernels have no more
constexpr int kMaxSlices = 128;
constexpr int kInstructionK = 16;
constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1024;  // leaves room for a tile
constexpr std::int64_t kMaxStep = 8;  // of the copy engine from a pixel to the next one
constexpr std::int64_t kMostCounters = device::kCounterBytes / 4;
constexpr std::int64_t kMaxPartialBytes = std::int64_t{1} << 30;

// ---- legality ----

int column_unit(const Case& c) {
  return c.signature.direction == ConvDirection::backward_weight ? kTmawsDepth : kInstructionK;
}
bool is_16_bit(DType dtype) { return dtype == DType::fp16 || dtype == DType::bf16; }
std::int64_t shared_bytes(const ConvSignature& s, const Algorithm& a) {
  return tile::shared_memory(tmaws_product(s), a).all;
}

constexpr tile::Rule<Case> kTmawsRules[] = {
    {[](const Case& c) { return c.algorithm.repack || c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format("tmaws without repack reads channels last (nhwgc), got {}",
                          to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const tile::Product x = tmaws_product(c.signature);
       return x.a == x.b && is_16_bit(x.a);
     },
     [](const Case& c) {
       const tile::Product x = tmaws_product(c.signature);
       return fmt::format("tmaws multiplies fp16 by fp16 or bf16 by bf16, got {} by {}",
                          to_string(x.a), to_string(x.b));
     }},
    tile::kRowOf<Case, tile::kTmawsConsumers>,
    tile::kRowOf<Case, tile::kTmawsSchedulers>,
    tile::kRowOf<Case, tile::kTmawsPingpong>,
    {[](const Case& c) {
       const int n = c.algorithm.tile.n;
       return n >= 1 && n <= tile::kWgmmaColumns && n % column_unit(c) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_n must be a multiple of {} up to {} with {}, got {}",
                          column_unit(c), tile::kWgmmaColumns, to_string(c.signature.direction),
                          c.algorithm.tile.n);
     }},
    {[](const Case& c) { return c.algorithm.tile.k == kTmawsDepth; },
     [](const Case& c) {
       return fmt::format("tile_k must be {} ({} bytes), got {}", kTmawsDepth,
                          tile::kTmawsLineBytes, c.algorithm.tile.k);
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m >= 1 && t.m <= tile::kWgmmaColumns &&
              tile::tmaws_store(c.algorithm).row_blocks >= 1;
     },
     [](const Case& c) {
       return fmt::format("tile_m must be a multiple of {} rows of its consumers up to {}, got {}",
                          device::kWgmmaRows * tile::tmaws_consumers(c.algorithm),
                          tile::kWgmmaColumns, c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       return c.algorithm.warp_tile ==
              Shape3{device::kWgmmaRows, c.algorithm.tile.n, kInstructionK};
     },
     [](const Case& c) {
       return fmt::format("the warp tile is one wgmma: {}x{}x{}, got {}", device::kWgmmaRows,
                          c.algorithm.tile.n, kInstructionK, to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       return tile::tmaws_accumulators(c.algorithm) <= tile::kTmawsAccumulators;
     },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread, at most {} fit",
                          tile::tmaws_accumulators(c.algorithm), tile::kTmawsAccumulators);
     }},
    tile::kRowOf<Case, tile::kTmawsColumnsOf3>,
    {[](const Case& c) { return c.algorithm.stages >= 2 && c.algorithm.stages <= kMaxStages; },
     [](const Case& c) {
       return fmt::format("stages must be between 2 and {}, got {}", kMaxStages,
                          c.algorithm.stages);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.splits == 1 && a.cluster_m == 1 && a.cluster_n == 1 && !a.swap_ab &&
              a.store == Store::standard;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "convolutions have splits=1, a 1x1 cluster, swap_ab=0 and the standard store, got "
           "splits={}, a {}x{} cluster, swap_ab={} and {}",
           a.splits, a.cluster_m, a.cluster_n, a.swap_ab ? 1 : 0, to_string(a.store));
     }},
    {[](const Case& c) {
       return !c.algorithm.repack || c.algorithm.slices == 1 ||
              c.signature.direction == ConvDirection::backward_weight;
     },
     [](const Case& c) {
       return fmt::format("repack takes slices with backward_weight only, got slices={} with {}",
                          c.algorithm.slices, to_string(c.signature.direction));
     }},
    {[](const Case& c) { return c.algorithm.slices >= 1 && c.algorithm.slices <= kMaxSlices; },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMaxSlices,
                          c.algorithm.slices);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.split_k == (a.slices > 1 ? SplitK::ordered : SplitK::none) &&
              (a.slices == 1 || a.scheduler == Scheduler::cooperative);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "split_k is ordered and the scheduler cooperative with slices, split_k is none without, "
           "got slices={}, {} and {}",
           a.slices, to_string(a.split_k), to_string(a.scheduler));
     }},
    {[](const Case& c) {
       return shared_bytes(c.signature, c.algorithm) <= c.target.shared_memory_bytes;
     },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory ({} stages and the rest), {} has {}",
                          shared_bytes(c.signature, c.algorithm), c.algorithm.stages, c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- problems ----

struct Ask {
  const Algorithm& algorithm;
  const ConvProblem& problem;  // with repack: as the main loop sees it
  const TmawsPlan& plan;
  bool pixel_by_pixel;  // how results are stored
};

bool is_data(const Ask& x) { return x.problem.direction == ConvDirection::backward_data; }
bool is_weight(const Ask& x) { return x.problem.direction == ConvDirection::backward_weight; }
bool repacks(const Ask& x) { return x.algorithm.repack; }
bool meets(const Ask& x) { return x.algorithm.slices > 1 && !repacks(x); }
bool keeps_sums(const Ask& x) { return x.algorithm.slices > 1 || (repacks(x) && is_weight(x)); }

int bits_of(const Ask& x) { return place_bits(x.plan.dims); }

// The first value that the copy engine cannot take, or 0: corners, then distances of taps.
std::int64_t wrong_corner(const Ask& x) {
  const std::int64_t most = std::int64_t{1} << (bits_of(x) - 1);
  for (const TmawsClass& c : x.plan.classes) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.plan.dims); ++i) {
      for (const std::int64_t corner : {c.low[i], c.high[i]}) {
        if (corner < -most || corner >= most) return corner;
      }
    }
  }
  return 0;
}
std::int64_t widest_filter(const Ask& x) {
  std::int64_t most = 0;
  for (const TmawsClass& c : x.plan.classes) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.plan.dims); ++i) {
      most = std::max(most, (c.taps[i] - 1) * x.plan.tap_step[i]);
    }
  }
  return most;
}

std::optional<std::int64_t> first_wrong_stride(const Ask& x) {
  const ConvProblem& p = x.problem;
  const bool forward = !is_data(x) && !is_weight(x);
  if (!is_weight(x)) {
    if (p.k > 1 && !fits_stride(p.weight_strides[1], p.weight)) return p.weight_strides[1];
    const bool has_taps = p.filter[0] * p.filter[1] * p.filter[2] > 1;
    if (has_taps && !fits_stride(x.plan.tap_distance, p.weight)) return x.plan.tap_distance;
  }
  const std::optional<std::int64_t> in = wrong_stride(p.in_strides, p.size, p.n, p.in);
  if (in || forward) return in;
  return wrong_stride(p.out_strides, out_size(p), p.n, p.out);
}

// Channels of all groups side by side, where a window spans all groups.
bool groups_adjoin(const Ask& x) {
  const ConvProblem& p = x.problem;
  if (p.g == 1 || repacks(x)) return true;
  const bool x_adjoins = p.in_strides[1] == p.c / p.g;
  const bool y_adjoins = p.out_strides[1] == p.k / p.g;
  const bool w_adjoins = p.weight_strides[0] == p.k / p.g * p.weight_strides[1];
  if (is_weight(x)) return x_adjoins && y_adjoins;
  return w_adjoins && (is_data(x) ? x_adjoins && y_adjoins : x_adjoins);
}

std::int64_t partial_bytes(const Ask& x) {
  const std::int64_t pitch = (x.plan.columns + 3) / 4 * 4;
  const double bytes =
      4.0 * double(x.plan.batch) * double(x.plan.rows) * double(pitch) * x.algorithm.slices;
  return bytes < 9e18 ? static_cast<std::int64_t>(bytes) : kMaxRows * kMaxRows;
}

// Each consumer counts the slices of its part of a tile.
std::int64_t counters(const Ask& x) { return x.plan.tiles * x.algorithm.wave.m; }

bool is_short(const Ask& x) {
  const ConvProblem& p = x.problem;
  for (const std::int64_t size : {x.plan.rows, x.plan.columns, p.c, p.k}) {
    if (size > kMaxRows) return false;
  }
  return x.plan.tiles <= kMaxRows / x.algorithm.slices;
}

constexpr tile::Rule<Ask> kProblemRules[] = {
    {[](const Ask& x) { return x.problem.n > 0; },
     [](const Ask&) { return std::string("tmaws needs n >= 1, got 0"); }},
    {[](const Ask& x) {
       const ConvProblem& p = x.problem;
       return repacks(x) || p.g == 1 ||
              (p.c / p.g % kTmawsDepth == 0 && p.k / p.g % kTmawsDepth == 0);
     },
     [](const Ask& x) {
       const ConvProblem& p = x.problem;
       return fmt::format(
           "tmaws needs one group, or c / g and k / g that are multiples of {}, got {} groups of "
           "{} and {}",
           kTmawsDepth, p.g, p.c / p.g, p.k / p.g);
     }},
    {groups_adjoin,
     [](const Ask& x) {
       const ConvProblem& p = x.problem;
       return fmt::format(
           "tmaws needs groups whose channels adjoin, got in_stride_g {}, weight_stride_g {} and "
           "out_stride_g {}",
           p.in_strides[1], p.weight_strides[0], p.out_strides[1]);
     }},
    {[](const Ask& x) { return x.plan.num_classes <= device::kMostClasses; },
     [](const Ask& x) {
       return fmt::format("tmaws serves strides of at most {} residues, got {}",
                          device::kMostClasses, x.plan.num_classes);
     }},
    {[](const Ask& x) { return x.plan.tap_distance > 0; },
     [](const Ask& x) {
       const ConvStrides& w = x.problem.weight_strides;
       return fmt::format(
           "tmaws needs taps that lie at one distance, got weight_stride_x {}, weight_stride_y {} "
           "and weight_stride_z {}",
           w[5], w[4], w[3]);
     }},
    {[](const Ask& x) { return x.plan.y_distance > 0 || is_data(x) || x.pixel_by_pixel; },
     [](const Ask& x) {
       const ConvStrides& y = x.problem.out_strides;
       return fmt::format(
           "tmaws needs pixels of y that lie at one distance, got out_stride_w {}, out_stride_h "
           "{}, out_stride_d {} and out_stride_n {}",
           y[5], y[4], y[3], y[0]);
     }},
    {[](const Ask& x) { return repacks(x) || !first_wrong_stride(x); },
     [](const Ask& x) {
       return fmt::format(
           "tmaws needs strides of multiples of {} bytes above 0 and below 2^40, got {} elements",
           tile::kTmaBytes, *first_wrong_stride(x));
     }},
    {[](const Ask& x) { return is_short(x); },
     [](const Ask& x) {
       return fmt::format("tmaws counts rows, columns and tiles up to {}, got {}, {} and {}",
                          kMaxRows, x.plan.rows, x.plan.columns, x.plan.tiles);
     }},
    {[](const Ask& x) {
       return *std::max_element(x.plan.pixel_step.begin(), x.plan.pixel_step.end()) <= kMaxStep;
     },
     [](const Ask& x) {
       return fmt::format("the copy engine steps over at most {} pixels, got {}", kMaxStep,
                          *std::max_element(x.plan.pixel_step.begin(), x.plan.pixel_step.end()));
     }},
    {[](const Ask& x) { return wrong_corner(x) == 0; },
     [](const Ask& x) {
       const std::int64_t most = std::int64_t{1} << (bits_of(x) - 1);
       return fmt::format(
           "the copy engine's boxes begin and end {} before to {} behind the image's borders in {} "
           "dimensions, got {}",
           most, most - 1, x.plan.dims, wrong_corner(x));
     }},
    {[](const Ask& x) { return widest_filter(x) < (std::int64_t{1} << bits_of(x)); },
     [](const Ask& x) {
       return fmt::format(
           "the copy engine moves taps by at most {} pixels in {} dimensions, got {}",
           (std::int64_t{1} << bits_of(x)) - 1, x.plan.dims, widest_filter(x));
     }},
    {[](const Ask& x) {
       return x.algorithm.slices == 1 || x.plan.classes[0].steps >= x.algorithm.slices;
     },
     [](const Ask& x) {
       return fmt::format("slices need a step of {} each, got {} slices of {} steps", kTmawsDepth,
                          x.algorithm.slices, x.plan.classes[0].steps);
     }},
    {[](const Ask& x) { return x.algorithm.slices == 1 || x.plan.classes.size() == 1; },
     [](const Ask& x) {
       return fmt::format("slices need strides of 1 residue, got {}", x.plan.classes.size());
     }},
    {[](const Ask& x) { return x.algorithm.slices == 1 || x.plan.ld > 0; },
     [](const Ask& x) {
       const ConvStrides& s = x.problem.in_strides;
       return fmt::format(
           "slices need pixels of x that lie at one distance, got in_stride_w {}, in_stride_h {}, "
           "in_stride_d {} and in_stride_n {}",
           s[5], s[4], s[3], s[0]);
     }},
    {[](const Ask& x) { return !meets(x) || counters(x) <= kMostCounters; },
     [](const Ask& x) {
       return fmt::format(
           "slices take a counter for each of {} consumers of a tile, {} at most, got {} tiles",
           x.algorithm.wave.m, kMostCounters, x.plan.tiles);
     }},
    {[](const Ask& x) { return !keeps_sums(x) || partial_bytes(x) <= kMaxPartialBytes; },
     [](const Ask& x) {
       return fmt::format("slices keep at most {} bytes of sums, got {}", kMaxPartialBytes,
                          partial_bytes(x));
     }},
};

Verdict tmaws_serves(const KernelSpec& spec, const ConvProblem& given, const Target&) {
  const Algorithm& a = spec.algorithm;
  if (a.repack && given.n > 0) {
    if (std::string why = unrepackable(given); !why.empty()) return {why};
  }
  const Repacked repacked = a.repack ? repack(given, {}, 0) : Repacked{};
  const ConvProblem& p = a.repack ? repacked.problem : given;
  const auto& s = std::get<ConvSignature>(spec.signature);
  const TmawsPlan plan = tmaws_plan(p, a.repack ? form_of(s, a, repacked) : form_of(s, a));
  const Ask x = {a, p, plan, a.repack && given.layout == ConvLayout::nchw};
  return {tile::broken_sentence(kProblemRules, x)};
}

// ---- the space ----

// As many stages as fit beside the store areas, where Q's columns take whole slabs or not.
int deepest(const Algorithm& a, bool slabs, const Target& target) {
  const DType dtype = DType::bf16;
  const Epilogue none;
  const tile::Product x = {dtype, dtype, dtype, dtype, true, !slabs, false, none};
  Algorithm deeper = a;
  deeper.stages = kMaxStages;
  while (deeper.stages > 2 && tile::shared_memory(x, deeper).all > target.shared_memory_bytes) {
    --deeper.stages;
  }
  return deeper.stages;
}

constexpr int kSlices[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96};
// Kernels with repack come in fewer numbers of slices, because fewer problems need them.
bool has_repack_variant(int slices) { return (slices & (slices - 1)) == 0 || slices == 48; }

std::vector<Algorithm> tmaws_algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Algorithm> all;
  const auto add = [&](Algorithm a) {
    const std::array<int, 2> depths = {deepest(a, false, target), deepest(a, true, target)};
    for (std::size_t i = 0; i < (depths[0] == depths[1] ? 1U : 2U); ++i) {
      a.stages = depths[i];
      for (const int slices : kSlices) {
        if (slices > 1 && a.scheduler != Scheduler::cooperative) break;
        a.slices = slices;
        a.split_k = slices > 1 ? SplitK::ordered : SplitK::none;
        a.repack = false;
        all.push_back(a);
        a.repack = true;
        if (has_repack_variant(slices)) all.push_back(a);
      }
    }
  };
  for (const Shape3& tile : tile::in_name_order(space.tiles)) {
    for (const Shape3& wave : tile::in_name_order(space.waves)) {
      for (const Scheduler scheduler : space.schedulers) {
        Algorithm a = {.pipeline = Pipeline::tmaws,
                       .tile = tile,
                       .wave = wave,
                       .warp_tile = {device::kWgmmaRows, tile.n, kInstructionK},
                       .scheduler = scheduler};
        if (tile.k != kTmawsDepth || wave.n != 1 || wave.m > kMostConsumers) continue;
        if (tile.m > kMostOfConsumer * wave.m) continue;
        if (scheduler == Scheduler::pingpong && wave.m != 2) continue;
        if (tile::tmaws_store(a).row_blocks >= 1 &&
            tile::tmaws_accumulators(a) <= tile::kTmawsAccumulators)
          add(a);
      }
    }
  }
  return all;
}

// Gradients by w have few tiles and long sums: as many slices as give every unit one of them.
std::vector<Algorithm> tmaws_for(const ConvProblem& p, const Target& target) {
  std::vector<Algorithm> all = tmaws_algorithms(target);
  if (p.direction != ConvDirection::backward_weight || p.n == 0) return all;
  const std::size_t listed = all.size();
  for (std::size_t i = 0; i < listed; ++i) {
    Algorithm a = all[i];
    if (a.slices != 2 || a.repack) continue;
    const TmawsPlan plan = tmaws_plan(p, {.tile = a.tile, .keeps_sums = true});
    const std::int64_t slices = std::min<std::int64_t>(
        {target.units / std::max<std::int64_t>(plan.tiles, 1), plan.classes[0].steps, kMaxSlices});
    if (slices < 2 || std::ranges::count(kSlices, slices) > 0) continue;
    a.slices = static_cast<int>(slices);
    all.push_back(a);
  }
  return all;
}

// ---- text ----

std::string wgmma_text(const ConvSignature& s, const Algorithm& a) {
  const tile::Product x = tmaws_product(s);
  const auto from = [](bool along_k) {
    return along_k ? tile::WgmmaFrom::k_lines : tile::WgmmaFrom::row_lines;
  };
  const tile::Wgmma instruction = {x.a, x.b, a.tile.n, from(x.a_k_contiguous),
                                   from(x.b_k_contiguous)};
  return tile::wgmma_text(std::span(&instruction, 1)) + "\n";
}

Source emit_tmaws(const KernelSpec& spec, const Target&) {
  constexpr std::array<tile::GpuEntry, 1> kEntries = {{{"", "run"}}};
  constexpr std::array<tile::GpuEntry, 3> kRepackEntries = {
      {{"", "run"}, {"_prepare", "run_prepare"}, {"_sum", "run_sum"}}};
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::string config =
      config_text(spec, "tf32") + fmt::format(
                                      "  static constexpr bool kPingpong = {};\n"
                                      "  static constexpr int kSharedBytes = {};\n",
                                      a.scheduler == Scheduler::pingpong, shared_bytes(s, a));
  const int threads = device::tma_threads(a.wave.m);
  const std::string before = wgmma_text(s, a);
  if (!a.repack) {
    return tile::cuda_source(spec, kAbi,
                             {"conv/tma_conv.h", "TmaConv", "CudaConvArguments", config, before},
                             threads, kEntries);
  }
  const bool sums = s.direction == ConvDirection::backward_weight;
  return tile::cuda_source(
      spec, kAbi, {"conv/repack_conv.h", "RepackConv", "CudaRepackArguments", config, before},
      threads, std::span(kRepackEntries).first(sums ? 3 : 2));
}

}  // namespace

const Way kTmaws = {.backend = "cuda",
                    .pipeline = Pipeline::tmaws,
                    .rules = kTmawsRules,
                    .serves = tmaws_serves,
                    .algorithms = tmaws_algorithms,
                    .emit = emit_tmaws,
                    .bind = bind_tmaws,
                    .estimate = estimate_tmaws,
                    .own = {.for_problem = tmaws_for}};

}  // namespace tessera::conv
