// The launch of a tmaws kernel: which windows the copy engine sees, and the grid.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "tessera/base/error.h"
#include "tessera/device/conv.h"
#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {
namespace {

using device::ConvClass;
using device::ConvMatrix;
using device::CudaConvArguments;
using device::CudaRepackArguments;

constexpr int kRasterGroup = 8;
constexpr int kStoredPixels = 16;         // of a warp, see device/cuda/conv/residue_store.h
constexpr std::uint32_t kStoreRows = 64;  // rows of wgmma's output that one store writes
constexpr int kMostLanes = 16;
constexpr std::int64_t kMostCopyBlocks = 1 << 20;
constexpr std::int64_t kManyThreads = 132 * 1024;

// What one launch needs besides the plan.
struct Bound {
  const ConvSignature& signature;
  const Algorithm& algorithm;
  const ConvProblem& problem;
  const TmawsPlan& plan;
  device::ConvArguments arguments;
  RepackedOperand x = {}, w = {}, y = {};
  // With repack: whether threads store elements that lie anywhere, and whether the copy engine
  // stores the pixels of backward_data.
  bool by_elements = false;
  bool by_copy = true;
};

bool is_forward(const Bound& b) { return b.problem.direction == ConvDirection::forward; }
bool is_data(const Bound& b) { return b.problem.direction == ConvDirection::backward_data; }
bool is_weight(const Bound& b) { return b.problem.direction == ConvDirection::backward_weight; }

bool keeps_sums(const Bound& b) {
  return b.algorithm.slices > 1 || (b.algorithm.repack && is_weight(b));
}

std::uintptr_t misalignment(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % tile::kTmaBytes;
}

TensorMap window(std::string_view name, const void* base, DType dtype, std::size_t offset) {
  const std::uintptr_t excess = misalignment(base);
  if (excess != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("conv: {} must be aligned to {} bytes for tmaws, got an address {} "
                            "past a multiple of that; use a direct kernel or one with repack",
                            name, tile::kTmaBytes, excess));
  }
  TensorMap map{};
  map.offset = offset;
  map.base = base;
  map.dtype = dtype;
  return map;
}

TensorMap window(std::string_view name, const RepackedOperand& operand, DType dtype,
                 std::size_t offset) {
  TensorMap map = window(name, operand.data, dtype, offset);
  map.in_workspace = operand.at != 0;
  map.workspace_offset = static_cast<std::size_t>(operand.at);
  return map;
}

// A window on a stack of matrices: sizes and strides in elements, the innermost first.
TensorMap tiled(TensorMap map, const std::array<std::int64_t, 3>& sizes,
                const std::array<std::int64_t, 2>& strides, const std::array<std::uint32_t, 3>& box,
                int swizzle_bytes) {
  const std::int64_t size = size_of(map.dtype);
  map.rank = 3;
  for (std::size_t i = 0; i < 3; ++i) {
    map.sizes[i] = static_cast<std::uint64_t>(sizes[i]);
    map.box[i] = box[i];
  }
  // A dimension of one element has any stride; the copy engine wants a multiple of 16 bytes.
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t stride = sizes[i + 1] == 1 ? tile::kTmaBytes : strides[i];
    map.strides[i] = static_cast<std::uint64_t>(stride * size);
  }
  map.swizzle_bytes = swizzle_bytes;
  return map;
}

// An image as columns of pixels. `size` and `stride` hold the spatial dimensions and then the
// images.
struct Pixels {
  std::int64_t channels;
  std::array<std::int64_t, 4> size, stride;
  Innermost low, high, step;
  int pixels, columns;  // of one copy
};

TensorMap pixels(TensorMap map, int dims, const Pixels& x) {
  const std::int64_t size = size_of(map.dtype);
  map.rank = dims + 2;
  map.sizes[0] = static_cast<std::uint64_t>(x.channels);
  map.steps[0] = 1;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(dims); ++i) {
    const bool is_image = i == static_cast<std::size_t>(dims);
    const std::size_t from = is_image ? 3 : i;
    map.sizes[i + 1] = static_cast<std::uint64_t>(x.size[from]);
    const std::int64_t stride = x.size[from] == 1 ? tile::kTmaBytes : x.stride[from];
    map.strides[i] = static_cast<std::uint64_t>(stride * size);
    map.steps[i + 1] = is_image ? 1 : static_cast<std::uint32_t>(x.step[i]);
    if (is_image) continue;
    map.im2col.low[i] = static_cast<std::int32_t>(x.low[i]);
    map.im2col.high[i] = static_cast<std::int32_t>(x.high[i]);
  }
  map.im2col.pixels = static_cast<std::uint32_t>(x.pixels);
  map.im2col.channels = static_cast<std::uint32_t>(x.columns);
  map.swizzle_bytes = x.columns * static_cast<int>(size);
  return map;
}

std::array<std::int64_t, 4> with_images(const Innermost& dims, std::int64_t images) {
  return {dims[0], dims[1], dims[2], images};
}

std::size_t class_offset(std::size_t index) {
  return offsetof(CudaConvArguments, classes) + index * sizeof(ConvClass);
}

// ---- the windows ----

// The filters, or in backward_weight y.
TensorMap other_window(const Bound& b) {
  const ConvProblem& p = b.problem;
  const TmawsPlan& plan = b.plan;
  constexpr std::uint32_t kUnit = kTmawsDepth;
  constexpr std::size_t kOffset = offsetof(CudaConvArguments, other);
  if (is_weight(b)) {
    return tiled(window("grad_out", b.y, p.out, kOffset), {p.k / p.g, plan.classes[0].rows, p.g},
                 {plan.y_distance, p.out_strides[1]}, {kUnit, kUnit, 1}, tile::kTmawsLineBytes);
  }
  const std::int64_t taps = p.filter[0] * p.filter[1] * p.filter[2];
  const std::uint32_t lines =
      is_forward(b) ? static_cast<std::uint32_t>(b.algorithm.tile.n) : kUnit;
  return tiled(window("weight", b.w, p.weight, kOffset), {p.c / p.g, taps, p.k},
               {plan.tap_distance, p.weight_strides[1]}, {kUnit, 1, lines}, tile::kTmawsLineBytes);
}

TensorMap image_window(const Bound& b, std::size_t index) {
  const TmawsImage& image = b.plan.image;
  const TmawsClass& c = b.plan.classes[index];
  const RepackedOperand& base = is_data(b) ? b.y : b.x;
  const std::size_t offset = class_offset(index) + offsetof(ConvClass, image);
  const int rows = is_weight(b) ? static_cast<int>(kTmawsDepth) : b.algorithm.tile.m;
  return pixels(window(is_data(b) ? "grad_out" : "in", base, image.dtype, offset), b.plan.dims,
                {image.channels, with_images(image.size, b.problem.n),
                 with_images(image.stride, image.image_stride), c.low, c.high, b.plan.pixel_step,
                 rows, kTmawsDepth});
}

// The pixels of one class in x, as an image of their own.
TensorMap class_window(const Bound& b, std::size_t index) {
  const ConvProblem& p = b.problem;
  const TmawsClass& c = b.plan.classes[index];
  const auto* const out = static_cast<const char*>(b.arguments.out);
  const void* const base = out == nullptr ? nullptr : out + c.offset * size_of(p.in);
  const std::size_t offset = class_offset(index) + offsetof(ConvClass, out);
  const Innermost stride = {p.in_strides[5] * p.stride[2], p.in_strides[4] * p.stride[1],
                            p.in_strides[3] * p.stride[0]};
  const int columns = std::max(16, device::chunk_of(b.algorithm.tile.n));
  return pixels(window("grad_in", base, p.in, offset), b.plan.dims,
                {p.c,
                 with_images(c.pixels, p.n),
                 with_images(stride, p.in_strides[0]),
                 {},
                 {},
                 {1, 1, 1},
                 kStoredPixels,
                 columns});
}

// Whether the copy engine can move these matrices. The kernel asks the same question.
bool moves(const ConvMatrix& g, const void* data, std::int64_t ld, std::int64_t batch_stride,
           DType dtype, std::int64_t columns) {
  const std::int64_t elements = columns | ld | (g.batch > 1 ? batch_stride : 0);
  const auto bytes = static_cast<std::uintptr_t>(elements * size_of(dtype));
  return ((reinterpret_cast<std::uintptr_t>(data) | bytes) % tile::kTmaBytes) == 0;
}

// The output, and the D tensors that the copy engine brings to its place in shared memory.
void add_output_windows(const Bound& b, const ConvMatrix& g, Launch& launch) {
  const tile::Product product = tmaws_product(b.signature);
  if (!tile::tmaws_copies_out(product, b.algorithm)) return;
  if (!moves(g, g.out, g.ld_out, g.batch_stride_out, product.out, g.columns)) return;
  const tile::TmawsDRoles roles = tile::tmaws_d_roles(b.signature.epilogue);
  const auto matrices = static_cast<std::size_t>(roles.matrices);
  const auto index_of = [&](std::size_t i) { return static_cast<std::size_t>(roles.matrix[i]); };
  for (std::size_t i = 0; i < matrices; ++i) {
    const std::size_t d = index_of(i);
    if (!moves(g, g.d[d], g.ld_d[d], g.batch_stride_d[d], product.d, 0)) return;
  }
  const auto chunk = static_cast<std::uint32_t>(tile::tmaws_out_chunk(product, b.algorithm));
  const int line = static_cast<int>(chunk) * size_of(product.out);
  const auto add = [&](TensorMap map, std::int64_t ld, std::int64_t batch_stride) {
    launch.tensor_maps.push(tiled(map, {g.columns, g.rows, g.batch}, {ld, batch_stride},
                                  {chunk, kStoreRows, 1}, line < 32 ? 0 : line));
  };
  add(window("out", g.out, product.out, class_offset(0) + offsetof(ConvClass, out)), g.ld_out,
      g.batch_stride_out);
  for (std::size_t i = 0; i < matrices; ++i) {
    const std::size_t d = index_of(i);
    const std::size_t offset =
        offsetof(CudaConvArguments, d_maps) + i * sizeof(device::CudaTensorMap);
    add(window("d", g.d[d], product.d, offset), g.ld_d[d], g.batch_stride_d[d]);
  }
}

void add_windows(const Bound& b, const ConvMatrix& g, Launch& launch) {
  launch.tensor_maps.push(other_window(b));
  for (std::size_t i = 0; i < b.plan.classes.size(); ++i) {
    if (b.plan.classes[i].steps > 0) launch.tensor_maps.push(image_window(b, i));
    if (is_data(b) && !keeps_sums(b) && b.by_copy) launch.tensor_maps.push(class_window(b, i));
  }
  if (!is_data(b) && !keeps_sums(b) && !b.by_elements) add_output_windows(b, g, launch);
}

// ---- the arguments ----

// Where a kernel stores to pixels that lie anywhere, a row of the matrix is a pair of elements.
ConvMatrix matrix_of(const Bound& b) {
  const TmawsPlan& plan = b.plan;
  const bool anywhere = (is_data(b) && b.algorithm.slices == 1) || b.by_elements;
  const std::int64_t ld = anywhere ? 2 : plan.ld;
  ConvMatrix g{};
  g.rows = plan.rows, g.columns = plan.columns, g.batch = plan.batch;
  g.c = b.arguments.before, g.out = b.arguments.out;
  g.ld_c = g.ld_out = ld;
  g.batch_stride_c = g.batch_stride_out = plan.batch_stride;
  const auto uses = d_uses(b.signature.epilogue);
  for (std::size_t i = 0; i < b.signature.epilogue.num_d; ++i) {
    const bool is_vector = uses[i].is_vector();
    g.d[i] = b.arguments.d[i];
    g.ld_d[i] = is_vector ? 0 : ld;
    g.batch_stride_d[i] = is_vector ? plan.columns : plan.batch_stride;
  }
  const ConvProblem& p = b.problem;
  g.alpha = p.alpha, g.beta = p.beta, g.clamp_lo = p.clamp_lo, g.clamp_hi = p.clamp_hi;
  return g;
}

void copy(const Innermost& from, int (&to)[3]) {
  for (std::size_t i = 0; i < 3; ++i) to[i] = static_cast<int>(from[i]);
}

void add_classes(const Bound& b, CudaConvArguments& to) {
  const ConvProblem& p = b.problem;
  for (std::size_t i = 0; i < b.plan.classes.size(); ++i) {
    const TmawsClass& from = b.plan.classes[i];
    ConvClass& c = to.classes[i];
    c.first_tile = static_cast<int>(from.first_tile);
    c.tiles_p = static_cast<int>(from.tiles_p);
    c.rows = static_cast<int>(from.rows);
    c.steps = static_cast<int>(from.steps);
    c.filter = static_cast<int>(from.filter);
    copy(from.pixels, c.pixels);
    copy(from.start, c.start);
    copy(from.taps, c.taps);
    to.class_offset[i] = from.offset;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    to.pixel_stride[i] = p.in_strides[5 - i] * p.stride[2 - i];
  }
  to.image_stride = p.in_strides[0];
}

void add_plan(const Bound& b, CudaConvArguments& to) {
  const TmawsPlan& plan = b.plan;
  to.num_classes = static_cast<int>(plan.classes.size());
  to.tiles = static_cast<int>(plan.tiles);
  to.tiles_q = static_cast<int>(plan.tiles_q);
  to.raster_group = kRasterGroup;
  to.image_channels = static_cast<int>(plan.image_channels);
  to.other_channels = static_cast<int>(plan.other_channels);
  to.result_channels = static_cast<int>(plan.columns);
  to.slabs = static_cast<int>(plan.slabs);
  to.batch_is_tap = plan.batch_is_tap ? 1 : 0;
  copy(plan.pixel_step, to.pixel_step);
  copy(plan.tap_step, to.tap_step);
  copy(plan.filter_step, to.filter_step);
  add_classes(b, to);
}

// ---- the steps ----

// Reserves the sums of all slices.
void reserve_sums(const Bound& b, CudaConvArguments& to, Launch& launch) {
  const std::int64_t pitch = (b.plan.columns + 3) / 4 * 4;
  const std::int64_t bytes = b.plan.batch * b.plan.rows * pitch * 4 * b.algorithm.slices;
  to.pitch = static_cast<int>(pitch);
  to.partial_sums = device::kCounterBytes;
  launch.workspace.bytes = static_cast<std::size_t>(device::kCounterBytes + bytes);
  launch.workspace.address_offset = offsetof(CudaConvArguments, workspace);
}

Step main_step(const Bound& b, unsigned threads) {
  return {.extent = Step::Extent::resident,
          .grid = {static_cast<unsigned>(b.plan.tiles * b.algorithm.slices), 1, 1},
          .block = {threads, 1, 1},
          .shared_memory_bytes = static_cast<std::size_t>(
              tile::shared_memory(tmaws_product(b.signature), b.algorithm).all)};
}

// ---- repack ----

// Copies, 16 bytes a thread; any number of blocks is right.
Step prepare_step(const Repacked& r, unsigned threads) {
  const std::int64_t blocks = r.copied_bytes() / 16 / threads + 1;
  return {.entry = 1,
          .extent = Step::Extent::any,
          .grid = {static_cast<unsigned>(std::min(blocks, kMostCopyBlocks)), 1, 1},
          .block = {threads, 1, 1},
          .copied_bytes = static_cast<std::size_t>(r.copied_bytes())};
}

// Few elements of many slices are added up by several threads each.
int lanes_of(std::int64_t elements, int slices) {
  int lanes = 1;
  while (lanes < kMostLanes && lanes * 2 <= slices && elements * lanes < kManyThreads) lanes *= 2;
  return lanes;
}

// The step that adds up the sums of so many elements of the filters.
Step filter_sum_step(std::int64_t elements, int lanes, unsigned threads) {
  const std::int64_t per_block = threads / static_cast<unsigned>(lanes);
  return {.entry = 2,
          .grid = {static_cast<unsigned>(tile::ceil_div(elements, per_block)), 1, 1},
          .block = {threads, 1, 1}};
}

Launch bind_repacked(const KernelSpec& spec, const ConvProblem& p, const ConvOperands& o) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  // The sums of filters come first in the workspace; their size follows from the plan, which does
  // not depend on where operands lie.
  Repacked repacked = repack(p, o, device::kCounterBytes);
  const TmawsPlan plan = tmaws_plan(repacked.problem, form_of(s, a, repacked.apart));
  const auto threads = static_cast<unsigned>(device::tma_threads(a.wave.m));
  Launch launch;
  CudaRepackArguments arguments{};
  Bound b = {s, a, repacked.problem, plan, arguments_of(repacked.problem, o)};
  launch.workspace.bytes = device::kCounterBytes;
  const std::int64_t elements = p.k * (p.c / p.g) * p.filter[0] * p.filter[1] * p.filter[2];
  if (is_weight(b)) {
    reserve_sums(b, arguments, launch);
    arguments.lanes = lanes_of(elements, a.slices);
    repacked = repack(p, o, static_cast<std::int64_t>(launch.workspace.bytes));
  }
  launch.workspace.address_offset = offsetof(CudaConvArguments, workspace);
  for (const RepackedOperand* operand : {&repacked.x, &repacked.y, &repacked.w}) {
    if (operand->at == 0) continue;
    launch.workspace.bytes =
        std::max(launch.workspace.bytes, static_cast<std::size_t>(operand->at + operand->bytes));
  }
  b.x = repacked.x, b.w = repacked.w, b.y = repacked.y;
  b.by_elements = p.layout == ConvLayout::nchw || repacked.has_result_cells;
  b.by_copy = !repacked.has_result_cells && copies_pixels(p, o.grad_in);
  arguments.result = matrix_of(b);
  add_plan(b, arguments);
  add_repack(p, o, repacked, arguments);
  arguments.by_copy = b.by_copy ? 1 : 0;
  add_windows(b, arguments.result, launch);
  if (repacked.copied_bytes() > 0) launch.steps.push(prepare_step(repacked, threads));
  launch.steps.push(main_step(b, threads));
  if (is_weight(b)) launch.steps.push(filter_sum_step(elements, arguments.lanes, threads));
  if (launch.workspace.bytes == device::kCounterBytes) launch.workspace.bytes = 0;
  launch.arguments.set(arguments);
  return launch;
}

}  // namespace

Launch bind_tmaws(const KernelSpec& spec, const ConvProblem& p, const Target&,
                  const ConvOperands& o) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  if (a.repack) return bind_repacked(spec, p, o);
  const TmawsPlan plan = tmaws_plan(p, form_of(s, a));
  Bound b = {s, a, p, plan, arguments_of(p, o)};
  b.x.data = b.arguments.x, b.w.data = b.arguments.w, b.y.data = b.arguments.y;
  Launch launch;
  CudaConvArguments arguments{};
  arguments.result = matrix_of(b);
  add_plan(b, arguments);
  add_windows(b, arguments.result, launch);
  const auto threads = static_cast<unsigned>(device::tma_threads(a.wave.m));
  launch.steps.push(main_step(b, threads));
  if (a.slices > 1) {
    reserve_sums(b, arguments, launch);
    launch.workspace.counter_bytes = static_cast<std::size_t>(plan.tiles * a.wave.m * 4);
  }
  launch.arguments.set(arguments);
  return launch;
}

}  // namespace tessera::conv
