// The depthwise kernels of GPUs: which there are, which problems they serve, their text, launches
// and predicted times. What a tile means: device/cuda/conv/depthwise_conv.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/cuda/conv/depthwise_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

constexpr int kDepthwiseThreads = 128;
constexpr Shape3 kDepthwiseWave = {2, 2, 1};
constexpr Shape3 kAnyFilter = {1, 1, 0};  // the thread tile of kernels that take any filter
constexpr int kMostLines = 8;             // of a thread
constexpr int kMostTaps = 9;
constexpr int kMostStride = 2;
constexpr int kMostStaged = 49152;   // bytes of weights in a block's shared memory
constexpr int kMostRegisters = 232;  // for sums and elements of a thread, without spills
constexpr int kMostDepthwiseSlices = 256;
constexpr std::int64_t kMostStride32 = (std::int64_t{1} << 29) - 1;  // 2^31 bytes of fp32
constexpr std::int64_t kMostPlaces = (std::int64_t{1} << 30) - 1;

// ---- a thread's patch ----

bool gives_x(ConvDirection d) { return d == ConvDirection::backward_data; }
bool gives_w(ConvDirection d) { return d == ConvDirection::backward_weight; }
bool takes_any(const Algorithm& a) { return a.warp_tile.k == 0; }
int results_of(const Algorithm& a) { return a.warp_tile.m * a.warp_tile.n; }
// Channels of a thread; 0 where the tile is no whole number of them.
int channels_of(const Algorithm& a) {
  const std::int64_t threads = std::int64_t{kDepthwiseThreads} * results_of(a);
  const std::int64_t all = std::int64_t{a.tile.m} * a.tile.n;
  if (threads < 1 || all % threads != 0) return 0;
  return all / threads > 8 ? 0 : static_cast<int>(all / threads);
}
// Lines or columns of the image that so many results meet.
int met_by(ConvDirection d, const Algorithm& a, int results) {
  if (takes_any(a)) return 1;
  if (!gives_x(d)) return (results - 1) * a.tile.k + a.warp_tile.k;
  return (a.warp_tile.k - 1) / a.tile.k + (results - 1) / a.tile.k + 1;
}
int registers_of(ConvDirection d, const Algorithm& a) {
  const int columns = met_by(d, a, a.warp_tile.n);
  if (!gives_w(d) || takes_any(a)) return channels_of(a) * (results_of(a) + columns * 2);
  const int window = static_cast<int>(tile::ceil_div(a.warp_tile.k, a.tile.k));
  const int taps = a.warp_tile.k * a.warp_tile.k;
  return channels_of(a) * (taps + window * a.warp_tile.n + columns * (1 + a.tile.k));
}

// ---- legality ----

bool is_float(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

constexpr tile::Rule<Case> kDepthwiseRules[] = {
    {[](const Case& c) { return c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format(
           "depthwise reads vectors of channels, which lie side by side in nhwgc "
           "only, got {}",
           to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const ConvSignature& s = c.signature;
       return is_float(s.in) && is_float(s.weight) && is_float(s.out);
     },
     [](const Case& c) {
       const ConvSignature& s = c.signature;
       return fmt::format("depthwise takes fp32, fp16 and bf16, got in={}, weight={} and out={}",
                          to_string(s.in), to_string(s.weight), to_string(s.out));
     }},
    {[](const Case& c) { return c.algorithm.wave == kDepthwiseWave; },
     [](const Case& c) {
       return fmt::format("depthwise has 4 warps ({}), got {}", to_string(kDepthwiseWave),
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.warp_tile;
       return t.m >= 1 && t.m <= kMostLines && t.n >= 1 && t.n <= kMostLines && t.k >= 0 &&
              t.k <= kMostTaps;
     },
     [](const Case& c) {
       return fmt::format(
           "a thread has 1 to {} lines and columns and up to {} taps of a line, got {}", kMostLines,
           kMostTaps, to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       return !takes_any(c.algorithm) || (c.algorithm.warp_tile == kAnyFilter &&
                                          c.algorithm.tile.k == 0 && channels_of(c.algorithm) == 1);
     },
     [](const Case& c) {
       return fmt::format(
           "a kernel for any filter has warp tile {}, stride 0 and {} results a block, got {}, "
           "stride {} and {} x {} results",
           to_string(kAnyFilter), kDepthwiseThreads, to_string(c.algorithm.warp_tile),
           c.algorithm.tile.k, c.algorithm.tile.m, c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       const int stride = c.algorithm.tile.k;
       return takes_any(c.algorithm) || (stride >= 1 && stride <= kMostStride);
     },
     [](const Case& c) {
       return fmt::format("tile_k is the stride, 1 to {}, got {}", kMostStride, c.algorithm.tile.k);
     }},
    {[](const Case& c) {
       const int channels = channels_of(c.algorithm);
       return takes_any(c.algorithm) || channels == 2 || channels == 4;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "tile_m x tile_n must be {} threads x {} x {} results x 2 or 4 channels, got {} x {}",
           kDepthwiseThreads, a.warp_tile.m, a.warp_tile.n, a.tile.m, a.tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.tile.n <= kDepthwiseThreads * channels_of(a) && a.tile.n % channels_of(a) == 0;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile_n must be a multiple of {} channels up to {}, got {}",
                          channels_of(a), kDepthwiseThreads * channels_of(a), a.tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !gives_x(c.signature.direction) || takes_any(a) ||
              (a.warp_tile.m % a.tile.k == 0 && a.warp_tile.n % a.tile.k == 0);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "lines and columns of a thread must be multiples of the stride {} with backward_data, "
           "got {} and {}",
           a.tile.k, a.warp_tile.m, a.warp_tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.warp_tile.k * a.warp_tile.k * a.tile.n * 4 <= kMostStaged;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("needs {} bytes of shared memory for weights, at most {} fit",
                          a.warp_tile.k * a.warp_tile.k * a.tile.n * 4, kMostStaged);
     }},
    {[](const Case& c) {
       return registers_of(c.signature.direction, c.algorithm) <= kMostRegisters;
     },
     [](const Case& c) {
       return fmt::format("needs {} registers a thread for sums and elements, at most {} fit",
                          registers_of(c.signature.direction, c.algorithm), kMostRegisters);
     }},
    {[](const Case& c) {
       const int slices = c.algorithm.slices;
       return slices >= 1 && slices <= (gives_w(c.signature.direction) ? kMostDepthwiseSlices : 1);
     },
     [](const Case& c) {
       const ConvDirection d = c.signature.direction;
       return fmt::format("slices must be between 1 and {} with {}, got {}",
                          gives_w(d) ? kMostDepthwiseSlices : 1, to_string(d), c.algorithm.slices);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.split_k == (a.slices > 1 ? SplitK::ordered : SplitK::none);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("split_k is ordered with slices and none without, got slices={} and {}",
                          a.slices, to_string(a.split_k));
     }},
};

// ---- the plan of a problem ----

struct DepthwisePlan {
  std::int64_t channels, vectors, channel_blocks, together;
  std::int64_t across, down, deep, patches;
  std::int64_t taps, blocks;
};

// A block has some vectors of channels, and as many patches as its threads then have room for. As
// few blocks of channels as leave few threads idle, so that vectors side by side stay together.
void share_channels(std::int64_t vectors, std::int64_t most, DepthwisePlan& plan) {
  constexpr std::int64_t kLeast = 16;  // vectors, so that a load reads whole sectors
  constexpr double kWorth = 1.05;
  double best = 0;
  const std::int64_t first = tile::ceil_div(vectors, most);
  for (std::int64_t blocks = first; blocks < first + 32; ++blocks) {
    const std::int64_t own = tile::ceil_div(vectors, blocks);
    if (blocks > first && own < kLeast) break;
    const std::int64_t together = kDepthwiseThreads / own;
    const double busy = double(vectors * together) / double(blocks);
    if (busy <= best * kWorth) continue;
    best = busy;
    plan.vectors = own, plan.channel_blocks = blocks, plan.together = together;
  }
}

DepthwisePlan depthwise_plan(const ConvProblem& p, const Algorithm& a) {
  const bool data = gives_x(p.direction);
  const Spatial size = data ? p.size : out_size(p);
  const auto patches = [&](std::size_t dim, int results) {
    const std::int64_t before = data && !takes_any(a) ? p.pad[dim] % a.tile.k : 0;
    return tile::ceil_div(size[dim] + before, results);
  };
  const int channels = std::max(channels_of(a), 1);
  DepthwisePlan plan{};
  plan.channels = data ? p.c : p.k;
  plan.across = patches(2, a.warp_tile.n);
  plan.down = patches(1, a.warp_tile.m);
  plan.deep = size[0];
  const double all = double(p.n) * double(plan.deep) * double(plan.down) * double(plan.across);
  const bool fits = all <= double(kMostPlaces);
  plan.patches = fits ? p.n * plan.deep * plan.down * plan.across : kMostPlaces + 1;
  plan.taps = p.filter[0] * p.filter[1] * p.filter[2];
  share_channels(tile::ceil_div(plan.channels, channels), a.tile.n / channels, plan);
  std::int64_t rows = tile::ceil_div(plan.patches, plan.together);
  if (gives_w(p.direction)) {
    const std::int64_t parts =
        takes_any(a) ? tile::ceil_div(plan.taps, plan.together) : p.filter[0];
    rows = parts * a.slices;
  }
  plan.blocks = rows * plan.channel_blocks;
  return plan;
}

// ---- problems ----

struct DepthwiseAsk {
  const Algorithm& algorithm;
  const ConvProblem& problem;
  const DepthwisePlan& plan;
};

std::int64_t largest_place(const ConvProblem& p) {
  std::int64_t most = 0;
  const Spatial out = out_size(p);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t right = std::max<std::int64_t>(p.pad_right[i], 0);
    most = std::max({most, p.size[i] + 2 * p.pad[i] + right, out[i] * p.stride[i],
                     p.filter[i] * p.dilation[i]});
  }
  return most;
}

// A stride of x or y that counts and is no multiple of a vector; 0: there is none.
std::int64_t wrong_vector(const DepthwiseAsk& x) {
  const ConvProblem& p = x.problem;
  const std::int64_t unit = channels_of(x.algorithm);
  const auto wrong = [&](const ConvStrides& s, const Spatial& size) -> std::int64_t {
    const std::pair<std::int64_t, std::int64_t> all[] = {
        {size[2], s[5]}, {size[1], s[4]}, {size[0], s[3]}, {p.n, s[0]}};
    for (const auto& [count, stride] : all) {
      if (count > 1 && stride % unit != 0) return stride;
    }
    return 0;
  };
  const std::int64_t of_x = wrong(p.in_strides, p.size);
  return of_x != 0 ? of_x : wrong(p.out_strides, out_size(p));
}

std::int64_t widest_stride(const ConvProblem& p) {
  const Spatial out = out_size(p);
  std::int64_t widest = 0;
  for (const std::size_t dim : {1U, 2U}) {
    if (p.size[dim] > 1) widest = std::max(widest, p.in_strides[dim + 3]);
    if (out[dim] > 1) widest = std::max(widest, p.out_strides[dim + 3]);
  }
  return widest;
}

bool is_any(const DepthwiseAsk& x) { return takes_any(x.algorithm); }

constexpr tile::Rule<DepthwiseAsk> kDepthwiseProblemRules[] = {
    {[](const DepthwiseAsk& x) { return x.problem.c == x.problem.g; },
     [](const DepthwiseAsk& x) {
       return fmt::format("depthwise needs one channel of x in each group, got c={} and g={}",
                          x.problem.c, x.problem.g);
     }},
    {[](const DepthwiseAsk& x) { return is_any(x) || x.problem.k == x.problem.g; },
     [](const DepthwiseAsk& x) {
       return fmt::format("this kernel needs one channel of y in each group, got k={} and g={}",
                          x.problem.k, x.problem.g);
     }},
    {[](const DepthwiseAsk& x) {
       const Spatial& f = x.problem.filter;
       const std::int64_t taps = x.algorithm.warp_tile.k;
       return is_any(x) || (f[2] == taps && f[1] <= taps);
     },
     [](const DepthwiseAsk& x) {
       return fmt::format(
           "this kernel is for filters of {0} columns and at most {0} lines, got {1} "
           "and {2}",
           x.algorithm.warp_tile.k, x.problem.filter[2], x.problem.filter[1]);
     }},
    {[](const DepthwiseAsk& x) {
       const ConvProblem& p = x.problem;
       const std::int64_t stride = x.algorithm.tile.k;
       return is_any(x) || (p.stride[2] == stride && (p.ndim == 1 || p.stride[1] == stride));
     },
     [](const DepthwiseAsk& x) {
       return fmt::format("this kernel is for strides of {}, got stride_h {} and stride_w {}",
                          x.algorithm.tile.k, x.problem.stride[1], x.problem.stride[2]);
     }},
    {[](const DepthwiseAsk& x) {
       return is_any(x) || (x.problem.dilation[1] == 1 && x.problem.dilation[2] == 1);
     },
     [](const DepthwiseAsk& x) {
       return fmt::format(
           "this kernel is for taps side by side, got dilation_h {} and dilation_w "
           "{}",
           x.problem.dilation[1], x.problem.dilation[2]);
     }},
    {[](const DepthwiseAsk& x) { return x.plan.channels % channels_of(x.algorithm) == 0; },
     [](const DepthwiseAsk& x) {
       return fmt::format("this kernel has vectors of {} channels, got {} channels",
                          channels_of(x.algorithm), x.plan.channels);
     }},
    {[](const DepthwiseAsk& x) {
       const ConvProblem& p = x.problem;
       return is_any(x) || (p.in_strides[1] == 1 && p.out_strides[1] == 1);
     },
     [](const DepthwiseAsk& x) {
       return fmt::format(
           "this kernel needs channels side by side, got in_stride_g {} and out_stride_g {}",
           x.problem.in_strides[1], x.problem.out_strides[1]);
     }},
    {[](const DepthwiseAsk& x) { return wrong_vector(x) == 0; },
     [](const DepthwiseAsk& x) {
       return fmt::format("this kernel needs strides of multiples of {} elements, got {}",
                          channels_of(x.algorithm), wrong_vector(x));
     }},
    {[](const DepthwiseAsk& x) { return largest_place(x.problem) <= kMostPlaces; },
     [](const DepthwiseAsk& x) {
       return fmt::format("depthwise counts places up to {}, got {}", kMostPlaces,
                          largest_place(x.problem));
     }},
    {[](const DepthwiseAsk& x) { return is_any(x) || widest_stride(x.problem) <= kMostStride32; },
     [](const DepthwiseAsk& x) {
       return fmt::format("this kernel needs lines and columns at most {} elements apart, got {}",
                          kMostStride32, widest_stride(x.problem));
     }},
    {[](const DepthwiseAsk& x) {
       return x.plan.patches <= kMostPlaces && x.plan.blocks <= kMostPlaces &&
              x.plan.channels <= kMostPlaces && x.plan.taps <= kMostPlaces;
     },
     [](const DepthwiseAsk& x) {
       return fmt::format(
           "depthwise counts patches, blocks, channels and taps up to {}, got {}, "
           "{}, {} and {}",
           kMostPlaces, x.plan.patches, x.plan.blocks, x.plan.channels, x.plan.taps);
     }},
    {[](const DepthwiseAsk& x) {
       return x.plan.patches >= x.algorithm.slices || x.algorithm.slices == 1;
     },
     [](const DepthwiseAsk& x) {
       return fmt::format("slices need a patch each, got {} slices of {} patches",
                          x.algorithm.slices, x.plan.patches);
     }},
};

Verdict depthwise_serves(const KernelSpec& spec, const ConvProblem& p, const Target&) {
  const DepthwisePlan plan = depthwise_plan(p, spec.algorithm);
  const DepthwiseAsk x = {spec.algorithm, p, plan};
  return {tile::broken_sentence(kDepthwiseProblemRules, x)};
}

// ---- the space ----

// A row of a target's tiles fits those threads whose channels come out as 2 or 4, or as one.
std::vector<Algorithm> depthwise_algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Algorithm> all;
  for (const Shape3& tile : tile::in_name_order(space.tiles)) {
    for (const Shape3& warp : tile::in_name_order(tile::warp_tiles_for(space, DType::fp32))) {
      Algorithm a = {
          .pipeline = Pipeline::depthwise, .tile = tile, .wave = kDepthwiseWave, .warp_tile = warp};
      const int channels = channels_of(a);
      if (takes_any(a) ? tile.k != 0 || channels != 1 : tile.k < 1 || tile.k > kMostStride) {
        continue;
      }
      if (!takes_any(a) && channels != 2 && channels != 4) continue;
      for (const int slices : {1, 4, 16, 64, 128, 256}) {
        a.slices = slices;
        a.split_k = slices > 1 ? SplitK::ordered : SplitK::none;
        all.push_back(a);
      }
    }
  }
  return all;
}

// ---- text and launches ----

// How many blocks of a kernel fit a unit without spilling a register, where the compiler would use
// more registers to no purpose.
int blocks_together(const KernelSpec& spec) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  if (gives_w(s.direction) || takes_any(spec.algorithm)) return 1;
  const DType image = gives_x(s.direction) ? s.out : s.in;
  const int needed = registers_of(s.direction, spec.algorithm);
  if (size_of(image) > 2 || needed > 136 || spec.algorithm.tile.k > 1) return 1;
  const int taps = spec.algorithm.warp_tile.k;
  const bool is_lean = needed <= 104 && num_ops(s.epilogue) < 2;
  return is_lean && taps > 3 && taps <= (gives_x(s.direction) ? 5 : 7) ? 4 : 3;
}

Source emit_depthwise(const KernelSpec& spec, const Target&) {
  const std::array<tile::GpuEntry, 2> entries = {
      {{"", "run", blocks_together(spec)}, {"_sum", "run_sum"}}};
  return tile::cuda_source(
      spec, kAbi,
      {"conv/depthwise_conv.h", "DepthwiseConv", "DepthwiseArguments", config_text(spec, "tf32")},
      kDepthwiseThreads, std::span(entries).first(spec.algorithm.slices > 1 ? 2 : 1));
}

void add_sum_step(const DepthwisePlan& plan, int slices, device::DepthwiseArguments& to,
                  Launch& launch) {
  constexpr std::int64_t kElements = kDepthwiseThreads / device::kDepthwiseLanes;
  const std::int64_t count = plan.taps * plan.channels;
  to.partial_sums = device::kCounterBytes;
  launch.workspace.bytes = static_cast<std::size_t>(device::kCounterBytes + count * 4 * slices);
  launch.workspace.address_offset = offsetof(device::DepthwiseArguments, workspace);
  launch.steps.push({.entry = 1,
                     .grid = {static_cast<unsigned>(tile::ceil_div(count, kElements)), 1, 1},
                     .block = {kDepthwiseThreads, 1, 1}});
}

// Kernels for any filter count elements in 64 bits by themselves.
void add_distances(const ConvProblem& p, const Algorithm& a, device::DepthwiseArguments& to) {
  if (takes_any(a)) return;
  const bool data = gives_x(p.direction);
  const ConvStrides& image = data ? p.out_strides : p.in_strides;
  const ConvStrides& other = data ? p.in_strides : p.out_strides;
  const int image_size = size_of(data ? p.out : p.in);
  const int other_size = size_of(data ? p.in : p.out);
  to.image_line = static_cast<int>(image[4]) * image_size;
  to.image_column = static_cast<int>(image[5]) * image_size;
  to.other_line = static_cast<int>(other[4]) * other_size;
  to.other_column = static_cast<int>(other[5]) * other_size;
}

Launch bind_depthwise(const KernelSpec& spec, const ConvProblem& p, const Target&,
                      const ConvOperands& o) {
  const DepthwisePlan plan = depthwise_plan(p, spec.algorithm);
  device::DepthwiseArguments to{};
  to.conv = arguments_of(p, o);
  to.channels = static_cast<int>(plan.channels);
  to.vectors = static_cast<int>(plan.vectors);
  to.channel_blocks = static_cast<int>(plan.channel_blocks);
  to.together = static_cast<int>(plan.together);
  to.across = static_cast<int>(plan.across);
  to.down = static_cast<int>(plan.down);
  to.deep = static_cast<int>(plan.deep);
  to.patches = static_cast<int>(plan.patches);
  to.taps = static_cast<int>(plan.taps);
  add_distances(p, spec.algorithm, to);
  Launch launch;
  launch.steps.push(
      {.grid = {static_cast<unsigned>(plan.blocks), 1, 1}, .block = {kDepthwiseThreads, 1, 1}});
  if (spec.algorithm.slices > 1) add_sum_step(plan, spec.algorithm.slices, to, launch);
  launch.arguments.set(to);
  return launch;
}

// ---- time ----

// Guesses: instructions besides products, cycles of a load that nothing hides, and so on.
constexpr double kIssued = 0.75;         // of the instructions that a unit could issue
constexpr double kPerLoad = 5;           // instructions to find, ask for and clear an element
constexpr double kPerStore = 8;          // for each pair of channels
constexpr double kStartCycles = 2500;    // of a block: its weights and its first line
constexpr double kLineCycles = 500;      // of a line that waits for memory
constexpr double kAnyInstructions = 40;  // for each product of a kernel for any filter
constexpr double kSumSeconds = 3e-6;     // of the second step
constexpr int kBesides = 40;             // registers for places and addresses

double lines_met(ConvDirection d, const Algorithm& a) { return met_by(d, a, a.warp_tile.m); }

// Instructions of a thread for one patch.
double patch_instructions(const ConvProblem& p, const Algorithm& a) {
  const double channels = channels_of(a);
  const double results = results_of(a) * channels;
  const double taps = double(p.filter[0] * p.filter[1] * p.filter[2]);
  const bool data = gives_x(p.direction);
  const double met = data ? taps / double(p.stride[0] * p.stride[1] * p.stride[2]) : taps;
  // A gradient by x adds up all results of its channel.
  if (takes_any(a)) {
    const double products = data ? taps * double(p.k) / double(p.c) : taps;
    return kAnyInstructions * (gives_w(p.direction) ? 1 : products);
  }
  const double loads =
      double(p.filter[0]) * lines_met(p.direction, a) * met_by(p.direction, a, a.warp_tile.n);
  const double other = gives_w(p.direction) ? results_of(a) : 0;
  const double stores = gives_w(p.direction) ? 0 : results / 2 * kPerStore;
  return results * met + (loads + other) * (kPerLoad + channels) + stores + 100;
}

Estimate estimate_depthwise(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                            int) {
  const Algorithm& a = spec.algorithm;
  const DepthwisePlan plan = depthwise_plan(p, a);
  const Problem problem = p;
  const double hertz = target.clock_ghz * 1e9;
  const bool weight = gives_w(p.direction);
  const int registers = std::min(registers_of(p.direction, a) + kBesides, 255);
  const double resident = std::max(
      1.0, std::floor(double(target.registers_per_unit) / (registers * kDepthwiseThreads)));
  const double by_thread =
      weight ? std::ceil(double(plan.patches) /
                         (a.slices * (takes_any(a) ? 1.0 : double(plan.together))))
             : 1;
  const double instructions = by_thread * patch_instructions(p, a);
  const double blocks = double(plan.blocks);
  // A unit issues for 4 warps, which are a block, in a cycle.
  const double issue = std::ceil(blocks / target.units) * instructions / kIssued;
  const double rounds = std::ceil(blocks / (target.units * resident));
  const double lines = lines_met(p.direction, a) * double(p.filter[0]);
  const double waits = rounds * (kStartCycles + by_thread * lines * kLineCycles);
  const double compute = std::max(issue + kStartCycles, waits) / hertz;
  const double asked = double(kDepthwiseThreads) * met_by(p.direction, a, a.warp_tile.n) *
                       channels_of(a) * size_of(p.in);
  const double speed = tile::gpu_bandwidth(target, blocks, kDepthwiseThreads, registers, asked);
  const double sums = 2.0 * a.slices * double(plan.taps) * double(plan.channels) * 4;
  const double second = a.slices == 1 ? 0 : kSumSeconds + sums / (2 * speed);
  Estimate total =
      tile::total_of(compute, bytes(problem) / speed, target.launch_us * 1e-6 + second);
  return total;
}

}  // namespace

const Way kDepthwiseCuda = {.backend = "cuda",
                            .pipeline = Pipeline::depthwise,
                            .rules = kDepthwiseRules,
                            .serves = depthwise_serves,
                            .algorithms = depthwise_algorithms,
                            .emit = emit_depthwise,
                            .bind = bind_depthwise,
                            .estimate = estimate_depthwise};

}  // namespace tessera::conv
