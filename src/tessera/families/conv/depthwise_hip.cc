// The depthwise kernels of AMD GPUs: which there are, which problems they serve, their text and
// predicted times. They run on the ordinary lanes; src/tessera/device/hip/conv/depthwise_conv.h
// says how.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tessera/families/conv/depthwise_hip_internal.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv::hip_depthwise {
namespace {

constexpr int kLanes = device::kHipDepthwiseLanes;
constexpr Shape3 kWave = {4, 1, 1};
constexpr int kMostWindow = 7;                // taps of a line that a kernel knows
constexpr double kMostBytes = 0x1p31 - 1024;  // that offsets count in 32 bits
constexpr double kMostRuns = 0x1p30;
constexpr std::int64_t kDword = 4;  // bytes

// ---- legality ----

bool is_any_of(int value, std::initializer_list<int> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}
bool is_lane_float(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}
bool has_any_filter(const Case& c) { return c.algorithm.warp_tile.k == 0; }
int lds_bytes_of(const Case& c) {
  const Algorithm& a = c.algorithm;
  const Shape s = hip_depthwise::shape_of(c.signature, a);
  const std::int64_t ndim = c.signature.ndim;
  const int lines = mfma::by_weight(c.signature)
                        ? s.runs
                        : device::hip_depthwise_taps(s.taps, static_cast<int>(ndim));
  return lines * a.tile.n * 4;
}

constexpr tile::Rule<Case> kHipDepthwiseRules[] = {
    {[](const Case& c) { return c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format(
           "depthwise reads vectors of channels, which lie side by side in nhwgc only, got {}",
           to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const ConvSignature& s = c.signature;
       return is_lane_float(s.in) && is_lane_float(s.weight) && is_lane_float(s.out);
     },
     [](const Case& c) {
       const ConvSignature& s = c.signature;
       return fmt::format("depthwise takes fp32, fp16 and bf16, got in={}, weight={} and out={}",
                          to_string(s.in), to_string(s.weight), to_string(s.out));
     }},
    {[](const Case& c) {
       const mfma::Types types = mfma::types_of(c.signature);
       return types.a == types.b;
     },
     [](const Case& c) {
       const mfma::Types types = mfma::types_of(c.signature);
       return fmt::format("depthwise multiplies two operands of one type, got {} and {}",
                          to_string(types.a), to_string(types.b));
     }},
    {[](const Case& c) { return c.algorithm.wave == kWave; },
     [](const Case& c) {
       return fmt::format("depthwise has 4 waves ({}), got {}", to_string(kWave),
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return c.algorithm.slices == 1 && c.algorithm.split_k == SplitK::none; },
     [](const Case& c) {
       return fmt::format(
           "depthwise takes its slices from the problem on AMD GPUs: slices=1 and split_k none, "
           "got slices={} and {}",
           c.algorithm.slices, to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return is_any_of(w.m, {1, 2, 4}) && is_any_of(w.n, {1, 2, 4}) && w.k >= 0 &&
              w.k <= kMostWindow;
     },
     [](const Case& c) {
       return fmt::format(
           "a lane has 1, 2 or 4 channels of y of each channel of x, 1, 2 or 4 columns and up to "
           "{} taps of a line, got {}",
           kMostWindow, to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const int most = mfma::by_data(c.signature) ? 1 : 2;
       return has_any_filter(c) ? c.algorithm.tile.k == 0
                                : c.algorithm.tile.k >= 1 && c.algorithm.tile.k <= most;
     },
     [](const Case& c) {
       return fmt::format(
           "tile_k is the places from a column to the next one, 1 or 2, of backward_data 1, and 0 "
           "for any filter, got {} of {} with {} taps",
           c.algorithm.tile.k, to_string(c.signature.direction), c.algorithm.warp_tile.k);
     }},
    {[](const Case& c) {
       const Shape s = hip_depthwise::shape_of(c.signature, c.algorithm);
       return is_any_of(s.across, {8, 16, 32}) && c.algorithm.tile.n == s.across * s.vector &&
              c.algorithm.tile.m == s.runs * s.columns;
     },
     [](const Case& c) {
       const Shape s = hip_depthwise::shape_of(c.signature, c.algorithm);
       return fmt::format(
           "tile_n is {0} channels of each of 8, 16 or 32 lanes, and tile_m {1} columns of each of "
           "the {2} lanes besides, got {3}x{4}",
           s.vector, s.columns, s.across > 0 ? kLanes / s.across : kLanes, c.algorithm.tile.m,
           c.algorithm.tile.n);
     }},
    {[](const Case& c) { return lds_bytes_of(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS, {} has {}", lds_bytes_of(c), c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- problems ----

struct Ask {
  const ConvProblem& p;
  const Shape shape;
  const int ndim;
};

std::int64_t taps_in(const ConvProblem& p) { return p.filter[0] * p.filter[1] * p.filter[2]; }
// Those of a residue of the strides: as many weights as a block keeps.
std::int64_t taps_kept(const ConvProblem& p) {
  std::int64_t all = 1;
  for (std::size_t i = 0; i < 3; ++i) all *= taps_along(p, i);
  return all;
}
bool reads_x(const ConvProblem& p) { return !mfma::by_data(p); }
bool reads_y(const ConvProblem& p) { return p.direction != ConvDirection::forward; }

// The places from a column to the next one, and from a tap to the next one, along the width.
std::int64_t step_of(const ConvProblem& p) { return mfma::by_data(p) ? 1 : p.stride[2]; }
std::int64_t tap_step_of(const ConvProblem& p) {
  return mfma::by_data(p) ? p.dilation[2] / std::gcd(p.stride[2], p.dilation[2]) : p.dilation[2];
}
bool fits_window(const Ask& x) {
  const std::int64_t line = taps_along(x.p, 2);
  const std::int64_t width = (mfma::by_data(x.p) ? x.p.size : out_size(x.p))[2];
  return line <= x.shape.taps && (line <= 1 || tap_step_of(x.p) == 1) &&
         (width <= 1 || step_of(x.p) == x.shape.step);
}
bool adjoins(const ConvProblem& p) {
  const std::int64_t k = p.k / p.g;
  const ConvStrides &x = p.in_strides, &y = p.out_strides, &w = p.weight_strides;
  const bool images = p.g == 1 || (x[mfma::kG] == 1 && y[mfma::kG] == k);
  return images && (k == 1 || y[mfma::kC] == 1) && (p.g == 1 || k == 1 || w[0] == k * w[1]);
}

// The first distance of pixels that are read which is no multiple of a dword; 0: there is none.
std::int64_t odd_distance(const ConvProblem& p) {
  const std::int64_t unit = kDword / mfma::bytes_of(p);
  const auto odd = [&](const ConvStrides& s, const Spatial& size) -> std::int64_t {
    if (p.n > 1 && s[mfma::kN] % unit != 0) return s[mfma::kN];
    for (std::size_t i = 0; i < 3; ++i) {
      if (size[i] > 1 && s[mfma::kD + i] % unit != 0) return s[mfma::kD + i];
    }
    return 0;
  };
  const std::int64_t of_x = reads_x(p) ? odd(p.in_strides, p.size) : 0;
  return of_x != 0 || !reads_y(p) ? of_x : odd(p.out_strides, out_size(p));
}

// Bytes that offsets count: of an image that is read with the places beside it that taps name, or
// of filters.
double most_bytes(const ConvProblem& p) {
  const auto of_image = [&](const ConvStrides& s, const Spatial& size, std::int64_t channels) {
    double all = double(channels) + double(p.n - 1) * double(s[mfma::kN]);
    for (std::size_t i = 0; i < 3; ++i) {
      if (size[i] == 1) continue;
      const double beside = double(p.pad[i]) + double(p.dilation[i]) * double(p.filter[i]) +
                            double(std::abs(p.pad_right[i])) + 4 * double(p.stride[i]);
      all += (double(size[i]) + 2 * beside) * double(s[mfma::kD + i]);
    }
    return all * mfma::bytes_of(p);
  };
  double most = 0;
  if (reads_x(p)) most = of_image(p.in_strides, p.size, p.c);
  if (reads_y(p)) most = std::max(most, of_image(p.out_strides, out_size(p), p.k));
  double filter = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    filter += double(p.filter[i]) * double(p.weight_strides[mfma::kD + i]);
  }
  return std::max(most, filter * 4);
}
double residues(const ConvProblem& p) {
  double all = 1;
  for (std::size_t i = 0; i < 3 && mfma::by_data(p); ++i) {
    all *= double(std::min(p.stride[i], p.size[i]));
  }
  return all;
}
double runs_of(const ConvProblem& p) {
  const Spatial size = mfma::by_data(p) ? p.size : out_size(p);
  return double(p.n) * double(size[0]) * double(size[1]) * double(size[2]);
}
double weights_of(const ConvProblem& p) { return double(p.k) * double(taps_in(p)); }

constexpr tile::Rule<Ask> kProblemRules[] = {
    {[](const Ask& x) { return x.p.c == x.p.g; },
     [](const Ask& x) {
       return fmt::format("depthwise needs one channel of x in each group, got c={} and g={}",
                          x.p.c, x.p.g);
     }},
    {[](const Ask& x) { return x.p.k == x.p.g * x.shape.multiple; },
     [](const Ask& x) {
       return fmt::format("this kernel makes {} channels of y in each group, got k={} and g={}",
                          x.shape.multiple, x.p.k, x.p.g);
     }},
    {[](const Ask& x) { return adjoins(x.p); },
     [](const Ask& x) {
       return fmt::format(
           "depthwise needs channels side by side, got in_stride_g={}, out_stride_g={} and "
           "weight_stride_g={}",
           x.p.in_strides[mfma::kG], x.p.out_strides[mfma::kG], x.p.weight_strides[0]);
     }},
    {[](const Ask& x) { return x.p.c * mfma::bytes_of(x.p) % kDword == 0; },
     [](const Ask& x) {
       return fmt::format("depthwise loads dwords: c must be a multiple of {}, got {}",
                          kDword / mfma::bytes_of(x.p), x.p.c);
     }},
    {[](const Ask& x) { return odd_distance(x.p) == 0; },
     [](const Ask& x) {
       return fmt::format("depthwise loads dwords {} elements long, got pixels {} apart",
                          kDword / mfma::bytes_of(x.p), odd_distance(x.p));
     }},
    {[](const Ask& x) {
       return taps_kept(x.p) <= device::hip_depthwise_taps(x.shape.taps, x.ndim);
     },
     [](const Ask& x) {
       return fmt::format("this kernel keeps {} weights of a channel, got {}x{}x{} taps",
                          device::hip_depthwise_taps(x.shape.taps, x.ndim), x.p.filter[0],
                          x.p.filter[1], x.p.filter[2]);
     }},
    {[](const Ask& x) { return x.shape.taps == 0 || fits_window(x); },
     [](const Ask& x) {
       return fmt::format(
           "this kernel takes lines of up to {} taps 1 apart and columns {} apart, got {} taps {} "
           "apart and columns {} apart",
           x.shape.taps, x.shape.step, taps_along(x.p, 2), tap_step_of(x.p), step_of(x.p));
     }},
    {[](const Ask& x) { return residues(x.p) <= device::kHipDepthwiseParts; },
     [](const Ask& x) {
       return fmt::format("depthwise takes up to {} residues of the strides, got {:.0f}",
                          device::kHipDepthwiseParts, residues(x.p));
     }},
    {[](const Ask& x) { return most_bytes(x.p) <= kMostBytes; },
     [](const Ask& x) {
       return fmt::format("depthwise counts bytes of images and filters up to {:.0f}, got {:.0f}",
                          kMostBytes, most_bytes(x.p));
     }},
    {[](const Ask& x) { return std::max(runs_of(x.p), weights_of(x.p)) <= kMostRuns; },
     [](const Ask& x) {
       return fmt::format("depthwise counts pixels and weights up to {:.0f}, got {:.0f} and {:.0f}",
                          kMostRuns, runs_of(x.p), weights_of(x.p));
     }},
};

Verdict hip_depthwise_serves(const KernelSpec& spec, const ConvProblem& p, const Target&) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Ask ask = {p, hip_depthwise::shape_of(s, spec.algorithm), static_cast<int>(s.ndim)};
  return {tile::broken_sentence(kProblemRules, ask)};
}

// ---- algorithms ----

// A window for each usual line of taps, and any filter; the two numbers of channels are those of 8
// lanes with fp32 and with 16 bits.
std::vector<Algorithm> hip_depthwise_algorithms(const Target&) {
  std::vector<Algorithm> all;
  for (const int channels : {32, 64}) {
    for (const int multiple : {1, 2, 4}) {
      for (const int taps : {0, 3, 5, 7}) {
        for (const int step : {1, 2}) {
          if (taps == 0 && step == 2) continue;
          all.push_back({.pipeline = Pipeline::depthwise,
                         .tile = {128, channels, taps == 0 ? 0 : step},
                         .wave = kWave,
                         .warp_tile = {multiple, 4, taps}});
        }
      }
    }
  }
  return all;
}

// ---- text ----

// Blocks that share a unit without a spill.
int hip_blocks_together(const ConvSignature& s, const Algorithm& a) {
  return mfma::element_bytes(s) == 2 && a.warp_tile.k >= 5 ? 2 : 4;
}

Source emit_hip_depthwise(const KernelSpec& spec, const Target&) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const bool weight = mfma::by_weight(s);
  const std::array<tile::GpuEntry, 2> entries = {
      {{"", "run", hip_blocks_together(s, spec.algorithm)}, {"_sum", "sum"}}};
  const std::string arguments =
      fmt::format("HipDepthwiseArguments<{}>", mfma::by_data(s) ? device::kHipDepthwiseParts : 1);
  return tile::hip_source(
      spec, kAbi,
      {weight ? "conv/depthwise_weight.h" : "conv/depthwise_conv.h",
       weight ? "DepthwiseWeight" : "DepthwiseConv", arguments, config_text(spec, "tf32")},
      kLanes, std::span(entries).first(weight ? 2 : 1));
}

// ---- time ----

// Vector instructions of a lane, counted in the code: to find and ask for a vector, to take a
// number out of it, for a line of taps, a run, and a quad of results.
constexpr double kPerLoad = 4, kPerNumber = 0.5, kPerLine = 16, kPerRun = 60, kPerStore = 12;
constexpr double kStageInstructions = 40;  // for each weight that a lane stages
// Guesses.
constexpr double kVectorCycles = 4, kSimds = 4;
constexpr double kLineLatency = 800;  // cycles of a line that waits for memory
constexpr double kReached = 0.8;      // of the nominal bandwidth
constexpr double kWavesTogether = 4;  // of a SIMD

struct LaneWork {
  double vector = 0, bytes = 0, lines = 0;  // of a lane and a run
};
LaneWork work_of_run(const ConvProblem& p, const Shape& s) {
  const double columns = s.columns, vector = s.vector;
  const double lines = mfma::by_weight(p) ? 1 : double(taps_along(p, 0)) * double(taps_along(p, 1));
  const double taps = mfma::by_weight(p) ? (s.taps == 0 ? 1 : s.taps) : double(taps_along(p, 2));
  const double places = s.taps == 0 ? columns * taps : (columns - 1) * s.step + s.taps;
  const double loads = lines * places + (mfma::by_weight(p) ? columns : 0);
  LaneWork work;
  work.lines = lines;
  work.vector = loads * (kPerLoad + kPerNumber * vector) + lines * taps * columns * vector +
                lines * kPerLine + kPerRun +
                (mfma::by_weight(p) ? 0 : columns * vector / 4 * kPerStore);
  work.bytes = loads * tile::kLaneBytes;
  return work;
}

Estimate estimate_hip_depthwise(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                                int) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Shape shape = hip_depthwise::shape_of(s, spec.algorithm);
  const Plan plan = hip_depthwise::plan_of(p, shape, target, spec.algorithm.tile.n);
  const LaneWork work = work_of_run(p, shape);
  const double turns =
      std::ceil(double(plan.most_runs) / (double(plan.slices) * double(shape.runs)));
  const double staged =
      mfma::by_weight(p) ? 0
                         : double(taps_in(p)) * spec.algorithm.tile.n / kLanes * kStageInstructions;
  constexpr int kWaves = kLanes / tile::kWaveLanes;
  const double block = (turns * work.vector + staged) * kWaves * kVectorCycles / kSimds;
  const double l1 = target.caches.empty() ? 64 : std::max(1.0, target.caches[0].bytes_per_cycle);
  const double loading = turns * work.bytes * kLanes / l1;
  const double rounds = std::ceil(double(plan.blocks()) / target.units);
  const double waits = std::ceil(double(plan.blocks()) / (target.units * kWavesTogether)) *
                       (turns * work.lines + 2) * kLineLatency;
  const double hertz = target.clock_ghz * 1e9;
  const double compute = std::max({rounds * block, rounds * loading, waits}) / hertz;
  const Problem problem = p;
  const double sums =
      mfma::by_weight(p) ? 2.0 * double(plan.slices) * double(p.k) * double(taps_in(p)) * 4 : 0;
  const double memory = (bytes(problem) + sums) / (target.memory_gb_per_s * 1e9 * kReached);
  const double launches = mfma::by_weight(p) ? 2 : 1;
  return tile::total_of(compute, memory, launches * target.launch_us * 1e-6);
}

}  // namespace

Shape shape_of(const ConvSignature& s, const Algorithm& a) {
  const int vector = tile::kLaneBytes / mfma::element_bytes(s);
  const int across = a.tile.n / vector;
  return {.multiple = a.warp_tile.m,
          .columns = a.warp_tile.n,
          .taps = a.warp_tile.k,
          .step = a.tile.k,
          .vector = vector,
          .across = across,
          .runs = across > 0 ? kLanes / across : 0};
}

std::int64_t taps_along(const ConvProblem& p, std::size_t dim) {
  if (!mfma::by_data(p)) return p.filter[dim];
  return tile::ceil_div(p.filter[dim], p.stride[dim] / std::gcd(p.stride[dim], p.dilation[dim]));
}

}  // namespace tessera::conv::hip_depthwise

namespace tessera::conv {

const Way kDepthwiseHip = {.backend = "hip",
                           .pipeline = Pipeline::depthwise,
                           .rules = hip_depthwise::kHipDepthwiseRules,
                           .serves = hip_depthwise::hip_depthwise_serves,
                           .algorithms = hip_depthwise::hip_depthwise_algorithms,
                           .emit = hip_depthwise::emit_hip_depthwise,
                           .bind = hip_depthwise::bind,
                           .estimate = hip_depthwise::estimate_hip_depthwise};

}  // namespace tessera::conv
