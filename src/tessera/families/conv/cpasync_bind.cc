// The launch of a cpasync kernel: how a problem becomes products, how operands are copied.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/device/cuda/abi.h"
#include "tessera/families/conv/cpasync_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {
namespace {

using device::GatherArguments;
using device::GatherOperand;

constexpr std::int64_t kChunkBytes = 16;
constexpr std::int64_t kMostGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kW = 2;                       // the width among spatial dimensions
enum { kStrideG = 1, kStrideC = 2, kStrideW = 5 };  // among the strides of images
constexpr std::size_t kFilterStrideK = 1;           // among the strides of filters

std::int64_t up_to(std::int64_t value, std::int64_t unit) {
  return tile::ceil_div(value, unit) * unit;
}

bool by_weight(const ConvProblem& p) { return p.direction == ConvDirection::backward_weight; }
bool by_data(const ConvProblem& p) { return p.direction == ConvDirection::backward_data; }
bool channels_last(const ConvProblem& p) { return p.layout == ConvLayout::nhwgc; }
DType image_type(const ConvProblem& p) { return by_data(p) ? p.out : p.in; }
std::int64_t per_chunk(const ConvProblem& p) { return kChunkBytes / size_of(image_type(p)); }

// The distance of neighbouring channels: of neighbouring groups, where a group has one channel.
std::int64_t channel_stride(const ConvStrides& strides, std::int64_t channels, std::int64_t g) {
  if (channels > 1) return strides[kStrideC];
  return g == 1 ? 1 : strides[kStrideG];
}
// Kernels of channels last copy neighbouring channels only.
bool groups_follow(const ConvProblem& p, const ConvStrides& strides, std::int64_t channels) {
  const std::int64_t between = channel_stride(strides, channels, p.g);
  if (channels_last(p) && between != 1) return false;
  return strides[kStrideG] == channels * between;
}

// Neighbouring groups whose rows and columns a tile has room for.
std::int64_t groups_together(const ConvProblem& p, const Shape3& tile) {
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  if (p.g == 1 || !groups_follow(p, p.in_strides, c) || !groups_follow(p, p.out_strides, k))
    return 1;
  std::int64_t most = tile.n / (p.direction == ConvDirection::forward ? k : c);
  if (by_weight(p)) most = std::min(most, tile.m / k);
  most = std::clamp<std::int64_t>(most, 1, p.g);
  while (p.g % most != 0) --most;
  return most;
}

// A line of a filter is as contiguous in x as it is in w where its taps adjoin. Short lines of
// channels then fill fewer chunks.
bool takes_lines(const ConvProblem& p) {
  const std::int64_t taps = p.filter[kW];
  if (!channels_last(p) || by_data(p) || p.g > 1 || taps == 1) return false;
  if (p.dilation[kW] != 1 || p.in_strides[kStrideW] != p.c || p.weight_strides[kStrideW] != p.c) {
    return false;
  }
  return up_to(taps * p.c, per_chunk(p)) < taps * up_to(p.c, per_chunk(p));
}

// Elements of the line before the first tap that a run takes along, so that chunks of all pixels
// begin at multiples of 16, 8 or 4 bytes; they cost nothing where they fit into the last chunk.
std::int64_t lead_of(const ConvProblem& p, std::int64_t run) {
  const std::int64_t size = size_of(p.in);
  for (std::int64_t width = kChunkBytes; width > size; width /= 2) {
    if (p.stride[kW] * p.c * size % width != 0) continue;
    const std::int64_t unit = width / size;
    const std::int64_t lead = up_to(p.pad[kW] * p.c, unit) - p.pad[kW] * p.c;
    if (up_to(run + lead, per_chunk(p)) == up_to(run, per_chunk(p))) return lead;
  }
  return 0;
}

// Whether chunks lie along runs.
bool has_chunks_in_runs(const ConvProblem& p) {
  return channels_last(p) || p.direction == ConvDirection::forward;
}

std::int64_t residues_of(const ConvProblem& p) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < 3 && by_data(p); ++i) count *= std::min(p.stride[i], p.size[i]);
  return count;
}

// How many pixels the residue with the most of them has.
std::int64_t pixels_of(const ConvProblem& p) {
  const Spatial out = out_size(p);
  std::int64_t count = p.n;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t along = by_data(p) ? tile::ceil_div(p.size[i], p.stride[i]) : out[i];
    count *= i == kW && !channels_last(p) ? up_to(along, per_chunk(p)) : along;
  }
  return count;
}

// ---- how an operand is copied ----

// Collects what the addresses of chunks are made of, in bytes.
struct Addresses {
  std::int64_t size;
  std::uint64_t bits = 0;

  void add(std::int64_t elements) { bits |= static_cast<std::uint64_t>(elements * size); }
  void add_if(bool counts, std::int64_t elements) {
    if (counts) add(elements);
  }
};

int width_of(const Addresses& x, std::int64_t step) {
  if (step != 1) return x.size == 4 ? device::kBy4 : device::kByElement;
  if (x.bits % 16 == 0) return device::kBy16;
  if (x.bits % 8 == 0) return device::kBy8;
  return x.bits % 4 == 0 ? device::kBy4 : device::kByVector;
}

void add_image_dimensions(const ConvStrides& strides, const Spatial& size, std::int64_t n,
                          bool with_width, Addresses& x) {
  x.add_if(n > 1, strides[0]);
  for (std::size_t i = 0; i < 3; ++i) {
    x.add_if(size[i] > 1 && (i != kW || with_width), strides[3 + i]);
  }
}

// The last byte of a tensor of these sizes {n, g, c, d, h, w}, from its first one.
std::int64_t span_of(const ConvStrides& strides, const ConvStrides& sizes, std::int64_t size) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return (last + 1) * size;
}

// Ends are found as numbers: nobody reads here, and whoever asks for sizes alone has no addresses.
GatherOperand operand_of(const void* data, const Addresses& x, std::int64_t step,
                         std::int64_t span) {
  GatherOperand operand{};
  Addresses all = x;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  all.bits |= begin;
  operand.data = static_cast<const char*>(data);
  operand.end = reinterpret_cast<const char*>(begin + static_cast<std::uintptr_t>(span));
  operand.step = step;
  operand.width = width_of(all, step);
  operand.run_step = 1;
  return operand;
}

// What a direction reads: x, or in backward_data y.
GatherOperand image_operand(const ConvProblem& p, const GatherPlan& plan, const void* data) {
  const bool data_way = by_data(p);
  const Spatial size = data_way ? out_size(p) : p.size;
  const std::int64_t channels = (data_way ? p.k : p.c) / p.g;
  const ConvStrides& strides = data_way ? p.out_strides : p.in_strides;
  const std::int64_t between = channel_stride(strides, channels, p.g);
  Addresses x = {size_of(image_type(p))};
  x.add_if(plan.products > 1, plan.together * strides[kStrideG]);
  add_image_dimensions(strides, size, p.n, channels_last(p) && !plan.taps_in_run, x);
  std::int64_t step = 1;
  if (channels_last(p)) {
    x.add_if(plan.taps_in_run, p.stride[kW] * p.c);
    x.add_if(plan.taps_in_run, p.pad[kW] * p.c + plan.lead);
  } else {
    const bool moves = p.pad[kW] > 0 || p.filter[kW] > 1;
    x.add_if(moves, 1);
    x.add_if(plan.run > 1, between);
    step = (size[kW] == 1 ? 1 : strides[kStrideW]) * (data_way ? 1 : p.stride[kW]);
  }
  const std::int64_t span = span_of(
      strides, {std::max<std::int64_t>(p.n, 1), p.g, channels, size[0], size[1], size[2]}, x.size);
  GatherOperand operand = operand_of(data, x, step, span);
  operand.product = plan.together * strides[kStrideG];
  if (!channels_last(p)) {
    operand.run_limit = static_cast<int>(size[kW]);
    operand.run_step = data_way ? 1 : static_cast<int>(p.stride[kW]);
  } else {
    operand.run_limit = static_cast<int>(plan.taps_in_run ? size[kW] * p.c : plan.run);
  }
  return operand;
}

GatherOperand filter_operand(const ConvProblem& p, const GatherPlan& plan, const void* data) {
  const ConvStrides& w = p.weight_strides;
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  Addresses x = {size_of(p.weight)};
  x.add_if(p.g > 1, w[0]);
  x.add_if(k > 1, w[kFilterStrideK]);
  for (std::size_t i = 0; i < 3; ++i) {
    x.add_if(p.filter[i] > 1 && !(i == kW && plan.taps_in_run), w[3 + i]);
  }
  x.add_if(plan.together > 1, c);
  x.add_if(plan.taps_in_run, plan.lead);
  const std::int64_t step = c == 1 || channels_last(p) ? 1 : w[kStrideC];
  const std::int64_t span = span_of(w, {p.g, k, c, p.filter[0], p.filter[1], p.filter[2]}, x.size);
  GatherOperand operand = operand_of(data, x, step, span);
  operand.product = plan.together * w[0];
  operand.run_limit = static_cast<int>(plan.taps_in_run ? plan.run : c);
  return operand;
}

// y, whose pixels are the depth of backward_weight.
GatherOperand gradient_operand(const ConvProblem& p, const GatherPlan& plan, const void* data) {
  const ConvStrides& y = p.out_strides;
  const Spatial size = out_size(p);
  const std::int64_t k = p.k / p.g, between = channel_stride(y, k, p.g);
  Addresses x = {size_of(p.out)};
  x.add_if(plan.products > 1, plan.together * y[kStrideG]);
  add_image_dimensions(y, size, p.n, channels_last(p), x);
  if (!channels_last(p)) x.add_if(plan.together * k > 1, between);
  const std::int64_t along_w = size[kW] == 1 ? 1 : y[kStrideW];
  const std::int64_t span =
      span_of(y, {std::max<std::int64_t>(p.n, 1), p.g, k, size[0], size[1], size[2]}, x.size);
  GatherOperand operand = operand_of(data, x, channels_last(p) ? 1 : along_w, span);
  operand.product = plan.together * y[kStrideG];
  operand.run_limit = static_cast<int>(channels_last(p) ? plan.together * k : size[kW]);
  return operand;
}

// Whether two neighbouring columns are neighbours in memory, the first one at an even distance from
// the tensor's first element.
bool stores_pairs(const ConvProblem& p, const GatherPlan& plan) {
  if (!channels_last(p)) return false;
  Addresses x = {1};
  const bool forward = p.direction == ConvDirection::forward;
  const std::int64_t channels = (forward ? p.k : p.c) / p.g;
  if (by_weight(p)) {
    const ConvStrides& w = p.weight_strides;
    x.add_if(p.g > 1, w[0]);
    x.add_if(p.k / p.g > 1, w[kFilterStrideK]);
    for (std::size_t i = 0; i < 3; ++i) {
      x.add_if(p.filter[i] > 1 && !(i == kW && plan.taps_in_run), w[3 + i]);
    }
    x.add(plan.taps_in_run ? plan.run | plan.lead : channels);
    return x.bits % 2 == 0;
  }
  const ConvStrides& strides = forward ? p.out_strides : p.in_strides;
  x.add_if(p.g > 1, strides[kStrideG]);
  x.add(channels);
  add_image_dimensions(strides, forward ? out_size(p) : p.size, p.n, true, x);
  return x.bits % 2 == 0;
}

// ---- the launch ----

void add_block_slices(const Algorithm& a, GatherArguments& arguments, Launch& launch) {
  constexpr std::int64_t kSumBytes = 4;
  const std::int64_t all = std::int64_t{a.tile.m} * a.tile.n * arguments.tiles;
  arguments.partial_sums = device::kCounterBytes;
  launch.workspace.bytes =
      static_cast<std::size_t>(device::kCounterBytes + all * a.slices * kSumBytes);
  launch.workspace.address_offset = offsetof(GatherArguments, workspace);
}

}  // namespace

GatherPlan gather_plan(const ConvProblem& p, const Shape3& tile) {
  GatherPlan plan{};
  plan.together = groups_together(p, tile);
  plan.products = p.g / plan.together;
  plan.taps_in_run = takes_lines(p);
  const std::int64_t channels = (by_data(p) ? p.k : p.c) / p.g * plan.together;
  plan.run = plan.taps_in_run ? p.filter[kW] * channels : channels;
  plan.lead = plan.taps_in_run ? lead_of(p, plan.run) : 0;
  plan.padded_run = has_chunks_in_runs(p) ? up_to(plan.run + plan.lead, per_chunk(p)) : plan.run;
  plan.residues = residues_of(p);
  const std::int64_t taps =
      p.filter[0] * p.filter[1] * (plan.taps_in_run ? 1 : p.filter[kW]) * plan.padded_run;
  const std::int64_t others = (by_data(p) ? p.c : p.k) / p.g * plan.together;
  const std::int64_t pixels = pixels_of(p);
  plan.rows = by_weight(p) ? others : pixels;
  plan.columns = by_weight(p) ? taps : others;
  plan.depth = by_weight(p) ? pixels : taps;
  plan.tiles_down = tile::ceil_div(plan.rows, tile.m);
  plan.tiles_right = tile::ceil_div(plan.columns, tile.n);
  plan.tiles = plan.tiles_down * plan.tiles_right * plan.residues * plan.products;
  return plan;
}

GatherArguments gather_arguments(const ConvProblem& p, const GatherPlan& plan,
                                 const ConvOperands& o) {
  GatherArguments g{};
  g.conv = arguments_of(p, o);
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  // A stride that no element needs becomes one that chunks can be copied by.
  g.conv.x_stride[kStrideC] = channel_stride(p.in_strides, c, p.g);
  g.conv.y_stride[kStrideC] = channel_stride(p.out_strides, k, p.g);
  if (c == 1) g.conv.w_stride[kStrideC] = 1;
  if (p.size[kW] == 1 && !channels_last(p)) g.conv.x_stride[kStrideW] = 1;
  if (out_size(p)[kW] == 1 && !channels_last(p)) g.conv.y_stride[kStrideW] = 1;
  g.image = image_operand(p, plan, by_data(p) ? g.conv.y : g.conv.x);
  g.other = by_weight(p) ? gradient_operand(p, plan, g.conv.y) : filter_operand(p, plan, g.conv.w);
  const Spatial size = by_data(p) ? out_size(p) : p.size;
  const bool width_in_run = plan.taps_in_run || !channels_last(p);
  for (std::size_t i = 0; i < 3; ++i) {
    g.image_limit[i] = i == kW && width_in_run ? 1 : static_cast<int>(size[i]);
  }
  g.together = static_cast<int>(plan.together), g.products = static_cast<int>(plan.products);
  g.run = static_cast<int>(plan.run), g.padded_run = static_cast<int>(plan.padded_run);
  g.lead = static_cast<int>(plan.lead);
  g.taps_in_run = plan.taps_in_run ? 1 : 0;
  g.run_scale = plan.taps_in_run ? static_cast<int>(p.c) : width_in_run ? 1 : 0;
  g.at_scale = width_in_run ? 0 : 1;
  g.tiles_down = static_cast<int>(plan.tiles_down);
  g.tiles_right = static_cast<int>(plan.tiles_right);
  g.tiles = static_cast<int>(plan.tiles);
  g.pairs = stores_pairs(p, plan) ? 1 : 0;
  return g;
}

Launch bind_cpasync(const KernelSpec& spec, const ConvProblem& p, const Target&,
                    const ConvOperands& o) {
  const Algorithm& a = spec.algorithm;
  const GatherPlan plan = gather_plan(p, a.tile);
  GatherArguments arguments = gather_arguments(p, plan, o);
  Launch launch;
  if (a.slices > 1) add_block_slices(a, arguments, launch);
  launch.arguments.set(arguments);
  const auto threads = static_cast<unsigned>(a.wave.m * a.wave.n) * 32U;
  const tile::Product product = gather_product(std::get<ConvSignature>(spec.signature));
  const std::int64_t blocks = std::min(plan.tiles * a.slices, kMostGrid);
  launch.steps.push(
      {.grid = {static_cast<unsigned>(blocks), 1, 1},
       .block = {threads, 1, 1},
       .shared_memory_bytes = static_cast<std::size_t>(tile::shared_memory(product, a).all)});
  if (a.slices == 1) return launch;
  const std::int64_t parts = std::int64_t{a.tile.m} * a.tile.n / 2 / threads;
  launch.steps.push({.entry = 1,
                     .grid = {static_cast<unsigned>(plan.tiles * parts), 1, 1},
                     .block = {threads, 1, 1}});
  return launch;
}

}  // namespace tessera::conv
