// The launch of a convolution by MFMA: how a problem becomes products, and where the device finds
// pixels, taps and results.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/device/hip/conv/repack_arguments.h"
#include "tessera/families/conv/mfma_internal.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/strides.h"

namespace tessera::conv::mfma {
namespace {

using device::HipConvArguments;
using device::HipConvPart;
using device::HipGemmArguments;

constexpr std::size_t kFilterK = 1;  // among the strides of filters
constexpr int kRasterGroup = 8;
constexpr int kSumBytes = 4;
constexpr std::int64_t kDwordBytes = 4;

// ---- residues ----

Taps taps_of(std::int64_t filter, std::int64_t stride, std::int64_t dilation, std::int64_t place) {
  const std::int64_t common = std::gcd(stride, dilation), step = stride / common;
  const std::int64_t most = std::min(step, filter);
  std::int64_t first = 0;
  for (; first < most && place % stride != 0; ++first) place -= dilation;
  if (first == most) return {0, 0, 0, 0, 0};
  return {(filter - first + step - 1) / step, first, step, place / stride, -(dilation / common)};
}

Part part_of(const ConvProblem& p, const Residue& r) {
  Part part{p.n, p.k / p.g};
  for (std::size_t i = 0; i < 3; ++i) part.rows *= r.pixels[i], part.depth *= r.taps[i].count;
  return part;
}

// ---- what the device is told ----

std::int64_t stride_of(std::int64_t size, std::int64_t stride) { return size > 1 ? stride : 0; }

HipConvPart gathered(const ConvProblem& p) {
  const std::int64_t element = bytes_of(p);
  const ConvStrides& s = by_data(p) ? p.out_strides : p.in_strides;
  const Spatial size = by_data(p) ? out_size(p) : p.size;
  HipConvPart part{};
  part.channels = static_cast<int>((by_data(p) ? p.k : p.c) / p.g);
  part.images = static_cast<int>(p.n);
  part.image_pitch = stride_of(p.n, s[kN]) * element;
  part.image_bytes = part.channels * element;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t pitch = stride_of(size[i], s[kD + i]) * element;
    part.size[i] = static_cast<int>(size[i]), part.pitch[i] = static_cast<int>(pitch);
    part.image_bytes += (size[i] - 1) * pitch;
  }
  part.batch = static_cast<int>(p.g);
  return part;
}

// Forward and backward_weight: one product, whose pixels are those of y.
HipConvPart whole(const ConvProblem& p) {
  const Spatial out = out_size(p);
  const View view = view_of(p);
  HipConvPart part = gathered(p);
  part.m = static_cast<int>(view.rows), part.n = static_cast<int>(view.columns);
  part.k = static_cast<int>(view.depth);
  for (std::size_t i = 0; i < 3; ++i) {
    part.grid[i] = static_cast<int>(out[i]), part.step[i] = static_cast<int>(p.stride[i]);
    part.base[i] = static_cast<int>(-p.pad[i]), part.tap[i] = static_cast<int>(p.dilation[i]);
    part.taps[i] = static_cast<int>(p.filter[i]);
  }
  return part;
}

std::int64_t result_unit(const ConvProblem& p) { return row_of_results(p.in_strides, p.size, p.n); }

// Where the residue's taps lie in the filter, and its pixels in x.
void place_residue(const ConvProblem& p, const Residue& r, HipConvPart& part) {
  const ConvStrides &w = p.weight_strides, &s = p.in_strides;
  const std::int64_t unit = result_unit(p);
  part.filter_line = static_cast<int>(stride_of(p.k / p.g, w[kFilterK]) * bytes_of(p));
  part.result_image = stride_of(p.n, s[kN]) / unit;
  for (std::size_t i = 0; i < 3; ++i) {
    const Taps& taps = r.taps[i];
    const std::int64_t tap = stride_of(p.filter[i], w[kD + i]) * bytes_of(p);
    part.filter[i] = taps.count > 1 ? static_cast<int>(taps.step * tap) : 0;
    part.filter_first += taps.first * tap;
    const std::int64_t place = stride_of(p.size[i], s[kD + i]) / unit;
    part.result_first += r.first[i] * place;
    part.result[i] = static_cast<int>(p.stride[i] * place);
  }
}

HipConvPart of_residue(const ConvProblem& p, const Residue& r) {
  HipConvPart part = gathered(p);
  const Part size = part_of(p, r);
  part.m = static_cast<int>(size.rows), part.n = static_cast<int>(p.c / p.g);
  part.k = static_cast<int>(size.depth);
  for (std::size_t i = 0; i < 3; ++i) {
    part.grid[i] = static_cast<int>(r.pixels[i]), part.step[i] = 1;
    part.base[i] = static_cast<int>(r.taps[i].shift);
    part.tap[i] = static_cast<int>(r.taps[i].shift_step);
    part.taps[i] = static_cast<int>(std::max<std::int64_t>(1, r.taps[i].count));
  }
  place_residue(p, r, part);
  return part;
}

// The digits of a number in a mixed base, the innermost last; the first one takes all that is left.
void set_digits(int number, const int (&sizes)[3], int (&digits)[3]) {
  digits[2] = number % sizes[2], number /= sizes[2];
  digits[1] = number % sizes[1], digits[0] = number / sizes[1];
}

// By how much the walks of a tile go on.
void set_steps(const Algorithm& a, HipConvPart& part) {
  const int lines =
      tile::block_lanes(a) / std::max(1, a.tile.n / 8);  // that a block copies at once
  part.turn_channels = a.tile.k % part.channels, part.line_channels = lines % part.channels;
  set_digits(a.tile.k / part.channels, part.taps, part.turn);
  set_digits(lines / part.channels, part.taps, part.line);
  const int pixels = a.pipeline == Pipeline::async ? lines : a.tile.k;
  set_digits(pixels, part.grid, part.next);
  part.next_n = part.next[0] / part.grid[0], part.next[0] %= part.grid[0];
}

template <int kParts>
void fill_parts(const ConvProblem& p, const Algorithm& a, HipConvArguments<kParts>& all) {
  int count = 0;
  if (by_data(p)) {
    for (const Residue& r : residues_of(p)) all.parts[count++] = of_residue(p, r);
  } else {
    all.parts[count++] = whole(p);
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

// ---- repack ----

// Results, C and D lie as the problem says, each element by itself.
void set_scattered(const ConvProblem& p, const Repack& r, device::GemmArguments& g) {
  const ConvStrides& s = by_weight(p) ? p.weight_strides
                         : by_data(p) ? p.in_strides
                                      : p.out_strides;
  const std::int64_t group = r.together * s[by_weight(p) ? 0 : kG];
  std::array<DUse, kMaxD> uses{};
  if (p.epilogue.num_d > 0) uses = d_uses(p.epilogue);
  g.ld_out = g.ld_c = 1;
  g.batch_stride_out = g.batch_stride_c = group;
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    g.ld_d[i] = uses[i].is_vector() ? 0 : 1;
    g.batch_stride_d[i] = uses[i].is_vector() ? p.k / p.g * r.together : group;
  }
}

void scatter_residues(const ConvProblem& p, HipConvPart* part) {
  for (const Residue& r : residues_of(p)) {
    part->result_image = stride_of(p.n, p.in_strides[kN]);
    part->result_first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t place = stride_of(p.size[i], p.in_strides[kD + i]);
      part->result_first += r.first[i] * place;
      part->result[i] = static_cast<int>(p.stride[i] * place);
    }
    ++part;
  }
}

std::int64_t chunks_of(const device::HipConvCopy& copy) {
  std::int64_t all = copy.chunks;
  for (const int size : copy.sizes) all *= size;
  return all;
}

template <int kParts>
void set_repacked(const ConvProblem& p, const Repack& r, const ConvOperands& o, const Algorithm& a,
                  const HipGemmArguments& product, unsigned prepare, Launch& launch) {
  using Arguments = device::HipRepackArguments<kParts>;
  auto& to = launch.arguments.make<Arguments>();
  to.conv.product = product;
  fill_parts(r.problem, a, to.conv);
  if (by_data(p)) scatter_residues(p, to.conv.parts);
  device::GemmArguments& g = to.conv.product.gemm;
  set_scattered(p, r, g);
  to.result = results_of(p, r);
  RepackArguments copies = {g.a, g.b, to.in_workspace, to.copies};
  const std::int64_t begin =
      a.slices > 1 ? product.partial_sums + product.partial_bytes : device::kHipCounterBytes;
  launch.workspace.bytes = static_cast<std::size_t>(add_copies(p, o, r, begin, copies));
  launch.workspace.address_offset = offsetof(HipGemmArguments, workspace);
  const std::int64_t chunks = chunks_of(to.copies[0]) + chunks_of(to.copies[1]);
  if (chunks == 0) return;
  launch.steps.push(
      {.entry = static_cast<std::uint8_t>(prepare),
       .grid = {static_cast<unsigned>(tile::ceil_div(chunks, std::int64_t{device::kHipCopyLanes})),
                1, 1},
       .block = {device::kHipCopyLanes, 1, 1},
       .copied_bytes = static_cast<std::size_t>(r.bytes[0] + r.bytes[1])});
}

}  // namespace

std::vector<Residue> residues_of(const ConvProblem& p) {
  std::vector<Residue> all;
  Spatial count{};
  for (std::size_t i = 0; i < 3; ++i) count[i] = std::min(p.stride[i], p.size[i]);
  for (std::int64_t number = 0; number < count[0] * count[1] * count[2]; ++number) {
    Residue& r = all.emplace_back();
    std::int64_t rest = number;
    for (std::size_t i = 3; i-- > 0; rest /= count[i]) {
      const std::int64_t at = rest % count[i];
      r.taps[i] = taps_of(p.filter[i], p.stride[i], p.dilation[i], at + p.pad[i]);
      r.first[i] = at;
      r.pixels[i] = tile::ceil_div(p.size[i] - at, p.stride[i]);
    }
  }
  return all;
}
std::int64_t row_of_results(const ConvStrides& s, const Spatial& size, std::int64_t n) {
  std::int64_t unit = stride_of(n, s[kN]);
  for (std::size_t i = 0; i < 3; ++i) unit = std::gcd(unit, stride_of(size[i], s[kD + i]));
  return std::max<std::int64_t>(unit, 1);
}

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

// Whoever asks for sizes alone has no addresses.
void refuse_unaligned(std::string_view name, const void* data, Pipeline pipeline) {
  const auto excess = reinterpret_cast<std::uintptr_t>(data) % kDwordBytes;
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("conv: {} must be aligned to {} bytes for {}, got an address {} past a "
                          "multiple of that; use a direct kernel",
                          name, kDwordBytes, to_string(pipeline), excess));
}

double farthest_result(const ConvProblem& p) {
  double most = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto place = static_cast<double>(stride_of(p.size[i], p.in_strides[kD + i]));
    most = std::max(most, static_cast<double>(p.stride[i]) * place);
  }
  return most / static_cast<double>(result_unit(p));
}

std::int64_t pixel_distance(const ConvStrides& s, const Spatial& size, std::int64_t n,
                            std::int64_t alone) {
  return tile::common_distance({{size[2], s[kW]}, {size[1], s[kH]}, {size[0], s[kD]}, {n, s[kN]}},
                               alone)
      .value_or(-1);
}

bool taps_adjoin(const ConvProblem& p) {
  const ConvStrides& w = p.weight_strides;
  const std::int64_t c = p.c / p.g;
  return tile::common_distance(
             {{c, w[kC]}, {p.filter[2], w[kW]}, {p.filter[1], w[kH]}, {p.filter[0], w[kD]}}, 1) ==
         1;
}

Plan plan_of(const ConvProblem& p) {
  const View view = view_of(p);
  Plan plan;
  plan.columns = view.columns, plan.groups = p.g;
  if (by_data(p)) {
    for (const Residue& r : residues_of(p)) {
      plan.parts.push_back(part_of(p, r));
    }
  } else {
    plan.parts.push_back({view.rows, view.depth});
  }
  for (const Part& part : plan.parts) plan.most_rows = std::max(plan.most_rows, part.rows);
  return plan;
}

Launch bind(const KernelSpec& spec, const ConvProblem& given, const Target&,
            const ConvOperands& o) {
  const Algorithm& a = spec.algorithm;
  const Repack copied = a.repack ? repack(given) : Repack{given};
  const ConvProblem& p = copied.problem;
  if (!a.repack) check_addresses(p, a, o);
  const Plan plan = plan_of(p);
  Launch launch;
  HipGemmArguments product = product_of(p, o);
  const std::int64_t tiles = tile::ceil_div(plan.most_rows, a.tile.m) *
                             tile::ceil_div(plan.columns, a.tile.n) * plan.groups;
  if (a.slices > 1) add_partial_sums(a, tiles, product, launch);
  constexpr std::int64_t kMostLanes = std::numeric_limits<std::uint32_t>::max();  // of a grid
  product.blocks = static_cast<int>(std::min(tiles * a.slices, kMostLanes / tile::block_lanes(a)));
  const bool has_whole = has_whole_taps(std::get<ConvSignature>(spec.signature), a);
  if (a.repack) {
    const unsigned prepare = has_whole ? 2 : 1;
    by_data(p)
        ? set_repacked<device::kHipRepackParts>(given, copied, o, a, product, prepare, launch)
        : set_repacked<1>(given, copied, o, a, product, prepare, launch);
  } else if (by_data(p)) {
    set_arguments<device::kHipConvParts>(p, a, product, launch);
  } else {
    set_arguments<1>(p, a, product, launch);
  }
  launch.steps.push(
      {.entry = has_whole && lies_in_whole_taps(p, a) ? kWholeTaps : kAnyTaps,
       .grid = {static_cast<unsigned>(product.blocks), static_cast<unsigned>(plan.parts.size()), 1},
       .block = {static_cast<unsigned>(tile::block_lanes(a)), 1, 1}});
  return launch;
}

}  // namespace tessera::conv::mfma
