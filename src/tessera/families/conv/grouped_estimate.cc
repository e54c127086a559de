// Predicted times of the grouped kernels. What a unit does for the blocks that it runs adds up; how
// long each part takes was fitted to what kernels of all kinds took on an H200
// (docs/performance/hopper_grouped_conv.md).
#include <algorithm>
#include <cmath>

#include "tessera/families/conv/grouped_internal.h"
#include "tessera/families/tile/bandwidth.h"

namespace tessera::conv {
namespace {

// Nanoseconds of a unit. A step are 16 rows x 8 columns x 16 of the depth; by wgmma 64 rows x 16 of
// the depth, and a column of that.
struct GroupedNanoseconds {
  double start;         // of a launch
  double memory;        // times what the bandwidth allows for the operands
  double chunk;         // a copy of 16 bytes of images
  double few_chunk;     // more, where channels of a group are no multiple of 8
  double filter_chunk;  // of filters
  double step, column;
  double store;  // 8 bytes of each lane of a warp
  double tile;   // a tile of each class
  double round;  // by wgmma: a tile of each warpgroup
  double block;
  // By w, for 16 rows x 8 columns: what a block leaves, and what it finishes.
  double leave, finish;
  double sums, parts;  // times what the bandwidth allows for the parts' sums; where there are any
};
constexpr GroupedNanoseconds kImageTimes = {.start = 9590,
                                            .memory = 0.631,
                                            .chunk = 0.407,
                                            .few_chunk = 0.54,
                                            .filter_chunk = 0.37,
                                            .step = 1.62,
                                            .store = 2.44,
                                            .tile = 117};
constexpr GroupedNanoseconds kWideTimes = {.start = 8000,
                                           .memory = 0.425,
                                           .chunk = 0.636,
                                           .few_chunk = 1.1,
                                           .filter_chunk = 0.894,
                                           .step = 0.125,
                                           .column = 0.168,
                                           .store = 6.71,
                                           .tile = 200,
                                           .round = 416,
                                           .block = 48.8};
constexpr GroupedNanoseconds kWeightTimes = {.start = 11200,
                                             .memory = 0.498,
                                             .chunk = 0.414,
                                             .few_chunk = 0.805,
                                             .step = 1.38,
                                             .tile = 735,
                                             .leave = 17.2,
                                             .finish = 68.5,
                                             .sums = 0.402,
                                             .parts = 203};
constexpr GroupedNanoseconds kWideWeightTimes = {.start = 12600,
                                                 .memory = 0.813,
                                                 .chunk = 0.61,
                                                 .few_chunk = 1.99,
                                                 .column = 0.254,
                                                 .tile = 485,
                                                 .finish = 53,
                                                 .sums = 1.39};
constexpr double kBandwidthReached = 0.9;  // of the nominal one

// What a unit does for a tile and for a block.
struct GroupedWork {
  double tile = 0, block = 0;  // nanoseconds
};

// The nanoseconds of a copy of 16 bytes of the image that is read.
double chunk_of(const ConvProblem& p, const GroupedNanoseconds& t) {
  const std::int64_t channels = p.direction == ConvDirection::backward_data ? p.k : p.c;
  return t.chunk + (channels / p.g % 8 == 0 ? 0 : t.few_chunk);
}

GroupedWork image_work(const ConvProblem& p, const GroupedShape& s, const GroupedPlan& plan) {
  const GroupedNanoseconds& t = s.is_wide() ? kWideTimes : kImageTimes;
  const double chunks = plan.places * s.products * s.channels / 8;
  const double filter = double(s.products) * s.columns * s.channels * grouped_taps(p) / 8;
  const double stores = plan.results * s.products * s.columns / 128;
  GroupedWork work;
  work.block = t.block + filter * t.filter_chunk;
  work.tile = chunks * chunk_of(p, t) + stores * t.store + grouped_classes(p) * t.tile;
  if (s.is_wide()) {
    const double steps = s.rows / 64.0 * grouped_taps(p) * std::ceil(s.channels / 16.0);
    work.tile += steps * (t.step + s.columns * t.column);
    return work;
  }
  const double eights = s.warp_columns / 8.0;
  const double rows = std::ceil(plan.results / s.rows) * s.rows / 16;
  const double units = double(s.products) * s.columns / s.warp_columns;
  const double steps = rows * units * (s.channels == 8 ? plan.steps / 2 : plan.steps);
  work.tile += steps * eights * t.step;
  return work;
}

// How much longer a tile takes where the filter has depth: a layer of 3 x 3 x 3 on an H200. The
// times above were fitted to filters of one and two dimensions.
constexpr double kDeepFilter = 2.2;

GroupedWork weight_work(const ConvProblem& p, const GroupedShape& s, const GroupedPlan& plan) {
  const GroupedNanoseconds& t = s.is_wide() ? kWideWeightTimes : kWeightTimes;
  const double steps = s.is_wide() ? plan.steps : std::ceil(plan.results / 16);
  const double chunks = (plan.places * s.channels + steps * 16 * s.columns) * s.products / 8;
  const double eights = s.warp_columns / 8.0;
  const double rows =
      s.is_wide() ? s.rows : std::ceil(grouped_taps(p) * s.channels / s.rows) * s.rows;
  const double vectors = s.rows / 16.0 * eights * s.warps / s.sharers;
  GroupedWork work;
  const double depth = p.filter[0] > 1 ? kDeepFilter : 1;
  work.block = vectors * (t.leave + t.finish / plan.parts);
  const double units = double(s.products) * s.columns / s.warp_columns / plan.unit_blocks;
  const double multiplying = s.is_wide()
                                 ? steps * s.warps * rows / 64 * (t.step + s.columns * t.column)
                                 : steps * units * rows / 16 * eights * t.step;
  work.tile = depth * (chunks * chunk_of(p, t) + t.tile + multiplying);
  return work;
}

}  // namespace

double grouped_taps(const ConvProblem& p) {
  return double(p.filter[0]) * double(p.filter[1]) * double(p.filter[2]);
}
double grouped_classes(const ConvProblem& p) {
  if (p.direction != ConvDirection::backward_data) return 1;
  double classes = 1;
  for (std::size_t i = 0; i < 3; ++i) classes *= double(std::min(p.stride[i], p.size[i]));
  return classes;
}
bool grouped_fits(const ConvProblem& p) {
  return grouped_taps(p) <= device::kMostGroupedTaps &&
         grouped_classes(p) <= device::kMostGroupedClasses;
}

Estimate estimate_grouped(const KernelSpec& spec, const ConvProblem& p, const Target& target, int) {
  constexpr double kNever = 1e6;
  const GroupedShape s = grouped_shape(p.direction, spec.algorithm);
  device::GroupedArguments arguments{};
  const GroupedPlan plan =
      grouped_fits(p) ? grouped_plan(p, spec.algorithm, target, arguments) : GroupedPlan{};
  if (!plan.fits) return tile::total_of(kNever, 0, target.launch_us * 1e-6);
  const GroupedNanoseconds& t = s.by_weight ? (s.is_wide() ? kWideWeightTimes : kWeightTimes)
                                            : (s.is_wide() ? kWideTimes : kImageTimes);
  const GroupedWork work = s.by_weight ? weight_work(p, s, plan) : image_work(p, s, plan);
  const double tiles = std::ceil(plan.tiles / (s.by_weight ? plan.parts : plan.walkers));
  const double rounds = s.is_wide() && !s.by_weight ? std::ceil(tiles / s.warps) * t.round : 0;
  const double blocks = std::ceil(plan.blocks / target.units);
  const double speed = target.memory_gb_per_s * 1e9 * kBandwidthReached;
  const Problem problem = p;
  const double memory = t.memory * bytes(problem) / speed;
  const double sums =
      t.sums * plan.part_bytes * plan.parts / speed + (plan.parts > 1 ? t.parts * 1e-9 : 0);
  const double unit = blocks * (tiles * work.tile + work.block) + rounds;
  Estimate e = tile::total_of(unit * 1e-9, 0, t.start * 1e-9 + memory + sums);
  e.memory_seconds = memory + sums;
  return e;
}

}  // namespace tessera::conv
