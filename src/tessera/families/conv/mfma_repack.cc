// Which operands a kernel by MFMA with repack copies, and what its main loop then sees: channels
// last, in whole chunks, with several groups of few channels as one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tessera/device/hip/conv/repack_arguments.h"
#include "tessera/families/conv/mfma_internal.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::conv::mfma {
namespace {

using device::HipConvCopy;

constexpr double kMostCopied = 0x1p33;      // bytes
constexpr std::int64_t kCopyUnit = 256;     // copies begin at multiples of it
constexpr std::int64_t kMostTogether = 64;  // channels of groups that are one

std::int64_t up_to(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}
std::int64_t stride_where(std::int64_t size, std::int64_t stride) { return size > 1 ? stride : 0; }

// As many groups as fill a tile's columns. Their product has zeros for the channels of each other,
// which costs less than a tile for each.
std::int64_t groups_together(const ConvProblem& p) {
  const std::int64_t channels = std::max<std::int64_t>(1, std::max(p.c, p.k) / p.g);
  std::int64_t best = 1;
  for (std::int64_t count = 2; count <= p.g && count * channels <= kMostTogether; ++count) {
    if (p.g % count == 0) best = count;
  }
  return best;
}

struct GatheredImage {
  const ConvStrides& strides;
  const Spatial& size;
  std::int64_t channels;  // of a group
};

// Whether the main loop can read an image where it lies.
bool is_in_place(const ConvProblem& p, const GatheredImage& x, std::int64_t together) {
  const std::int64_t unit = tile::kLaneBytes / bytes_of(p);
  const std::int64_t dword = std::max<std::int64_t>(1, 4 / bytes_of(p));
  const ConvStrides& s = x.strides;
  if (x.channels * together % unit != 0 || (x.channels > 1 && s[kC] != 1)) return false;
  if (p.g > 1 && (together > 1 ? s[kG] != x.channels : s[kG] % dword != 0)) return false;
  if (p.n > 1 && s[kN] % dword != 0) return false;
  for (std::size_t i = 0; i < 3; ++i) {
    if (x.size[i] > 1 && s[kD + i] % dword != 0) return false;
  }
  return true;
}
// Rows of y in backward_weight.
bool has_rows(const ConvProblem& p, const Spatial& out, std::int64_t together) {
  return pixel_distance(p.out_strides, out, p.n, p.k) >= p.k / p.g * together;
}

ConvStrides joined(const ConvStrides& s, std::int64_t together) {
  ConvStrides all = s;
  all[kG] *= together, all[kC] = 1;
  return all;
}

double elements(const ConvProblem& p, const Spatial& size, std::int64_t channels) {
  return double(p.n) * double(size[0]) * double(size[1]) * double(size[2]) * double(channels);
}

// ---- what the device is told ----

template <class To, std::size_t kCount>
void set_sizes(const std::array<std::int64_t, kCount>& sizes,
               const std::array<std::int64_t, kCount>& strides, To& copy) {
  for (std::size_t i = 0; i < kCount; ++i) {
    copy.sizes[i] = static_cast<int>(sizes[i]), copy.strides[i] = strides[i];
  }
}

HipConvCopy copy_of_image(const Repack& r, const ConvProblem& p, const GatheredImage& x,
                          std::int64_t channels_seen) {
  const ConvStrides& s = x.strides;
  HipConvCopy copy{};
  set_sizes<HipConvCopy, 5>({p.n, x.size[0], x.size[1], x.size[2], r.problem.g},
                            {s[kN], s[kD], s[kH], s[kW], s[kG] * r.together}, copy);
  copy.chunks = static_cast<int>(channels_seen * bytes_of(p) / tile::kLaneBytes);
  copy.channels = static_cast<int>(x.channels * r.together);
  copy.of_group = static_cast<int>(x.channels);
  copy.channel_stride = s[kC], copy.group_stride = s[kG];
  copy.rows = copy.rows_of_group = copy.sizes[1];
  copy.across = s[kW] < s[kC] && x.size[2] > 1 ? 1 : 0;
  return copy;
}

HipConvCopy copy_of_filters(const Repack& r, const ConvProblem& p) {
  const ConvStrides& w = p.weight_strides;
  const ConvProblem& q = r.problem;
  HipConvCopy copy{};
  set_sizes<HipConvCopy, 5>({q.g, q.k / q.g, p.filter[0], p.filter[1], p.filter[2]},
                            {w[0] * r.together, w[1], w[kD], w[kH], w[kW]}, copy);
  copy.chunks = static_cast<int>(q.c / q.g * bytes_of(p) / tile::kLaneBytes);
  copy.channels = static_cast<int>(p.c / p.g * r.together);
  copy.of_group = static_cast<int>(p.c / p.g);
  copy.channel_stride = w[kC], copy.group_stride = 0;
  copy.rows = static_cast<int>(p.k / p.g * r.together);
  copy.rows_of_group = static_cast<int>(p.k / p.g);
  copy.row_group_stride = w[0], copy.is_filter = 1;
  return copy;
}

}  // namespace

Repack repack(const ConvProblem& p) {
  const std::int64_t unit = tile::kLaneBytes / bytes_of(p);
  const Spatial out = out_size(p);
  Repack r{};
  r.problem = p;
  r.together = groups_together(p);
  ConvProblem& q = r.problem;
  q.layout = ConvLayout::nhwgc;
  q.g = p.g / r.together;
  q.c = q.g * up_to(p.c / p.g * r.together, unit);
  q.k = q.g * up_to(p.k / p.g * r.together, unit);
  q.in_strides = q.weight_strides = q.out_strides = kPackedStrides;
  q = with_strides(q);
  const GatheredImage x = {p.in_strides, p.size, p.c / p.g};
  const GatheredImage y = {p.out_strides, out, p.k / p.g};
  r.copies_x = !by_data(p) && !is_in_place(p, x, r.together);
  r.copies_y = p.direction != ConvDirection::forward &&
               !(is_in_place(p, y, r.together) && (by_data(p) || has_rows(p, out, r.together)));
  if (!by_data(p) && !r.copies_x) q.in_strides = joined(p.in_strides, r.together);
  if (p.direction != ConvDirection::forward && !r.copies_y) {
    q.out_strides = joined(p.out_strides, r.together);
  }
  const double element = bytes_of(p);
  r.bytes[0] = r.copies_x                 ? element * elements(p, p.size, q.c)
               : r.copies_y && by_data(p) ? element * elements(p, out, q.k)
                                          : 0;
  const std::int64_t of_group = q.c / q.g;
  const double filters = double(q.k) * double(of_group) * double(p.filter[0]) *
                         double(p.filter[1]) * double(p.filter[2]) * element;
  r.bytes[1] = !by_weight(p) ? filters : r.copies_y ? element * elements(p, out, q.k) : 0;
  return r;
}

bool wants_repack(const ConvProblem& p) {
  const std::int64_t unit = tile::kLaneBytes / bytes_of(p);
  const Repack r = repack(p);
  return p.layout != ConvLayout::nhwgc || p.c / p.g % unit != 0 || p.k / p.g % unit != 0 ||
         r.together > 1 || r.copies_x || r.copies_y || !taps_adjoin(p);
}

std::string unrepackable(const ConvProblem& p) {
  const Repack r = repack(p);
  const double copied = r.bytes[0] + r.bytes[1];
  if (copied <= kMostCopied) return {};
  return fmt::format("repack copies at most {:.0f} bytes, got {:.0f}; use a direct kernel",
                     kMostCopied, copied);
}

// The first copy is of an image, the second one of filters or, of backward_weight, of y.
std::int64_t add_copies(const ConvProblem& p, const ConvOperands& o, const Repack& r,
                        std::int64_t workspace, RepackArguments& to) {
  const ConvProblem& q = r.problem;
  const Spatial out = out_size(p);
  const std::int64_t first = up_to(workspace, kCopyUnit);
  const std::int64_t second = first + up_to(static_cast<std::int64_t>(r.bytes[0]), kCopyUnit);
  const GatheredImage x = {p.in_strides, p.size, p.c / p.g};
  const GatheredImage y = {p.out_strides, out, p.k / p.g};
  const auto set = [&](std::size_t index, HipConvCopy copy, const void* from, std::int64_t at) {
    copy.from = from, copy.to = at;
    to.copies[index] = copy;
  };
  // An operand's address is an offset where it is copied.
  const auto place = [&](std::size_t operand, const void*& data, std::int64_t at) {
    data = reinterpret_cast<const void*>(at);
    to.in_workspace[operand] = -1;
  };
  if (by_weight(p)) {
    if (r.copies_x) set(0, copy_of_image(r, p, x, q.c / q.g), o.in, first), place(1, to.b, first);
    if (r.copies_y) {
      set(1, copy_of_image(r, p, y, q.k / q.g), o.grad_out, second), place(0, to.a, second);
    }
  } else {
    const bool data = by_data(p);
    if (data ? r.copies_y : r.copies_x) {
      set(0, copy_of_image(r, p, data ? y : x, (data ? q.k : q.c) / q.g), data ? o.grad_out : o.in,
          first);
      place(0, to.a, first);
    }
    set(1, copy_of_filters(r, p), o.weight, second), place(1, to.b, second);
  }
  return second + up_to(static_cast<std::int64_t>(r.bytes[1]), kCopyUnit);
}

device::HipConvResult results_of(const ConvProblem& p, const Repack& r) {
  device::HipConvResult to{};
  const Spatial out = out_size(p);
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  const bool weight = by_weight(p), data = by_data(p);
  const ConvStrides& s = weight ? p.weight_strides : data ? p.in_strides : p.out_strides;
  const Spatial size = weight ? p.filter : data ? p.size : out;
  to.image = weight ? 0 : stride_where(p.n, s[kN]);
  for (std::size_t i = 0; i < 3; ++i) to.place[i] = stride_where(size[i], s[kD + i]);
  const std::int64_t of_group = p.direction == ConvDirection::forward ? k : c;
  to.channels = static_cast<int>(of_group * r.together), to.of_group = static_cast<int>(of_group);
  to.channel_stride = s[kC], to.group_stride = weight ? s[0] : s[kG];
  to.rows = static_cast<int>(k * r.together), to.rows_of_group = static_cast<int>(k);
  to.row_stride = weight ? s[1] : 0;
  return to;
}

}  // namespace tessera::conv::mfma
