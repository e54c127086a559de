// The launch of a convolution by MFMA: how a problem becomes products, and where the device finds
// pixels, taps and results.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/device/hip/conv/conv_arguments.h"
#include "tessera/families/conv/mfma_internal.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/strides.h"

namespace tessera::conv::mfma {
namespace {

using device::HipConvArguments;
using device::HipConvPart;
using device::HipGemmArguments;

enum { kFilterK = 1, kZ = 3, kY, kX };                      // among the strides of filters
constexpr std::size_t kDepth = 0, kHeight = 1, kWidth = 2;  // among spatial dimensions
constexpr std::int64_t kSize = 2;                           // bytes of an element
constexpr int kRasterGroup = 8;
constexpr int kSumBytes = 4;
constexpr std::int64_t kDwordBytes = 4;

// ---- two dimensions ----

bool is_plain_along(const ConvProblem& p, std::size_t i) {
  return p.filter[i] == 1 && p.stride[i] == 1 && p.pad[i] == 0 && p.pad_right[i] == 0;
}

// The stride of two dimensions that are walked as one, or -1.
std::int64_t merged(std::int64_t outer_size, std::int64_t outer, std::int64_t size,
                    std::int64_t stride) {
  return tile::common_distance({{size, stride}, {outer_size, outer}}, stride).value_or(-1);
}

// The depth's places become images.
bool folds_to_images(const ConvProblem& p, ConvProblem& flat) {
  if (!is_plain_along(p, kDepth)) return false;
  const std::int64_t depth = p.size[kDepth];
  for (ConvStrides* const s : {&flat.in_strides, &flat.out_strides}) {
    (*s)[kN] = merged(p.n, (*s)[kN], depth, (*s)[kD]);
    if ((*s)[kN] < 0) return false;
  }
  flat.n *= depth;
  flat.size[kDepth] = 1;
  return true;
}

// The depth takes the place of the height, and lines become parts of one line.
bool folds_to_lines(const ConvProblem& p, ConvProblem& flat) {
  if (!is_plain_along(p, kHeight) || !is_plain_along(p, kWidth)) return false;
  for (ConvStrides* const s : {&flat.in_strides, &flat.out_strides}) {
    (*s)[kW] = merged(p.size[kHeight], (*s)[kH], p.size[kWidth], (*s)[kW]);
    if ((*s)[kW] < 0) return false;
    (*s)[kH] = (*s)[kD];
  }
  flat.weight_strides[kY] = p.weight_strides[kZ];
  flat.size = {1, p.size[kDepth], p.size[kHeight] * p.size[kWidth]};
  for (Spatial* const s :
       {&flat.filter, &flat.stride, &flat.dilation, &flat.pad, &flat.pad_right}) {
    std::swap((*s)[kDepth], (*s)[kHeight]);
  }
  return true;
}

// ---- residues ----

// The taps that pixels of one residue see along one dimension, as ConvView has them
// (device/cuda/conv/conv_view.h): tap i is at first + i * step of the filter and moves the place in
// y by shift + i * shift_step.
struct Taps {
  std::int64_t count, first, step, shift, shift_step;
};
Taps taps_of(std::int64_t filter, std::int64_t stride, std::int64_t dilation, std::int64_t place) {
  const std::int64_t common = std::gcd(stride, dilation), step = stride / common;
  const std::int64_t most = std::min(step, filter);
  std::int64_t first = 0;
  for (; first < most && place % stride != 0; ++first) place -= dilation;
  if (first == most) return {0, 0, 0, 0, 0};
  return {(filter - first + step - 1) / step, first, step, place / stride, -(dilation / common)};
}

struct Residue {
  Taps taps[2];
  std::int64_t first[2], pixels[2];  // of x, along the height and along the width
};
std::vector<Residue> residues_of(const ConvProblem& p) {
  std::vector<Residue> all;
  const auto along = [&](std::size_t i, std::int64_t at, Residue& r) {
    r.taps[i - 1] = taps_of(p.filter[i], p.stride[i], p.dilation[i], at + p.pad[i]);
    r.first[i - 1] = at;
    r.pixels[i - 1] = tile::ceil_div(p.size[i] - at, p.stride[i]);
  };
  for (std::int64_t h = 0; h < std::min(p.stride[kHeight], p.size[kHeight]); ++h) {
    for (std::int64_t w = 0; w < std::min(p.stride[kWidth], p.size[kWidth]); ++w) {
      Residue r{};
      along(kHeight, h, r);
      along(kWidth, w, r);
      all.push_back(r);
    }
  }
  return all;
}

// ---- what the device is told ----

std::int64_t stride_of(std::int64_t size, std::int64_t stride) { return size > 1 ? stride : 0; }

HipConvPart gathered(const ConvProblem& p) {
  const ConvStrides& s = by_data(p) ? p.out_strides : p.in_strides;
  const Spatial size = by_data(p) ? out_size(p) : p.size;
  HipConvPart part{};
  part.channels = static_cast<int>((by_data(p) ? p.k : p.c) / p.g);
  part.images = static_cast<int>(p.n);
  part.height = static_cast<int>(size[kHeight]), part.width = static_cast<int>(size[kWidth]);
  const std::int64_t row = stride_of(size[kHeight], s[kH]) * kSize;
  const std::int64_t column = stride_of(size[kWidth], s[kW]) * kSize;
  part.image_pitch = stride_of(p.n, s[kN]) * kSize;
  part.image_bytes =
      (size[kHeight] - 1) * row + (size[kWidth] - 1) * column + part.channels * kSize;
  part.row_pitch = static_cast<int>(row), part.column_pitch = static_cast<int>(column);
  part.batch = p.g;
  return part;
}

// Forward and backward_weight: one product, whose pixels are those of y.
HipConvPart whole(const ConvProblem& p, const View& view) {
  const Spatial out = out_size(p);
  HipConvPart part = gathered(p);
  part.m = view.rows, part.n = view.columns, part.k = view.depth;
  part.grid_h = static_cast<int>(out[kHeight]), part.grid_w = static_cast<int>(out[kWidth]);
  part.step_h = static_cast<int>(p.stride[kHeight]);
  part.step_w = static_cast<int>(p.stride[kWidth]);
  part.base_h = static_cast<int>(-p.pad[kHeight]), part.base_w = static_cast<int>(-p.pad[kWidth]);
  part.tap_h = static_cast<int>(p.dilation[kHeight]);
  part.tap_w = static_cast<int>(p.dilation[kWidth]);
  part.taps_h = static_cast<int>(p.filter[kHeight]);
  part.taps_w = static_cast<int>(p.filter[kWidth]);
  return part;
}

// Results are counted in rows of so many elements: what divides the distances of all pixels.
std::int64_t result_unit(const ConvProblem& p) {
  const ConvStrides& s = p.in_strides;
  const std::int64_t unit =
      std::gcd(stride_of(p.n, s[kN]),
               std::gcd(stride_of(p.size[kHeight], s[kH]), stride_of(p.size[kWidth], s[kW])));
  return std::max<std::int64_t>(unit, 1);
}

// Where the residue's taps lie in the filter, and its pixels in x.
void place_residue(const ConvProblem& p, const Residue& r, HipConvPart& part) {
  const ConvStrides &w = p.weight_strides, &s = p.in_strides;
  const auto step = [](const Taps& taps, std::int64_t stride) {
    return taps.count > 1 ? static_cast<int>(taps.step * stride * kSize) : 0;
  };
  part.filter_line = static_cast<int>(stride_of(p.k / p.g, w[kFilterK]) * kSize);
  part.filter_h = step(r.taps[0], w[kY]), part.filter_w = step(r.taps[1], w[kX]);
  part.filter_first = (stride_of(p.filter[kHeight], w[kY]) * r.taps[0].first +
                       stride_of(p.filter[kWidth], w[kX]) * r.taps[1].first) *
                      kSize;
  const std::int64_t unit = result_unit(p);
  const std::int64_t row = stride_of(p.size[kHeight], s[kH]) / unit;
  const std::int64_t column = stride_of(p.size[kWidth], s[kW]) / unit;
  part.result_first = r.first[0] * row + r.first[1] * column;
  part.result_image = stride_of(p.n, s[kN]) / unit;
  part.result_row = static_cast<int>(p.stride[kHeight] * row);
  part.result_column = static_cast<int>(p.stride[kWidth] * column);
}

HipConvPart of_residue(const ConvProblem& p, const Residue& r) {
  HipConvPart part = gathered(p);
  part.m = p.n * r.pixels[0] * r.pixels[1], part.n = p.c / p.g;
  part.k = r.taps[0].count * r.taps[1].count * (p.k / p.g);
  part.grid_h = static_cast<int>(r.pixels[0]), part.grid_w = static_cast<int>(r.pixels[1]);
  part.step_h = part.step_w = 1;
  part.base_h = static_cast<int>(r.taps[0].shift), part.base_w = static_cast<int>(r.taps[1].shift);
  part.tap_h = static_cast<int>(r.taps[0].shift_step);
  part.tap_w = static_cast<int>(r.taps[1].shift_step);
  part.taps_h = static_cast<int>(std::max<std::int64_t>(1, r.taps[0].count));
  part.taps_w = static_cast<int>(std::max<std::int64_t>(1, r.taps[1].count));
  place_residue(p, r, part);
  return part;
}

// By how much the walks of a tile go on.
void set_steps(const Algorithm& a, HipConvPart& part) {
  const int lines = tile::block_lanes(a) / (a.tile.n / 8);  // that a block copies at once
  const auto divide = [&](int depth, int& h, int& w, int& channels) {
    channels = depth % part.channels;
    const int taps = depth / part.channels;
    h = taps / part.taps_w, w = taps % part.taps_w;
  };
  divide(a.tile.k, part.turn_h, part.turn_w, part.turn_channels);
  divide(lines, part.line_h, part.line_w, part.line_channels);
  const int pixels = a.pipeline == Pipeline::async ? lines : a.tile.k;
  part.next_w = pixels % part.grid_w;
  part.next_h = pixels / part.grid_w % part.grid_h;
  part.next_n = pixels / part.grid_w / part.grid_h;
}

template <int kParts>
void fill_parts(const ConvProblem& p, const Algorithm& a, HipConvArguments<kParts>& all) {
  int count = 0;
  if (by_data(p)) {
    for (const Residue& r : residues_of(p)) all.parts[count++] = of_residue(p, r);
  } else {
    all.parts[count++] = whole(p, view_of(p));
  }
  for (int i = 0; i < count; ++i) set_steps(a, all.parts[i]);
}

// ---- the product ----

struct Data {
  const void *a, *b;
  void* out;
};
Data data_of(const ConvProblem& p, const ConvOperands& o) {
  if (by_weight(p)) return {o.grad_out, o.in, o.grad_weight};
  if (by_data(p)) return {o.grad_out, o.weight, o.grad_in};
  return {o.in, o.weight, o.out};
}

void set_strides(const ConvProblem& p, device::GemmArguments& g) {
  const ConvStrides &x = p.in_strides, &w = p.weight_strides, &y = p.out_strides;
  if (by_weight(p)) {
    g.ld_a = pixel_distance(y, out_size(p), p.n, p.k), g.ld_out = w[kFilterK];
    g.batch_stride_a = y[kG], g.batch_stride_b = x[kG], g.batch_stride_out = w[0];
  } else if (by_data(p)) {
    g.ld_out = result_unit(p);
    g.batch_stride_a = y[kG], g.batch_stride_b = w[0], g.batch_stride_out = x[kG];
  } else {
    g.ld_b = w[kFilterK], g.ld_out = pixel_distance(y, out_size(p), p.n, p.k);
    g.batch_stride_a = x[kG], g.batch_stride_b = w[0], g.batch_stride_out = y[kG];
  }
}

// C and D that are matrices lie as the result does.
void set_results(const ConvProblem& p, const ConvOperands& o, device::GemmArguments& g) {
  g.c = p.beta == 0 ? nullptr : o.c;
  g.ld_c = g.ld_out, g.batch_stride_c = g.batch_stride_out;
  std::array<DUse, kMaxD> uses{};
  if (p.epilogue.num_d > 0) uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    g.d[i] = o.d[i];
    g.ld_d[i] = uses[i].is_vector() ? 0 : g.ld_out;
    g.batch_stride_d[i] = uses[i].is_vector() ? p.k / p.g : g.batch_stride_out;
  }
  g.alpha = p.alpha, g.beta = p.beta, g.clamp_lo = p.clamp_lo, g.clamp_hi = p.clamp_hi;
}

HipGemmArguments product_of(const ConvProblem& p, const ConvOperands& o) {
  HipGemmArguments product{};
  device::GemmArguments& g = product.gemm;
  const View view = view_of(p);
  g.m = view.rows, g.n = view.columns, g.k = view.depth, g.batch = p.g;
  const Data data = data_of(p, o);
  g.a = data.a, g.b = data.b, g.out = data.out;
  set_strides(p, g);
  set_results(p, o, g);
  product.raster_group = kRasterGroup;
  return product;
}

// Whoever asks for sizes alone has no addresses.
void refuse_unaligned(std::string_view name, const void* data, Pipeline pipeline) {
  const auto excess = reinterpret_cast<std::uintptr_t>(data) % kDwordBytes;
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("conv: {} must be aligned to {} bytes for {}, got an address {} past a "
                          "multiple of that; use a direct kernel",
                          name, kDwordBytes, to_string(pipeline), excess));
}

// Lines of filters in forward, and of y in backward_weight by registers, may begin anywhere.
void check_addresses(const ConvProblem& p, const Algorithm& a, const ConvOperands& o) {
  if (!by_data(p)) refuse_unaligned("in", o.in, a.pipeline);
  if (by_data(p)) refuse_unaligned("weight", o.weight, a.pipeline);
  const bool copies = a.pipeline == Pipeline::async;
  if (by_data(p) || (by_weight(p) && copies)) {
    refuse_unaligned("grad_out", o.grad_out, a.pipeline);
  }
}

void add_partial_sums(const Algorithm& a, std::int64_t tiles, HipGemmArguments& product,
                      Launch& launch) {
  const bool atomic = a.split_k == SplitK::atomic;
  product.partial_sums = device::kHipCounterBytes;
  product.partial_bytes = tiles * (atomic ? 1 : a.slices) * a.tile.m * a.tile.n * kSumBytes;
  launch.workspace.bytes = static_cast<std::size_t>(product.partial_sums + product.partial_bytes);
  launch.workspace.counter_bytes = device::kHipCounterBytes;
  launch.workspace.clear_bytes = atomic ? static_cast<std::size_t>(product.partial_bytes) : 0;
  launch.workspace.address_offset = offsetof(HipGemmArguments, workspace);
}

template <int kParts>
void set_arguments(const ConvProblem& p, const Algorithm& a, const HipGemmArguments& product,
                   Launch& launch) {
  auto& arguments = launch.arguments.make<HipConvArguments<kParts>>();
  arguments.product = product;
  fill_parts(p, a, arguments);
}

}  // namespace

std::string in_two_dimensions(const ConvProblem& p, ConvProblem& flat) {
  flat = p;
  if (p.size[kDepth] == 1 && is_plain_along(p, kDepth)) return {};
  if (folds_to_images(p, flat)) return {};
  flat = p;
  if (folds_to_lines(p, flat)) return {};
  flat = p;
  return fmt::format(
      "kernels by MFMA take filters of two dimensions, or of one along the depth, over places at "
      "equal distances, got a filter of {}x{}x{} with padding {}x{}x{}; use a direct kernel",
      p.filter[0], p.filter[1], p.filter[2], p.pad[0], p.pad[1], p.pad[2]);
}

std::int64_t pixel_distance(const ConvStrides& s, const Spatial& size, std::int64_t n,
                            std::int64_t alone) {
  return tile::common_distance(
             {{size[kWidth], s[kW]}, {size[kHeight], s[kH]}, {size[kDepth], s[kD]}, {n, s[kN]}},
             alone)
      .value_or(-1);
}

bool taps_adjoin(const ConvProblem& p) {
  const ConvStrides& w = p.weight_strides;
  const std::int64_t c = p.c / p.g;
  return tile::common_distance({{c, w[kC]}, {p.filter[kWidth], w[kX]}, {p.filter[kHeight], w[kY]}},
                               1) == 1;
}

Plan plan_of(const ConvProblem& p) {
  const View view = view_of(p);
  Plan plan;
  plan.columns = view.columns, plan.groups = p.g;
  if (by_data(p)) {
    for (const Residue& r : residues_of(p)) {
      plan.parts.push_back(
          {p.n * r.pixels[0] * r.pixels[1], r.taps[0].count * r.taps[1].count * (p.k / p.g)});
    }
  } else {
    plan.parts.push_back({view.rows, view.depth});
  }
  for (const Part& part : plan.parts) plan.most_rows = std::max(plan.most_rows, part.rows);
  return plan;
}

Launch bind(const KernelSpec& spec, const ConvProblem& problem, const Target&,
            const ConvOperands& o) {
  const Algorithm& a = spec.algorithm;
  ConvProblem p;
  in_two_dimensions(problem, p);
  check_addresses(p, a, o);
  const Plan plan = plan_of(p);
  Launch launch;
  HipGemmArguments product = product_of(p, o);
  const std::int64_t tiles = tile::ceil_div(plan.most_rows, a.tile.m) *
                             tile::ceil_div(plan.columns, a.tile.n) * plan.groups;
  if (a.slices > 1) add_partial_sums(a, tiles, product, launch);
  product.blocks = static_cast<int>(tiles * a.slices);
  if (by_data(p)) {
    set_arguments<device::kHipConvParts>(p, a, product, launch);
  } else {
    set_arguments<1>(p, a, product, launch);
  }
  launch.steps.push(
      {.grid = {static_cast<unsigned>(product.blocks), static_cast<unsigned>(plan.parts.size()), 1},
       .block = {static_cast<unsigned>(tile::block_lanes(a)), 1, 1}});
  return launch;
}

}  // namespace tessera::conv::mfma
