// Which operands a tmaws kernel with repack copies, and what the main loop then sees.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kMostCopied = std::int64_t{1} << 33;  // bytes
constexpr std::int64_t kCopyUnit = 256;                      // copies begin at multiples of it
constexpr std::int64_t kMostStem = 4;                        // channels
constexpr std::int64_t kFewPlanes = 8;  // so many or more are transposed through shared memory

std::int64_t rounded_up_to(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}
std::int64_t product_of(const Spatial& s) { return s[0] * s[1] * s[2]; }

// The time that a group's 64 pixels take where so many groups are multiplied together, in
// nanoseconds of a unit, as measured on an H200: for each line of 128 bytes, loading it, or
// multiplying it.
double group_seconds(const ConvProblem& p, std::int64_t together) {
  constexpr double kLoad = 1.3, kMultiply = 1.2;
  const auto units = [&](std::int64_t channels) {
    return double(tile::ceil_div(channels / p.g * together, kTmawsDepth));
  };
  return units(p.c) * std::max(kLoad, units(p.k) * kMultiply) / double(together);
}

// Whether a group by itself can be multiplied. The copy engine reads images from channels that are
// multiples of 16 bytes on; an H200 calls any other an illegal instruction. A step of the depth
// reads channels of the next group, which meet zeros, or whose results are not stored.
bool may_be_alone(const ConvProblem& p) {
  const auto is_whole = [](std::int64_t channels) { return channels % device::kOctet == 0; };
  if (p.direction == ConvDirection::forward) return is_whole(p.c / p.g);
  if (p.direction == ConvDirection::backward_data) return is_whole(p.k / p.g);
  return is_whole(p.c / p.g) && is_whole(p.k / p.g);
}

// The fewest groups whose channels of x and of y are multiples of 64 together, all of them where
// no such number divides the groups, or one where that takes less time.
std::int64_t together_of(const ConvProblem& p) {
  if (p.g == 1) return 1;
  const auto needed = [](std::int64_t channels) {
    return kTmawsDepth / std::gcd(kTmawsDepth, channels);
  };
  const std::int64_t least = std::max(needed(p.c / p.g), needed(p.k / p.g));
  const std::int64_t together = p.g % least == 0 ? least : p.g;
  return may_be_alone(p) && group_seconds(p, 1) < group_seconds(p, together) ? 1 : together;
}

// ---- stems ----

// How x divides into cells of `step` pixels, and how many of them a filter touches.
struct Cells {
  Spatial step, taps, count;
  std::int64_t channels;  // of a pixel
  std::int64_t size() const { return product_of(step) * channels; }
  std::int64_t line() const { return taps[2] * size(); }
};
Cells cells_of(const ConvProblem& p) {
  Cells cells{};
  const Spatial out = out_size(p);
  for (std::size_t i = 0; i < 3; ++i) {
    cells.step[i] = p.stride[i];
    cells.taps[i] = ((p.filter[i] - 1) * p.dilation[i] + p.stride[i]) / p.stride[i];
    cells.count[i] = out[i] + cells.taps[i] - 1;
  }
  // Neighbouring results are a cell apart, and the copy engine steps over multiples of 16 bytes.
  cells.channels = product_of(cells.step) % 2 == 0 ? 4 : 8;
  return cells;
}

// Lines of cells pay where a filter has fewer of them, in steps of the main loop, than taps.
bool is_stem(const ConvProblem& p) {
  if (p.direction == ConvDirection::backward_data || p.g > 1 || p.c > kMostStem) return false;
  const Cells cells = cells_of(p);
  if (double(cells.taps[2]) * double(product_of(cells.step)) > 0x1p20) return false;
  const std::int64_t slabs = (cells.line() + kTmawsDepth - 1) / kTmawsDepth;
  return cells.taps[0] * cells.taps[1] * slabs < product_of(p.filter);
}

// The time that an output channel's 64 pixels take, in nanoseconds of a unit, as measured on an
// H200: loading a line of 128 bytes, which takes longer where lines begin anywhere, or multiplying
// it.
double stem_seconds(const ConvProblem& p, std::int64_t times) {
  constexpr double kWhole = 1.3, kHalf = 2, kAnywhere = 3, kMultiply = 1.2;
  const Cells cells = cells_of(p);
  const std::int64_t slabs = (cells.line() + kTmawsDepth - 1) / kTmawsDepth;
  const std::int64_t columns = (p.k + kTmawsDepth - 1) / kTmawsDepth;
  const double load = cells.size() % 64 == 0 ? kWhole : cells.size() % 32 == 0 ? kHalf : kAnywhere;
  return double(cells.taps[0] * cells.taps[1] * slabs) / double(times) *
         std::max(load, double(columns) * kMultiply);
}

// `times` results of a line as one, with so many times the channels.
ConvProblem widened(const ConvProblem& p, std::int64_t times) {
  ConvProblem q = p;
  q.k *= times;
  q.filter[2] = (p.filter[2] - 1) * p.dilation[2] + 1 + (times - 1) * p.stride[2];
  q.dilation[2] = times > 1 ? 1 : p.dilation[2];
  if (times == 1) q.filter[2] = p.filter[2];
  q.stride[2] *= times;
  q.out_strides[5] *= times;
  return q;
}

// How many results of a line a stem computes as one: the copy has fewer and longer lines of cells
// then. Their channels must adjoin, and no vector may be added to them.
std::int64_t together_in_line(const ConvProblem& p) {
  constexpr double kGain = 0.9;
  const std::int64_t width = out_size(p)[2];
  const ConvStrides& y = p.out_strides;
  bool adjoins = p.direction == ConvDirection::forward && p.layout == ConvLayout::nhwgc &&
                 y[2] == 1 && y[5] == p.k && tmaws_plan(p, {{64, 64, 64}}).y_distance == p.k;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) adjoins = adjoins && !uses[i].is_vector();
  std::int64_t best = 1;
  double least = kGain * stem_seconds(p, 1);
  for (std::int64_t times = 2; adjoins && times <= 8 && times * p.k <= 256; ++times) {
    if (width % times != 0) continue;
    const double seconds = stem_seconds(widened(p, times), times);
    if (seconds < least) best = times, least = seconds;
  }
  return best;
}

void see_cells(const ConvProblem& given, Repacked& to) {
  to.in_line = together_in_line(given);
  const ConvProblem p = widened(given, to.in_line);
  const Cells cells = cells_of(p);
  ConvProblem& q = to.problem;
  q.k = p.k;
  q.out_strides = p.out_strides;
  q.c = cells.line();
  q.size = {cells.count[0], cells.count[1], out_size(p)[2]};
  q.filter = {cells.taps[0], cells.taps[1], 1};
  q.stride = q.dilation = {1, 1, 1};
  q.pad = q.pad_right = {0, 0, 0};
  q.in_strides = kPackedStrides;
  q.in_strides[5] = cells.size();
  q.in_strides[4] = cells.count[2] * cells.size();
  q.weight_strides = kPackedStrides;
  for (std::size_t i = 0; i < 3; ++i) {
    to.cells.step[i] = static_cast<int>(cells.step[i]);
    to.cells.pad[i] = static_cast<int>(p.pad[i]);
    to.cells.cells[i] = static_cast<int>(cells.count[i]);
  }
  to.cells.cell_channels = static_cast<int>(cells.channels);
}

// ---- operands ----

bool is_aligned(const void* data) {
  return data != nullptr && reinterpret_cast<std::uintptr_t>(data) % tile::kTmaBytes == 0;
}

// Whether the copy engine can read an image, or filters, where they lie.
bool reads_image(const void* data, const ConvStrides& s, const Spatial& size, std::int64_t n,
                 std::int64_t groups, std::int64_t channels, DType dtype) {
  return is_aligned(data) && s[2] == 1 && (groups == 1 || s[1] == channels) &&
         !wrong_stride(s, size, n, dtype);
}
bool reads_filters(const ConvProblem& p, const void* data) {
  const ConvStrides& s = p.weight_strides;
  const std::int64_t k = p.k / p.g;
  const bool adjoins = p.g == 1 || s[0] == k * s[1];
  const std::int64_t distance = tmaws_plan(p, {{64, 64, 64}}).tap_distance;
  const bool has_taps = product_of(p.filter) > 1;
  return is_aligned(data) && s[2] == 1 && adjoins && distance > 0 &&
         (p.k == 1 || fits_stride(s[1], p.weight)) &&
         (!has_taps || fits_stride(distance, p.weight));
}
bool has_pixel_lines(const ConvProblem& p) { return tmaws_plan(p, {{64, 64, 64}}).y_distance > 0; }

bool has_whole_planes(const ConvStrides& s, const Spatial& size, std::int64_t groups,
                      std::int64_t channels) {
  if (groups * channels < kFewPlanes) return false;
  const bool adjoin = groups == 1 || s[1] == channels * s[2];
  return adjoin && (size[2] == 1 || s[5] == 1) && (size[1] == 1 || s[4] == size[2]) &&
         (size[0] == 1 || s[3] == size[1] * size[2]);
}

ConvStrides copied_strides(std::int64_t pixel) {
  ConvStrides strides = kPackedStrides;
  strides[5] = pixel;
  return strides;
}

// Reserves a copy. Sizes that no machine has become too large instead of overflowing.
void reserve(double elements, std::int64_t& workspace, RepackedOperand& to) {
  to.data = nullptr;
  to.at = workspace;
  to.bytes = static_cast<std::int64_t>(std::min(elements * 2, 0x1p60));
  workspace += rounded_up_to(to.bytes, kCopyUnit);
}

double elements_of(std::int64_t n, const Spatial& size, std::int64_t channels) {
  return double(n) * double(size[0]) * double(size[1]) * double(size[2]) * double(channels);
}

// ---- the arguments ----

template <std::size_t n, class T>
void narrow(const std::array<std::int64_t, n>& from, T (&to)[n]) {
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

// Adds the copy of x or of y. `to` has what only x has already: step, pad, cells and cell_channels.
void add_image(const RepackedOperand& copy, const void* from, const ConvStrides& s,
               const Spatial& size, std::int64_t channels, std::int64_t groups,
               device::ImageCopy& to) {
  to.from = from, to.to = copy.at;
  to.image = s[0], to.group = s[1], to.channel = s[2];
  narrow<3>({s[3], s[4], s[5]}, to.pixel);
  narrow(size, to.size);
  to.octets = static_cast<int>(copy.bytes / 16);
  to.channels = static_cast<int>(channels);
  const std::int64_t of_group = channels / groups;
  to.group_channels = static_cast<int>(s[1] == of_group * s[2] ? channels : of_group);
}

device::ImageCopy pixels_as_cells(const Spatial& size, std::int64_t channels) {
  device::ImageCopy x{};
  for (std::size_t i = 0; i < 3; ++i) x.step[i] = 1, x.cells[i] = static_cast<int>(size[i]);
  x.cell_channels = static_cast<int>(rounded_up_to(channels, device::kOctet));
  return x;
}

}  // namespace

bool copies_pixels(const ConvProblem& p, const void* out) {
  const ConvStrides& s = p.in_strides;
  const bool is_odd = reinterpret_cast<std::uintptr_t>(out) % tile::kTmaBytes != 0;
  return p.layout == ConvLayout::nhwgc && p.beta == 0 && !is_odd && size_of(p.in) == 2 &&
         fits_stride(p.c, p.in) && (p.g == 1 || s[1] == p.c / p.g) &&
         !wrong_stride(s, p.size, p.n, p.in);
}

int stored_columns(const Algorithm& a) { return std::max(16, device::chunk_of(a.tile.n)); }
bool stores_whole_groups(const ConvProblem& p, const Algorithm& a) {
  return p.g == 1 || p.c / p.g % stored_columns(a) == 0;
}

Repacked repack(const ConvProblem& given, const ConvOperands& o, std::int64_t workspace) {
  const std::int64_t run = pixels_of_run(given);
  const ConvProblem p = in_runs(given, run);
  const bool forward = p.direction == ConvDirection::forward;
  const bool data = p.direction == ConvDirection::backward_data;
  const bool weight = p.direction == ConvDirection::backward_weight;
  const Spatial out = out_size(p);
  Repacked r{};
  r.problem = p;
  r.problem.layout = ConvLayout::nhwgc;
  r.run = run;
  r.together = run > 1 ? run : is_stem(p) ? 0 : together_of(p);
  r.cell = r.apart = {1, 1, 1}, r.in_line = 1;
  r.cells = pixels_as_cells(p.size, p.c);
  ConvProblem& q = r.problem;
  const std::int64_t together = std::max<std::int64_t>(r.together, 1);
  q.g = p.g / together;
  q.in_strides[1] *= together;
  q.out_strides[1] *= together;
  r.filter_rows = q.k / q.g;
  if (data && q.g > 1) r.filter_rows = rounded_up_to(r.filter_rows, kTmawsDepth);
  r.x.data = o.in, r.w.data = o.weight, r.y.data = o.grad_out;
  workspace = rounded_up_to(workspace, kCopyUnit);

  see_result_cells(p, r);
  if (has_scattered_runs(given, run)) {
    r.has_result_cells = true;
    r.cell = {1, 1, run};
    (forward ? q.out_strides : q.in_strides) = kPackedStrides;
  }
  if (r.together == 0) {
    see_cells(p, r);
    const Cells cells = cells_of(widened(p, r.in_line));
    reserve(elements_of(p.n, cells.count, cells.size()), workspace, r.x);
  } else if (!data && !reads_image(o.in, p.in_strides, p.size, p.n, p.g, p.c / p.g, p.in)) {
    q.in_strides = copied_strides(r.cells.cell_channels);
    r.x_transposed = has_whole_planes(p.in_strides, p.size, p.g, p.c / p.g);
    reserve(elements_of(p.n, p.size, r.cells.cell_channels), workspace, r.x);
  }
  const bool reads_y = reads_image(o.grad_out, p.out_strides, out, p.n, p.g, p.k / p.g, p.out) &&
                       (data || has_pixel_lines(p));
  if (!forward && !reads_y) {
    const std::int64_t channels = rounded_up_to(p.k, device::kOctet);
    q.out_strides = copied_strides(channels);
    r.y_transposed = has_whole_planes(p.out_strides, out, p.g, p.k / p.g);
    reserve(elements_of(p.n, out, channels), workspace, r.y);
  }
  if (weight) q.weight_strides = kPackedStrides;
  const bool has_other_rows = data && r.filter_rows != q.k / q.g;
  if (!weight &&
      (r.together != 1 || r.has_result_cells || has_other_rows || !reads_filters(p, o.weight))) {
    const std::int64_t channels = rounded_up_to(q.c / q.g, device::kOctet);
    q.weight_strides = copied_strides(channels);
    reserve(elements_of(data ? q.g * r.filter_rows : q.k, q.filter, channels), workspace, r.w);
  }
  r.problem = with_strides(q);
  return r;
}

std::string unrepackable(const ConvProblem& p) {
  const bool forward = p.direction == ConvDirection::forward;
  const std::int64_t together = is_stem(p) ? 1 : together_of(p);
  const ConvStrides& s = forward ? p.out_strides : p.in_strides;
  const std::int64_t channels = (forward ? p.k : p.c) / p.g;
  const bool in_lines = forward && p.layout == ConvLayout::nhwgc;  // that the copy engine stores
  const bool adjoin = s[1] == channels * s[2] && (!in_lines || s[2] == 1);
  if (p.direction != ConvDirection::backward_weight && together > 1 && !adjoin) {
    const std::string_view image = forward ? "out" : "in";
    return fmt::format(
        "repack multiplies {0} groups together and needs results whose channels adjoin, got "
        "{1}_stride_g {2} for {3} channels of {1}_stride_{4} {5}",
        together, image, s[1], channels, forward ? "k" : "c", s[2]);
  }
  const Repacked all = repack(p, {}, 0);
  if (all.copied_bytes() > kMostCopied) {
    return fmt::format("repack copies at most {} bytes, got {}", kMostCopied, all.copied_bytes());
  }
  return {};
}

void add_repack(const ConvProblem& given, const ConvOperands& o, const Repacked& r,
                device::CudaRepackArguments& to) {
  const ConvProblem p = in_runs(given, r.run);
  const bool forward = p.direction == ConvDirection::forward;
  const bool data = p.direction == ConvDirection::backward_data;
  const Spatial out = out_size(p);
  device::ImageCopy y = pixels_as_cells(out, p.k);
  add_image(r.y, o.grad_out, p.out_strides, out, p.k, p.g, y);
  device::ImageCopy x = r.cells;
  add_image(r.x, o.in, p.in_strides, p.size, p.c, p.g, x);
  to.images[0] = data ? y : x;
  if (!data && !forward) to.images[1] = y;
  const bool first_transposed = data ? r.y_transposed : r.x_transposed;
  to.transposed = (first_transposed ? 1 : 0) + (!data && !forward && r.y_transposed ? 2 : 0);

  device::FilterCopy& w = to.filter;
  w.from = o.weight, w.to = r.w.at;
  narrow(p.weight_strides, w.stride);
  w.groups = static_cast<int>(p.g * r.in_line);
  if (r.in_line > 1) w.stride[device::kFilterG] = 0;
  w.k = static_cast<int>(p.k / p.g), w.c = static_cast<int>(p.c / p.g);
  w.rows = data && r.together == 1 ? static_cast<int>(r.filter_rows) : w.k;
  w.together = static_cast<int>(r.together);
  narrow(p.filter, w.taps);
  narrow(p.dilation, w.dilation);

  if (r.has_result_cells) {
    add_image({}, nullptr, forward ? given.out_strides : given.in_strides,
              forward ? out_size(given) : given.size, forward ? given.k : given.c, given.g,
              to.images[1]);
    add_result_cells(given, r, to);
  }
  to.channel_stride = forward ? p.out_strides[2] : p.in_strides[2];
  if (!forward) return;
  for (std::size_t i = 0; i < 3; ++i) to.pixel_stride[i] = p.out_strides[5 - i];
  to.image_stride = p.out_strides[0];
}

}  // namespace tessera::conv
