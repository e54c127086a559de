// A convolution as tmaws kernels see it: classes of pixels, tiles, strides.
#include <algorithm>
#include <numeric>

#include "tessera/device/conv.h"
#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/strides.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;  // bytes

Innermost innermost(const Spatial& s) { return {s[2], s[1], s[0]}; }
// Takes the strides of an image or of filters.
Innermost innermost(const ConvStrides& s) { return {s[5], s[4], s[3]}; }

std::int64_t product_of(const Innermost& values, int dims) {
  return std::accumulate(values.begin(), values.begin() + dims, std::int64_t{1},
                         std::multiplies<>());
}

// 0 where there is no common distance, and where neighbours share a place.
std::int64_t pixel_distance(const ConvProblem& p, const Spatial& size, const ConvStrides& s,
                            std::int64_t channels) {
  return tile::common_distance({{size[2], s[5]}, {size[1], s[4]}, {size[0], s[3]}, {p.n, s[0]}},
                               channels)
      .value_or(0);
}

bool is_data(const ConvProblem& p) { return p.direction == ConvDirection::backward_data; }
bool is_weight(const ConvProblem& p) { return p.direction == ConvDirection::backward_weight; }

// One dimension of a class. Taps count from the one that looks at the first place of the image.
struct TmawsLine {
  std::int64_t pixels, start, taps, filter, filter_step, tap_step;
};

TmawsLine line_of(const ConvProblem& p, std::size_t dim, std::int64_t residue) {
  const std::int64_t stride = p.stride[dim];
  const std::int64_t dilation = p.dilation[dim];
  const std::int64_t filter = p.filter[dim];
  if (!is_data(p)) return {out_size(p)[dim], -p.pad[dim], filter, 0, 1, dilation};
  // A pixel at residue + i * stride sees place t / stride + i of y through a tap, where t is
  // residue + pad - tap * dilation, if stride divides t.
  const std::int64_t divisor = std::gcd(stride, dilation);
  const std::int64_t step = stride / divisor;
  TmawsLine line = {
      tile::ceil_div(p.size[dim] - residue, stride), 0, 0, 0, -step, dilation / divisor};
  const std::int64_t place = residue + p.pad[dim];
  std::int64_t first = 0;
  while (first < std::min(step, filter) && (place - first * dilation) % stride != 0) ++first;
  if (first >= std::min(step, filter)) return line;
  line.taps = tile::ceil_div(filter - first, step);
  line.filter = first + (line.taps - 1) * step;
  line.start = (place - line.filter * dilation) / stride;
  return line;
}

TmawsClass class_of(const ConvProblem& p, const TmawsPlan& plan, std::int64_t index) {
  TmawsClass c{};
  c.rows = p.n;
  std::int64_t places = 1;  // of the filter's dimensions further inside
  for (int i = 0; i < plan.dims; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t dim = 2 - at;
    const std::int64_t residues = is_data(p) ? std::min(p.stride[dim], p.size[dim]) : 1;
    const std::int64_t residue = index % residues;
    index /= residues;
    const TmawsLine line = line_of(p, dim, residue);
    c.pixels[at] = line.pixels, c.start[at] = line.start, c.taps[at] = line.taps;
    c.low[at] = line.start;
    c.high[at] = (line.pixels - 1) * plan.pixel_step[at] + 1 + line.start - plan.image.size[at];
    c.rows *= line.pixels;
    c.filter += line.filter * places;
    c.offset += residue * p.in_strides[3 + dim];
    places *= p.filter[dim];
  }
  c.steps = product_of(c.taps, plan.dims) * plan.slabs;
  if (is_weight(p)) c.steps = tile::ceil_div(c.rows, kTmawsDepth);
  return c;
}

void add_image(const ConvProblem& p, TmawsPlan& plan) {
  const ConvStrides& s = is_data(p) ? p.out_strides : p.in_strides;
  plan.image = {is_data(p) ? p.out : p.in, is_data(p) ? p.k : p.c,
                innermost(is_data(p) ? out_size(p) : p.size), innermost(s), s[0]};
}

void add_steps(const ConvProblem& p, const TmawsForm& form, TmawsPlan& plan) {
  std::int64_t places = 1;
  for (int i = 0; i < plan.dims; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t dim = 2 - at;
    const TmawsLine line = line_of(p, dim, 0);
    plan.pixel_step[at] = is_data(p) ? form.apart[dim] : p.stride[dim];
    plan.tap_step[at] = line.tap_step;
    plan.filter_step[at] = line.filter_step * places;
    places *= p.filter[dim];
  }
}

void add_result(const ConvProblem& p, const TmawsForm& form, TmawsPlan& plan) {
  const std::int64_t c = p.c / p.g;
  const std::int64_t k = p.k / p.g;
  const std::int64_t taps = product_of(innermost(p.filter), 3);
  const ConvStrides& w = p.weight_strides;
  plan.tap_distance =
      tile::common_distance({{p.filter[2], w[5]}, {p.filter[1], w[4]}, {p.filter[0], w[3]}}, c)
          .value_or(0);
  plan.y_distance = pixel_distance(p, out_size(p), p.out_strides, p.k);
  plan.batch = p.g;
  if (is_weight(p)) {
    // Sums are stored in pairs, so that a tap begins at an even column.
    const bool is_whole = c % kTmawsDepth == 0 || (form.keeps_sums && c % 2 == 0);
    plan.batch_is_tap = taps > 1 && (!is_whole || plan.tap_distance != c);
    plan.rows = k;
    plan.columns = plan.batch_is_tap || taps == 1 ? c : taps * plan.slabs * kTmawsDepth;
    if (plan.batch_is_tap) plan.batch = taps;
    plan.ld = w[1];
    plan.batch_stride = plan.batch_is_tap ? plan.tap_distance : w[0];
    return;
  }
  const Spatial size = is_data(p) ? p.size : out_size(p);
  const ConvStrides& s = is_data(p) ? p.in_strides : p.out_strides;
  plan.rows = p.n * product_of(innermost(size), 3);
  plan.columns = is_data(p) ? c : k;
  plan.ld = is_data(p) ? pixel_distance(p, size, s, p.c) : plan.y_distance;
  plan.batch_stride = s[1];
}

// Classes with many steps come first, so that the last blocks have little to do.
void add_classes(const ConvProblem& p, const Shape3& tile, TmawsPlan& plan) {
  plan.num_classes = 1;
  for (int i = 0; i < plan.dims && is_data(p); ++i) {
    const std::size_t dim = 2 - static_cast<std::size_t>(i);
    plan.num_classes *= std::min(p.stride[dim], p.size[dim]);
    if (plan.num_classes > device::kMostClasses) return;
  }
  for (std::int64_t i = 0; i < plan.num_classes; ++i) plan.classes.push(class_of(p, plan, i));
  std::stable_sort(plan.classes.begin(), plan.classes.end(),
                   [](const TmawsClass& a, const TmawsClass& b) { return a.steps > b.steps; });
  for (TmawsClass& c : plan.classes) {
    c.tiles_p = tile::ceil_div(is_weight(p) ? plan.rows : c.rows, tile.m);
    c.first_tile = plan.tiles;
    plan.tiles += c.tiles_p * plan.tiles_q * plan.batch;
  }
}

}  // namespace

bool fits_stride(std::int64_t stride, DType dtype) {
  const std::int64_t size = size_of(dtype);
  return stride > 0 && stride < kMaxStride / size && stride * size % tile::kTmaBytes == 0;
}

std::optional<std::int64_t> wrong_stride(const ConvStrides& s, const Spatial& size, std::int64_t n,
                                         DType dtype) {
  const std::pair<std::int64_t, std::int64_t> all[] = {
      {size[2], s[5]}, {size[1], s[4]}, {size[0], s[3]}, {n, s[0]}};
  for (const auto& [count, stride] : all) {
    if (count > 1 && !fits_stride(stride, dtype)) return stride;
  }
  return std::nullopt;
}

TmawsForm form_of(const ConvSignature& s, const Algorithm& a) {
  const bool is_gradient = s.direction == ConvDirection::backward_weight;
  return {.tile = a.tile, .keeps_sums = is_gradient && (a.slices > 1 || a.repack)};
}
TmawsForm form_of(const ConvSignature& s, const Algorithm& a, const Repacked& repacked) {
  TmawsForm form = form_of(s, a);
  form.apart = repacked.apart;
  if (s.direction == ConvDirection::backward_data) form.filter_rows = repacked.filter_rows;
  return form;
}

TmawsPlan tmaws_plan(const ConvProblem& p, const TmawsForm& form) {
  TmawsPlan plan{};
  plan.dims = static_cast<int>(p.ndim);
  plan.image_channels = (is_data(p) ? p.k : p.c) / p.g;
  plan.other_channels = form.filter_rows > 0 ? form.filter_rows : p.k / p.g;
  plan.slabs = tile::ceil_div(plan.image_channels, kTmawsDepth);
  add_image(p, plan);
  add_steps(p, form, plan);
  add_result(p, form, plan);
  plan.tiles_q = tile::ceil_div(plan.columns, form.tile.n);
  add_classes(p, form.tile, plan);
  return plan;
}

tile::Product tmaws_product(const ConvSignature& s) {
  const bool forward = s.direction == ConvDirection::forward;
  const bool weight = s.direction == ConvDirection::backward_weight;
  const DType result = forward ? s.out : weight ? s.weight : s.in;
  return {weight    ? s.out
          : forward ? s.in
                    : s.out,
          weight ? s.in : s.weight,
          result,
          s.d,
          !weight,
          forward,
          false,
          s.epilogue};
}

}  // namespace tessera::conv
