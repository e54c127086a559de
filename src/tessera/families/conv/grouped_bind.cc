// The launch of a grouped kernel: how its operands are copied, and its memory.
#include <algorithm>
#include <cstddef>

#include "tessera/device/cuda/abi.h"
#include "tessera/families/conv/grouped_internal.h"

namespace tessera::conv {
namespace {

using device::GroupedArguments;

constexpr int kMostGroupedLines = 128;              // of a product's filter in shared memory
constexpr std::int64_t kMostRowElements = 1 << 30;  // of the filters of a block

// Bytes by which an address and all distances can be divided, at most 16.
class GroupedWidth {
 public:
  explicit GroupedWidth(const void* data) { add(reinterpret_cast<std::intptr_t>(data)); }
  void add_elements(std::int64_t count, std::int64_t distance) {
    if (count > 1) add(distance * kGroupedElementBytes);
  }
  int copies() const { return width_ >= 4 ? width_ : device::kGroupedByElement; }
  int elements() const { return width_ / kGroupedElementBytes; }

 private:
  void add(std::int64_t bytes) {
    while (width_ > 1 && bytes % width_ != 0) width_ /= 2;
  }
  int width_ = 16;
};

// `met` are the places along each dimension that a tile steps over, some of them in the padding.
void add_image(const ConvProblem& p, const ConvStrides& strides, const Spatial& met,
               GroupedWidth& to) {
  to.add_elements(p.n, strides[kGroupedStrideN]);
  for (std::size_t dim = 0; dim < 3; ++dim)
    to.add_elements(met[dim], strides[kGroupedStrideD + dim]);
}
// The channels of a product, and of all groups: the last product may have fewer.
int image_width(const ConvProblem& p, const void* data, const ConvStrides& strides,
                const Spatial& met, std::int64_t channels, std::int64_t all_channels) {
  GroupedWidth width(data);
  add_image(p, strides, met, width);
  width.add_elements(2, channels);
  width.add_elements(2, all_channels);
  return width.copies();
}
Spatial met_places(const Spatial& size, const int (&tile)[3]) {
  Spatial met = size;
  for (std::size_t dim = 0; dim < 3; ++dim) met[dim] = std::max<std::int64_t>(met[dim], tile[dim]);
  return met;
}

void put_widths(const ConvProblem& p, const GroupedShape& shape, GroupedArguments& g) {
  const GroupedProduct product = grouped_product(p);
  const bool by_data = p.direction == ConvDirection::backward_data;
  const Spatial out = out_size(p);
  const void* const image = by_data ? g.conv.y : g.conv.x;
  const ConvStrides& strides = by_data ? p.out_strides : p.in_strides;
  g.image_width = image_width(p, image, strides, met_places(by_data ? out : p.size, g.halo),
                              product.depth, by_data ? p.k : p.c);
  const Spatial other = met_places(out, shape.is_wide() ? g.other_box : g.box);
  g.other_width = image_width(p, g.conv.y, p.out_strides, other, product.columns, p.k);
  GroupedWidth filter(g.conv.w);
  const std::int64_t c = p.c / p.g;
  filter.add_elements(p.g, p.weight_strides[0]);
  filter.add_elements(p.k / p.g, p.weight_strides[1]);
  for (std::size_t dim = 0; dim < 3; ++dim) {
    filter.add_elements(p.filter[dim], p.weight_strides[3 + dim]);
  }
  const bool whole = product.together == 1 && c % 8 == 0 && filter.copies() == 16;
  g.filter_width = whole ? 16 : device::kGroupedByElement;
  const std::int64_t taps = p.filter[0] * p.filter[1] * p.filter[2];
  const ConvStrides packed = {p.k / p.g * taps * c,          taps * c,        1,
                              p.filter[1] * p.filter[2] * c, p.filter[2] * c, c};
  const bool fits =
      taps * c * std::max<std::int64_t>(p.k / p.g, kMostGroupedLines) * shape.products <=
      kMostRowElements;
  // Strides may leave taps out that no result meets; these have no place in shared memory.
  const bool all = g.taps == taps;
  const bool dense = whole && fits && all && p.weight_strides == packed;
  g.row_elements = dense ? static_cast<int>(taps * c) : 0;
  g.filter_lines = grouped_lines(taps, (by_data ? shape.columns : shape.channels) / 8, shape);
  GroupedWidth result(g.conv.out);
  add_image(p, by_data ? p.in_strides : p.out_strides, by_data ? p.size : out, result);
  result.add_elements(2, product.columns);
  result.add_elements(2, by_data ? p.c : p.k);
  g.result_width = std::clamp(result.elements(), 1, 8);
}

}  // namespace

Launch bind_grouped(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                    const ConvOperands& o) {
  const GroupedShape shape = grouped_shape(p.direction, spec.algorithm);
  Launch launch;
  GroupedArguments& g = launch.arguments.make<GroupedArguments>();
  g.conv = arguments_of(p, o);
  const GroupedPlan plan = grouped_plan(p, spec.algorithm, target, g);
  put_widths(p, shape, g);
  const auto threads = static_cast<unsigned>(shape.threads());
  launch.steps.push({.grid = {static_cast<unsigned>(plan.blocks), 1, 1},
                     .block = {threads, 1, 1},
                     .shared_memory_bytes = static_cast<std::size_t>(plan.shared_bytes)});
  if (plan.part_bytes == 0) return launch;
  g.partial_sums = device::kCounterBytes;
  launch.parts = g.parts;
  launch.workspace.bytes =
      static_cast<std::size_t>(device::kCounterBytes + plan.part_bytes * plan.parts);
  launch.workspace.counter_bytes = static_cast<std::size_t>(plan.blocks / plan.parts * 4);
  launch.workspace.address_offset = offsetof(GroupedArguments, workspace);
  return launch;
}

}  // namespace tessera::conv
