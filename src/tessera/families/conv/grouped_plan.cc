// The launch of a grouped kernel: taps as offsets, the tile of a problem, how operands are copied.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tessera/device/cuda/abi.h"
#include "tessera/families/conv/grouped_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {
namespace {

using device::GroupedArguments;
using device::GroupedClass;
using device::GroupedDivisor;

constexpr int kElementBytes = 2;
constexpr int kOwnShared = 1024;  // bytes of each block that the system takes
constexpr int kUnitThreads = 2048;
constexpr int kMostPlacesOfTile = 1 << 14;
constexpr double kMostResident = 16;
enum { kImageStrideN = 0, kImageStrideD = 3 };  // among the strides of images

GroupedDivisor divisor_of(std::int64_t by) {
  const auto value = static_cast<std::uint64_t>(by);
  if (value <= 1) return {1, 0};
  return {static_cast<unsigned>(value),
          static_cast<unsigned>(((std::uint64_t{1} << 32) + value - 1) / value)};
}
int odd_chunks_of(int bytes) { return bytes / 16 % 2 != 0 ? bytes : bytes + 16; }
int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }
std::int64_t floor_of(std::int64_t value, std::int64_t by) {
  return value >= 0 ? value / by : -((-value + by - 1) / by);
}

// ---- taps and classes ----

// The taps of one dimension for results that begin at `start`: number and place in the image.
struct LineTaps {
  int start = 0;
  std::vector<std::pair<int, std::int64_t>> taps;
};

std::vector<LineTaps> taps_along(const ConvProblem& p, std::size_t dim) {
  const bool by_data = p.direction == ConvDirection::backward_data;
  std::vector<LineTaps> all;
  const std::int64_t stride = by_data ? p.stride[dim] : 1;
  for (std::int64_t start = 0; start < std::min(stride, std::max<std::int64_t>(p.size[dim], 1));
       ++start) {
    LineTaps line;
    line.start = static_cast<int>(start);
    for (std::int64_t f = 0; f < p.filter[dim]; ++f) {
      const std::int64_t moved = f * p.dilation[dim];
      if (!by_data) {
        line.taps.emplace_back(static_cast<int>(f), moved);
      } else if ((start + p.pad[dim] - moved) % stride == 0) {
        line.taps.emplace_back(static_cast<int>(f), floor_of(start + p.pad[dim] - moved, stride));
      }
    }
    all.push_back(std::move(line));
  }
  return all;
}

// A tap by its places along the dimensions, from the first place that a tile meets.
struct TapPlaces {
  std::int64_t filter;
  Spatial at;
};

struct TapTable {
  std::vector<TapPlaces> taps;
  std::vector<GroupedClass> classes;
  Spatial origin{}, reach{};  // of the taps: the first place, and how far the last one lies from it
};

TapTable table_of(const ConvProblem& p) {
  std::array<std::vector<LineTaps>, 3> lines;
  TapTable table;
  for (std::size_t dim = 0; dim < 3; ++dim) {
    lines[dim] = taps_along(p, dim);
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = -least;
    for (const LineTaps& line : lines[dim]) {
      for (const auto& [tap, at] : line.taps)
        least = std::min(least, at), most = std::max(most, at);
    }
    if (least > most) least = most = 0;
    table.origin[dim] = least, table.reach[dim] = most - least;
  }
  const ConvStrides& s = p.weight_strides;
  for (const LineTaps& z : lines[0]) {
    for (const LineTaps& y : lines[1]) {
      for (const LineTaps& x : lines[2]) {
        const int first = static_cast<int>(table.taps.size());
        for (const auto& [fz, az] : z.taps) {
          for (const auto& [fy, ay] : y.taps) {
            for (const auto& [fx, ax] : x.taps) {
              table.taps.push_back(
                  {fz * s[3] + fy * s[4] + fx * s[5],
                   {az - table.origin[0], ay - table.origin[1], ax - table.origin[2]}});
            }
          }
        }
        table.classes.push_back(
            {first, static_cast<int>(table.taps.size()) - first, {z.start, y.start, x.start}});
      }
    }
  }
  if (p.direction != ConvDirection::backward_data) {
    for (std::size_t dim = 0; dim < 3; ++dim) table.origin[dim] -= p.pad[dim];
  }
  return table;
}

// ---- tiles ----

// A tile of results along the dimensions, and of images.
struct Box {
  std::int64_t images = 1;
  Spatial size = {1, 1, 1};
  std::int64_t volume() const { return images * size[0] * size[1] * size[2]; }
};

// What a box takes.
struct BoxCounts {
  Spatial halo{};
  std::int64_t places = 0, image_bytes = 0, other_bytes = 0, shared_bytes = 0;
  int buffers = 1;
  int line_pitch = 0;
  std::int64_t plane = 0, raster_blocks = 0;  // by wgmma, see the arguments
  bool has_room = true;                       // whether a warp tile holds the raster
  double cost = 0;
};

class Planner {
 public:
  Planner(const ConvProblem& p, const Algorithm& a, const Target& target, GroupedArguments& g)
      : p_(p),
        a_(a),
        target_(target),
        g_(g),
        shape_(grouped_shape(p.direction, a)),
        product_(grouped_product(p)),
        table_(table_of(p)) {
    const Spatial out = out_size(p);
    for (std::size_t dim = 0; dim < 3; ++dim) {
      step_[dim] = shape_.by_data ? 1 : p.stride[dim];
      results_[dim] = shape_.by_data ? tile::ceil_div(p.size[dim], p.stride[dim]) : out[dim];
    }
    place_bytes_ =
        shape_.is_wide() ? 16 : odd_chunks_of(shape_.products * shape_.channels * kElementBytes);
  }

  GroupedPlan plan() {
    put_products();
    BoxCounts counts;
    const Box box = best_box(counts);
    GroupedPlan plan;
    plan.shared_bytes = double(counts.shared_bytes);
    plan.fits = counts.shared_bytes <= target_.shared_memory_bytes && counts.has_room;
    if (!plan.fits) return plan;
    put_box(box, counts);
    put_taps();
    put_blocks(box, counts, plan);
    return plan;
  }

 private:
  std::int64_t filter_bytes() const {
    if (shape_.by_weight) return 0;
    if (shape_.is_wide()) {
      return std::int64_t{shape_.columns} * tile::ceil_div(shape_.channels, 16) * 16 *
             kElementBytes * static_cast<std::int64_t>(table_.taps.size());
    }
    const int lines = shape_.by_data ? shape_.channels : shape_.columns;
    const int line = shape_.by_data ? shape_.columns : shape_.channels;
    return std::int64_t{odd_chunks_of(line * kElementBytes)} * lines * shape_.products *
           static_cast<std::int64_t>(table_.taps.size());
  }

  BoxCounts counts_of(const Box& box) const {
    BoxCounts c;
    for (std::size_t dim = 0; dim < 3; ++dim) {
      c.halo[dim] = (box.size[dim] - 1) * step_[dim] + table_.reach[dim] + 1;
    }
    if (*std::ranges::max_element(c.halo) > kMostPlacesOfTile) {
      c.shared_bytes = std::numeric_limits<std::int64_t>::max();
      return c;
    }
    c.places = box.images * c.halo[0] * c.halo[1] * c.halo[2];
    if (shape_.is_wide()) {
      count_raster(box, c);
      c.cost = cost_of(box, c);
      return c;
    }
    const std::int64_t across = tile::ceil_div(c.halo[2], step_[2]) * step_[2];
    std::int64_t line = across * place_bytes_;
    // Neighbours at the ends of two lines of results then begin in different banks too.
    for (int more = 0; more < 8; ++more) {
      if ((step_[1] * (line + more * 16) - box.size[2] * place_bytes_) % 128 != 0) continue;
      line += more * 16;
      break;
    }
    c.line_pitch = static_cast<int>(std::min<std::int64_t>(line, 1 << 24));
    const std::int64_t lines = tile::ceil_div(c.halo[1], step_[1]) * step_[1];
    const std::int64_t planes = tile::ceil_div(c.halo[0], step_[0]) * step_[0];
    c.image_bytes = tile::ceil_div(box.images * planes * lines * line, 128) * 128;
    if (shape_.by_weight) {
      c.other_bytes = round_up(static_cast<int>(box.volume()), 16) *
                      odd_chunks_of(shape_.products * shape_.columns * kElementBytes);
      const std::int64_t one = c.image_bytes + c.other_bytes;
      c.buffers = 2 * one <= target_.shared_memory_bytes / 2 ? 2 : 1;
      if (2 * one <= target_.shared_memory_bytes && c.buffers == 1 && one > kUnitShared / 3) {
        c.buffers = 2;
      }
      c.shared_bytes = std::max<std::int64_t>(
          c.buffers * one, std::int64_t{shape_.warps} / shape_.sharers * shape_.sums() * 128);
    } else {
      c.shared_bytes = c.image_bytes + filter_bytes();
    }
    c.cost = cost_of(box, c);
    return c;
  }

  // Places of a residue's raster along a dimension.
  std::int64_t raster(const Spatial& halo, std::size_t dim) const {
    return tile::ceil_div(halo[dim], step_[dim]);
  }
  std::int64_t steps_of_all() const { return step_[0] * step_[1] * step_[2]; }
  std::int64_t image_places(const Spatial& halo) const {
    return raster(halo, 0) * raster(halo, 1) * raster(halo, 2) * steps_of_all();
  }

  // By wgmma: a block of 64 places may reach behind the last result, and a tap moves it.
  void count_raster(const Box& box, BoxCounts& c) const {
    const std::int64_t line = raster(c.halo, 2), plane = line * raster(c.halo, 1);
    const std::int64_t last = (box.size[0] - 1) * plane + (box.size[1] - 1) * line + box.size[2];
    c.raster_blocks = tile::ceil_div(last, 64);
    c.has_room = box.images * c.raster_blocks * 64 <= shape_.rows;
    const std::int64_t residues = (steps_of_all() - 1) * plane * raster(c.halo, 0);
    const std::int64_t moved = table_.reach[0] / step_[0] * plane +
                               table_.reach[1] / step_[1] * line + table_.reach[2] / step_[2];
    const std::int64_t images = (box.images - 1) * image_places(c.halo);
    const std::int64_t reach = images + residues + moved + c.raster_blocks * 64;
    c.plane = (std::max(reach, images + image_places(c.halo)) | 1) * 16;
    c.image_bytes = tile::ceil_div(c.plane * shape_.channels / 8, 128) * 128;
    c.buffers = shape_.stages;
    c.shared_bytes = c.image_bytes * c.buffers + filter_bytes() + std::int64_t{16} * c.buffers;
  }

  // Cycles of a unit for all tiles: copies of chunks, and rows that warps multiply whether or not
  // they have results.
  double cost_of(const Box& box, const BoxCounts& c) const {
    double tiles = double(tile::ceil_div(p_.n, box.images));
    for (std::size_t dim = 0; dim < 3; ++dim) {
      tiles *= double(tile::ceil_div(results_[dim], box.size[dim]));
    }
    const double chunks = double(c.places) * shape_.products * shape_.channels / 8;
    if (shape_.is_wide()) {
      const double steps = double(table_.taps.size()) * double(tile::ceil_div(shape_.channels, 16));
      return tiles * (chunks * kChunkCycles +
                      shape_.rows / 64.0 * steps * shape_.columns * kWgmmaCycles + kTileCycles);
    }
    const double units = double(shape_.products) * shape_.columns / shape_.warp_columns;
    const int round = shape_.by_weight ? 16 : shape_.rows;
    const double rows = double(tile::ceil_div(box.volume(), round)) * round / 16;
    const double steps = double(table_.taps.size()) * std::ceil(shape_.channels / 16.0);
    return tiles * (chunks * kChunkCycles + rows * units * steps * step_cycles() + kTileCycles);
  }
  // Cycles of a unit for 16 results of a warp and 16 channels of the depth.
  double step_cycles() const {
    const double eights = shape_.warp_columns / 8.0;
    const double loads = 4 + 4 * std::ceil(eights / 2) / std::max(shape_.rows / 16, 1);
    return std::max(loads, kMmaCycles * eights);
  }

  // The cheapest box that fits; where none fits, the smallest.
  Box best_box(BoxCounts& best) const {
    Box found;
    best = counts_of(found);
    bool any = best.shared_bytes <= target_.shared_memory_bytes && best.has_room;
    const std::int64_t room = shape_.results;
    for (const std::int64_t w : sizes_along(2, room)) {
      for (const std::int64_t h : sizes_along(1, room / w)) {
        for (const std::int64_t d : sizes_along(0, room / (w * h))) {
          const bool whole = w == results_[2] && h == results_[1] && d == results_[0];
          const std::int64_t most =
              whole
                  ? std::clamp<std::int64_t>(room / (w * h * d), 1, std::max<std::int64_t>(p_.n, 1))
                  : 1;
          for (std::int64_t images = most; images >= 1; images = images > 1 ? images / 2 : 0) {
            const Box box = {images, {d, h, w}};
            const BoxCounts c = counts_of(box);
            if (!c.has_room || c.shared_bytes > target_.shared_memory_bytes ||
                c.places > kMostPlacesOfTile) {
              continue;
            }
            if (any && c.cost >= best.cost) continue;
            found = box, best = c, any = true;
          }
        }
      }
    }
    return found;
  }
  // Parts of a dimension that divide it evenly, at most `most` long.
  std::vector<std::int64_t> sizes_along(std::size_t dim, std::int64_t most) const {
    std::vector<std::int64_t> sizes;
    const std::int64_t all = std::max<std::int64_t>(results_[dim], 1);
    std::int64_t parts = tile::ceil_div(all, std::max<std::int64_t>(most, 1));
    for (int i = 0; i < 6; ++i, ++parts) {
      const std::int64_t size = tile::ceil_div(all, parts);
      if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
    }
    for (const std::int64_t size : {4, 7, 8, 14, 16}) {
      if (size <= most && size < all) sizes.push_back(size);
    }
    return sizes;
  }

  void put_products() {
    g_.together = static_cast<int>(product_.together);
    g_.products = static_cast<int>(product_.products);
    g_.depth = static_cast<int>(product_.depth);
    g_.columns = static_cast<int>(product_.columns);
    g_.all_depth = static_cast<int>(shape_.by_data ? p_.k : p_.c);
    g_.all_columns = static_cast<int>(shape_.by_data ? p_.c : p_.k);
    g_.product_blocks = static_cast<int>(tile::ceil_div(product_.products, shape_.products));
    g_.column_parts = static_cast<int>(tile::ceil_div(product_.columns, shape_.columns));
  }

  void put_box(const Box& box, const BoxCounts& c) {
    g_.images = static_cast<int>(box.images);
    const int line = c.line_pitch;
    const auto lines = static_cast<int>(tile::ceil_div(c.halo[1], step_[1]) * step_[1]);
    const auto planes = static_cast<int>(tile::ceil_div(c.halo[0], step_[0]) * step_[0]);
    const auto across = static_cast<int>(tile::ceil_div(c.halo[2], step_[2]));
    const auto step = [&](std::size_t dim) { return static_cast<int>(step_[dim]); };
    // Along a line, places that neighbouring results meet lie side by side.
    g_.pitch[2] = place_bytes_, g_.residue[2] = across * place_bytes_;
    g_.residue[1] = line, g_.pitch[1] = step(1) * line;
    g_.residue[0] = lines * line, g_.pitch[0] = step(0) * lines * line;
    g_.image_pitch = planes * lines * line;
    if (shape_.is_wide()) put_raster(c);
    for (std::size_t dim = 0; dim < 3; ++dim) {
      g_.box[dim] = static_cast<int>(box.size[dim]);
      g_.by_box[dim] = divisor_of(box.size[dim]);
      g_.tiles_across[dim] = static_cast<int>(tile::ceil_div(results_[dim], box.size[dim]));
      g_.result_step[dim] = shape_.by_data ? static_cast<int>(p_.stride[dim]) : 1;
      g_.halo[dim] = static_cast<int>(c.halo[dim]);
      g_.by_halo[dim] = divisor_of(c.halo[dim]);
      g_.by_step[dim] = divisor_of(step_[dim]);
      g_.image_step[dim] = step(dim);
      g_.origin[dim] = static_cast<int>(table_.origin[dim]);
    }
    g_.places = static_cast<int>(c.places);
    g_.image_bytes = static_cast<int>(c.image_bytes);
    g_.other_bytes = static_cast<int>(c.other_bytes);
    g_.buffers = c.buffers;
  }

  // Places in the order of their residues, each residue's as a raster.
  void put_raster(const BoxCounts& c) {
    std::int64_t pitch = 16;
    for (int dim = 2; dim >= 0; --dim) {
      const auto at = static_cast<std::size_t>(dim);
      g_.pitch[at] = static_cast<int>(pitch);
      pitch *= raster(c.halo, at);
    }
    for (int dim = 2; dim >= 0; --dim) {
      const auto at = static_cast<std::size_t>(dim);
      g_.residue[at] = static_cast<int>(pitch);
      pitch *= step_[at];
    }
    g_.image_pitch = static_cast<int>(pitch);
    g_.plane = static_cast<int>(c.plane);
    g_.raster_blocks = static_cast<int>(c.raster_blocks);
    g_.by_raster[2] = divisor_of(raster(c.halo, 2));
    g_.by_raster[1] = divisor_of(raster(c.halo, 1));
    g_.by_raster[0] = divisor_of(1);
  }

  void put_taps() {
    g_.taps = static_cast<int>(table_.taps.size());
    g_.by_taps = divisor_of(g_.taps);
    g_.classes = static_cast<int>(table_.classes.size());
    std::copy(table_.classes.begin(), table_.classes.end(), g_.of_class);
    for (std::size_t i = 0; i < table_.taps.size(); ++i) {
      const TapPlaces& tap = table_.taps[i];
      std::int64_t image = 0;
      for (std::size_t dim = 0; dim < 3; ++dim) {
        image +=
            tap.at[dim] / step_[dim] * g_.pitch[dim] + tap.at[dim] % step_[dim] * g_.residue[dim];
      }
      g_.tap[i] = {static_cast<int>(tap.filter), static_cast<int>(image)};
    }
  }

  void put_blocks(const Box& box, const BoxCounts& c, GroupedPlan& plan) {
    double tiles = double(tile::ceil_div(p_.n, box.images));
    for (const int across : g_.tiles_across) tiles *= across;
    plan.tiles = tiles;
    plan.places = double(c.places);
    plan.results = double(box.volume()) * double(table_.classes.size());
    plan.steps = double(table_.taps.size()) / double(table_.classes.size()) *
                 std::ceil(shape_.channels / 16.0);
    const double by_shared = std::floor(kUnitShared / (double(c.shared_bytes) + kOwnShared));
    const double by_threads = std::floor(double(kUnitThreads) / shape_.threads());
    const double by_registers =
        std::floor(target_.registers_per_unit /
                   (double(shape_.threads()) * grouped_registers(signature_of_conv(), a_)));
    plan.resident = std::clamp(std::min({by_shared, by_threads, by_registers}), 1.0, kMostResident);
    g_.parts = g_.unit_blocks = g_.row_units = 1;
    plan.blocks = double(g_.product_blocks) * g_.column_parts;
    g_.tiles = static_cast<int>(std::min(tiles, kMostTiles));
    g_.walkers = 1;
    if (shape_.is_wide()) {
      const double walkers = std::max(1.0, std::floor(plan.resident * target_.units / plan.blocks));
      plan.walkers = std::min(walkers, tiles);
      g_.walkers = static_cast<int>(plan.walkers);
      plan.blocks *= plan.walkers;
      return;
    }
    if (!shape_.by_weight) {
      plan.blocks *= tiles;
      return;
    }
    const int pieces = g_.taps * shape_.channels / 8;
    g_.row_units = (pieces * 8 + shape_.rows - 1) / shape_.rows;
    const int units = shape_.products * g_.row_units * (shape_.columns / shape_.warp_columns);
    const int at_once = shape_.warps / shape_.sharers;
    g_.unit_blocks = (units + at_once - 1) / at_once;
    plan.unit_blocks = g_.unit_blocks;
    plan.blocks *= plan.unit_blocks;
    // Two blocks for each unit, with as many tiles each.
    const double wanted = std::max(1.0, 2.0 * target_.units / plan.blocks);
    const double each = std::ceil(tiles / std::min(wanted, kMostParts));
    plan.parts = std::ceil(tiles / each);
    g_.parts = static_cast<int>(plan.parts);
    plan.blocks *= plan.parts;
  }

  ConvSignature signature_of_conv() const {
    return std::get<ConvSignature>(signature_of(Problem(p_)));
  }

  // Cycles that were guessed by counting instructions; they only choose between tiles.
  static constexpr double kChunkCycles = 0.6, kMmaCycles = 1.6, kTileCycles = 600;
  static constexpr double kWgmmaCycles = 1.4;    // for each column of 64 x 16
  static constexpr double kUnitShared = 233472;  // bytes of a unit
  static constexpr double kMostTiles = 0x1p30, kMostParts = 256;

  const ConvProblem& p_;
  const Algorithm& a_;
  const Target& target_;
  GroupedArguments& g_;
  GroupedShape shape_;
  GroupedProduct product_;
  TapTable table_;
  Spatial step_{}, results_{};
  int place_bytes_ = 16;
};

// ---- how operands are copied ----

// Bytes by which an address and all distances can be divided, at most 16.
class Width {
 public:
  explicit Width(const void* data) { add(reinterpret_cast<std::intptr_t>(data)); }
  void add_elements(std::int64_t count, std::int64_t distance) {
    if (count > 1) add(distance * kElementBytes);
  }
  int copies() const { return width_ >= 4 ? width_ : device::kGroupedByElement; }
  int elements() const { return width_ / kElementBytes; }

 private:
  void add(std::int64_t bytes) {
    while (width_ > 1 && bytes % width_ != 0) width_ /= 2;
  }
  int width_ = 16;
};

void add_image(const ConvProblem& p, const ConvStrides& strides, const Spatial& size, Width& to) {
  to.add_elements(p.n, strides[kImageStrideN]);
  for (std::size_t dim = 0; dim < 3; ++dim)
    to.add_elements(size[dim], strides[kImageStrideD + dim]);
}
int image_width(const ConvProblem& p, const void* data, const ConvStrides& strides,
                const Spatial& size, std::int64_t products, std::int64_t channels) {
  Width width(data);
  add_image(p, strides, size, width);
  width.add_elements(products, channels);
  return width.copies();
}

void put_widths(const ConvProblem& p, const GroupedProduct& product, GroupedArguments& g) {
  const bool by_data = p.direction == ConvDirection::backward_data;
  const Spatial out = out_size(p);
  const void* const image = by_data ? g.conv.y : g.conv.x;
  const ConvStrides& strides = by_data ? p.out_strides : p.in_strides;
  g.image_width =
      image_width(p, image, strides, by_data ? out : p.size, product.products, product.depth);
  g.other_width = image_width(p, g.conv.y, p.out_strides, out, product.products, product.columns);
  Width filter(g.conv.w);
  const std::int64_t c = p.c / p.g;
  filter.add_elements(p.g, p.weight_strides[0]);
  filter.add_elements(p.k / p.g, p.weight_strides[1]);
  for (std::size_t dim = 0; dim < 3; ++dim) {
    filter.add_elements(p.filter[dim], p.weight_strides[3 + dim]);
  }
  const bool whole = product.together == 1 && c % 8 == 0 && filter.copies() == 16;
  g.filter_width = whole ? 16 : device::kGroupedByElement;
  Width result(g.conv.out);
  add_image(p, by_data ? p.in_strides : p.out_strides, by_data ? p.size : out, result);
  result.add_elements(2, product.columns);
  result.add_elements(2, by_data ? p.c : p.k);
  g.result_width = std::clamp(result.elements(), 1, 4);
}

}  // namespace

GroupedShape grouped_shape(ConvDirection direction, const Algorithm& a) {
  GroupedShape s{};
  s.by_weight = direction == ConvDirection::backward_weight;
  s.by_data = direction == ConvDirection::backward_data;
  s.results = a.tile.m, s.columns = a.tile.n, s.channels = a.tile.k;
  s.products = a.warp_tile.k;
  s.rows = a.warp_tile.m, s.warp_columns = a.warp_tile.n;
  s.warps = a.wave.m * a.wave.n;
  s.sharers = s.by_weight ? a.wave.n : 1;
  s.stages = s.by_weight ? 1 : a.stages;
  return s;
}

// Groups of 1, 2 or 4 channels fill a chunk of 8 together.
GroupedProduct grouped_product(const ConvProblem& p) {
  const bool by_data = p.direction == ConvDirection::backward_data;
  const std::int64_t depth = (by_data ? p.k : p.c) / p.g, columns = (by_data ? p.c : p.k) / p.g;
  const bool shares = depth == 1 || depth == 2 || depth == 4;
  const std::int64_t together = shares ? std::min<std::int64_t>(8 / depth, p.g) : 1;
  return {together, tile::ceil_div(p.g, together), depth * together, columns * together};
}

// As many as compile without spills.
int grouped_registers(const ConvSignature& s, const Algorithm& a) {
  const int sums = grouped_shape(s.direction, a).sums();
  const int spatial = s.ndim == 3 ? 8 : 0;
  if (s.direction == ConvDirection::backward_weight) return sums + spatial + 72;
  const int more = s.direction == ConvDirection::backward_data ? 8 : 0;
  const int others = (sums > 32 ? 80 : 74) + more;
  return sums * 8 / 5 + spatial + num_ops(s.epilogue) * 12 + others;
}

GroupedPlan grouped_plan(const ConvProblem& problem, const Algorithm& algorithm,
                         const Target& target, GroupedArguments& arguments) {
  return Planner(problem, algorithm, target, arguments).plan();
}

Launch bind_grouped(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                    const ConvOperands& o) {
  const GroupedShape shape = grouped_shape(p.direction, spec.algorithm);
  Launch launch;
  GroupedArguments& g = launch.arguments.make<GroupedArguments>();
  g.conv = arguments_of(p, o);
  const GroupedPlan plan = grouped_plan(p, spec.algorithm, target, g);
  put_widths(p, grouped_product(p), g);
  const auto threads = static_cast<unsigned>(shape.threads());
  launch.steps.push({.grid = {static_cast<unsigned>(plan.blocks), 1, 1},
                     .block = {threads, 1, 1},
                     .shared_memory_bytes = static_cast<std::size_t>(plan.shared_bytes)});
  if (g.parts == 1) return launch;
  const std::int64_t elements = p.k * (p.c / p.g) * g.taps;
  g.partial_sums = device::kCounterBytes;
  launch.parts = g.parts;
  launch.workspace.bytes = static_cast<std::size_t>(device::kCounterBytes + elements * 4 * g.parts);
  launch.workspace.address_offset = offsetof(GroupedArguments, workspace);
  const std::int64_t of_block = threads / device::kGroupedLanes;
  launch.steps.push({.entry = 1,
                     .grid = {static_cast<unsigned>(tile::ceil_div(elements, of_block)), 1, 1},
                     .block = {threads, 1, 1}});
  return launch;
}

}  // namespace tessera::conv
