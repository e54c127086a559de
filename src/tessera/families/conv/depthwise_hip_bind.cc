// The launch of a depthwise kernel on AMD GPUs: which runs of results its lanes have, and where the
// device finds their places.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/families/conv/depthwise_hip_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv::hip_depthwise {
namespace {

using device::HipDepthwiseArguments;
using device::HipDepthwiseImage;
using device::HipDepthwisePart;
using mfma::kD, mfma::kN, mfma::by_data, mfma::by_weight;

constexpr std::int64_t kBlocksOfUnit = 8;  // as many as run at once, so that each stages once

std::int64_t distance(std::int64_t size, std::int64_t stride) { return size > 1 ? stride : 0; }

HipDepthwiseImage image_of(const ConvProblem& p, const ConvStrides& s, const Spatial& size,
                           std::int64_t channels) {
  const std::int64_t element = mfma::bytes_of(p);
  HipDepthwiseImage image{};
  image.image_pitch = distance(p.n, s[kN]) * element;
  image.bytes = channels * element + std::max<std::int64_t>(p.n - 1, 0) * image.image_pitch;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t pitch = distance(size[i], s[kD + i]) * element;
    image.size[i] = static_cast<int>(size[i]), image.pitch[i] = static_cast<int>(pitch);
    image.bytes += (size[i] - 1) * pitch;
  }
  return image;
}

// ---- parts ----

// The window goes from left to right: the taps of a line in the other order where they don't.
void turn_line(HipDepthwisePart& part) {
  constexpr std::size_t kWidth = 2;
  const int last = part.taps[kWidth] - 1;
  if (part.tap[kWidth] >= 0 || last < 0) return;
  part.base[kWidth] += last * part.tap[kWidth];
  part.filter_first += last * part.filter[kWidth];
  part.tap[kWidth] = -part.tap[kWidth], part.filter[kWidth] = -part.filter[kWidth];
}

void set_runs(const ConvProblem& p, const Shape& shape, HipDepthwisePart& part) {
  part.width = part.grid[2];
  part.grid[2] = static_cast<int>(tile::ceil_div(part.width, shape.columns));
  part.runs = static_cast<int>(p.n) * part.grid[0] * part.grid[1] * part.grid[2];
}

// Forward and backward_weight: places of y.
HipDepthwisePart whole_part(const ConvProblem& p, const Shape& shape) {
  const Spatial out = out_size(p);
  const ConvStrides &y = p.out_strides, &w = p.weight_strides;
  const std::int64_t unit = mfma::row_of_results(y, out, p.n);
  HipDepthwisePart part{};
  part.result_image = distance(p.n, y[kN]) / unit;
  for (std::size_t i = 0; i < 3; ++i) {
    part.grid[i] = static_cast<int>(out[i]), part.step[i] = static_cast<int>(p.stride[i]);
    part.base[i] = static_cast<int>(-p.pad[i]), part.tap[i] = static_cast<int>(p.dilation[i]);
    part.taps[i] = static_cast<int>(p.filter[i]);
    part.filter[i] = static_cast<int>(distance(p.filter[i], w[kD + i]));
    part.result[i] = distance(out[i], y[kD + i]) / unit;
  }
  set_runs(p, shape, part);
  return part;
}

// backward_data: the pixels of x of one residue of the strides.
HipDepthwisePart part_of_residue(const ConvProblem& p, const mfma::Residue& r, const Shape& shape) {
  const ConvStrides &x = p.in_strides, &w = p.weight_strides;
  const std::int64_t unit = mfma::row_of_results(x, p.size, p.n);
  HipDepthwisePart part{};
  part.result_image = distance(p.n, x[kN]) / unit;
  for (std::size_t i = 0; i < 3; ++i) {
    const mfma::Taps& taps = r.taps[i];
    const std::int64_t tap = distance(p.filter[i], w[kD + i]);
    const std::int64_t place = distance(p.size[i], x[kD + i]) / unit;
    part.grid[i] = static_cast<int>(r.pixels[i]), part.step[i] = 1;
    part.base[i] = static_cast<int>(taps.shift), part.tap[i] = static_cast<int>(taps.shift_step);
    part.taps[i] = static_cast<int>(taps.count);
    part.filter[i] = static_cast<int>(taps.step * tap);
    part.filter_first += static_cast<int>(taps.first * tap);
    part.result_first += r.first[i] * place, part.result[i] = p.stride[i] * place;
  }
  turn_line(part);
  set_runs(p, shape, part);
  return part;
}

std::vector<HipDepthwisePart> parts_of(const ConvProblem& p, const Shape& shape) {
  if (!by_data(p)) return {whole_part(p, shape)};
  std::vector<HipDepthwisePart> all;
  for (const mfma::Residue& r : mfma::residues_of(p)) {
    all.push_back(part_of_residue(p, r, shape));
  }
  return all;
}

// How far a lane goes from a run to its next one, as digits.
void set_next(std::int64_t runs, HipDepthwisePart& part) {
  for (std::size_t i = 3; i-- > 0;) {
    const std::int64_t size = std::max(part.grid[i], 1);
    part.next[i] = static_cast<int>(runs % size), runs /= size;
  }
  part.next_n = static_cast<int>(runs);
}

// ---- arguments ----

void set_product(const ConvProblem& p, const ConvOperands& o, device::GemmArguments& g) {
  g.a = by_data(p) ? o.grad_out : o.in;
  g.b = by_weight(p) ? o.grad_out : o.weight;
  g.out = by_weight(p) ? o.grad_weight : by_data(p) ? o.grad_in : o.out;
  g.ld_out = by_weight(p) ? 1
             : by_data(p) ? mfma::row_of_results(p.in_strides, p.size, p.n)
                          : mfma::row_of_results(p.out_strides, out_size(p), p.n);
  mfma::set_results(p, o, g);
}

template <int kParts>
void set_arguments(const ConvProblem& p, const Shape& shape, const Plan& plan,
                   const ConvOperands& o, HipDepthwiseArguments<kParts>& to) {
  set_product(p, o, to.gemm);
  to.channels = static_cast<int>(p.k);
  to.channel_blocks = static_cast<int>(plan.channel_blocks);
  to.slices = static_cast<int>(plan.slices);
  to.partial_sums = device::kHipCounterBytes;
  to.filter_channel = p.weight_strides[p.k > p.g ? 1 : 0];
  const HipDepthwiseImage y = image_of(p, p.out_strides, out_size(p), p.k);
  to.image = by_data(p) ? y : image_of(p, p.in_strides, p.size, p.c);
  if (by_weight(p)) to.other = y;
  int count = 0;
  for (HipDepthwisePart& part : parts_of(p, shape)) {
    set_next(plan.slices * shape.runs, part);
    to.parts[count++] = part;
  }
}

void refuse_odd_addresses(const ConvProblem& p, const ConvOperands& o) {
  if (!by_data(p)) mfma::refuse_unaligned("in", o.in, Pipeline::depthwise);
  if (p.direction != ConvDirection::forward) {
    mfma::refuse_unaligned("grad_out", o.grad_out, Pipeline::depthwise);
  }
}

// The second step adds up the slices.
void add_sums(const ConvProblem& p, const Shape& shape, const Plan& plan, int tile_n,
              Launch& launch) {
  using Arguments = HipDepthwiseArguments<1>;
  constexpr std::int64_t kSumLanes = device::kHipDepthwiseLanes;
  const std::int64_t made = plan.parts * std::max(shape.taps, 1);
  const std::int64_t bytes = plan.slices * made * plan.channel_blocks * tile_n * 4;
  const std::int64_t weights = p.k * p.filter[0] * p.filter[1] * p.filter[2];
  launch.workspace.bytes = static_cast<std::size_t>(device::kHipCounterBytes + bytes);
  launch.workspace.address_offset = offsetof(Arguments, workspace);
  launch.parts = plan.slices * shape.runs;
  launch.steps.push({.entry = 1,
                     .grid = {static_cast<unsigned>(tile::ceil_div(weights, kSumLanes)), 1, 1},
                     .block = {static_cast<unsigned>(kSumLanes), 1, 1}});
}

}  // namespace

Plan plan_of(const ConvProblem& p, const Shape& shape, const Target& target, int tile_n) {
  Plan plan{};
  plan.channel_blocks = tile::ceil_div(p.k, std::int64_t{tile_n});
  const std::vector<HipDepthwisePart> parts = parts_of(p, shape);
  for (const HipDepthwisePart& part : parts) {
    plan.most_runs = std::max<std::int64_t>(plan.most_runs, part.runs);
  }
  plan.parts = static_cast<std::int64_t>(parts.size());
  if (by_weight(p)) {
    plan.parts = p.filter[0] * p.filter[1] * (shape.taps == 0 ? p.filter[2] : 1);
  }
  const std::int64_t wanted = std::int64_t{target.units} * kBlocksOfUnit;
  const std::int64_t together = plan.channel_blocks * std::max<std::int64_t>(plan.parts, 1);
  const std::int64_t most = tile::ceil_div(plan.most_runs, std::int64_t{shape.runs});
  plan.slices = std::clamp(tile::ceil_div(wanted, together), std::int64_t{1},
                           std::max<std::int64_t>(most, 1));
  return plan;
}

Launch bind(const KernelSpec& spec, const ConvProblem& p, const Target& target,
            const ConvOperands& o) {
  refuse_odd_addresses(p, o);
  const int tile_n = spec.algorithm.tile.n;
  const Shape shape = shape_of(std::get<ConvSignature>(spec.signature), spec.algorithm);
  const Plan plan = plan_of(p, shape, target, tile_n);
  Launch launch;
  if (by_data(p)) {
    set_arguments(p, shape, plan, o,
                  launch.arguments.make<HipDepthwiseArguments<device::kHipDepthwiseParts>>());
  } else {
    set_arguments(p, shape, plan, o, launch.arguments.make<HipDepthwiseArguments<1>>());
  }
  launch.steps.push({.grid = {static_cast<unsigned>(plan.channel_blocks * plan.slices),
                              static_cast<unsigned>(plan.parts), 1},
                     .block = {device::kHipDepthwiseLanes, 1, 1}});
  if (by_weight(p)) add_sums(p, shape, plan, tile_n, launch);
  return launch;
}

}  // namespace tessera::conv::hip_depthwise
