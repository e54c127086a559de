// The launch of a grouped kernel: taps as offsets, the tile of a problem, how operands are copied.
#include <algorithm>
#include <bit>
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

constexpr int kOwnShared = 1024;  // bytes of each block that the system takes
constexpr int kUnitThreads = 2048, kMostPlacesOfTile = 1 << 14;
constexpr double kMostResident = 16;

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
  std::int64_t filter;  // where it lies, in elements
  std::int64_t number;  // among the filter's taps
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
                   (fz * p.filter[1] + fy) * p.filter[2] + fx,
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
  std::int64_t plane = 0, raster_blocks = 0;                        // by wgmma, see the arguments
  std::int64_t other_places = 0, other_plane = 0, stage_bytes = 0;  // places of an image
  bool has_room = true;  // whether a warp tile holds the raster
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
    place_bytes_ = shape_.is_wide()
                       ? 16
                       : odd_chunks_of(shape_.products * shape_.channels * kGroupedElementBytes);
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
             kGroupedElementBytes * static_cast<std::int64_t>(table_.taps.size());
    }
    const int lines = shape_.by_data ? shape_.channels : shape_.columns;
    const int line = shape_.by_data ? shape_.columns : shape_.channels;
    return std::int64_t{device::grouped_tap_bytes(
               lines * shape_.products, odd_chunks_of(line * kGroupedElementBytes), line / 8)} *
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
      shape_.by_weight ? count_weight_raster(box, c) : count_raster(box, c);
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
                      odd_chunks_of(shape_.products * shape_.columns * kGroupedElementBytes);
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
    c.plane = plane_of(box, c.halo, c.raster_blocks * 64);
    c.image_bytes = tile::ceil_div(c.plane * shape_.channels / 8, 128) * 128;
    c.buffers = shape_.stages;
    c.shared_bytes = c.image_bytes * c.buffers + filter_bytes() + std::int64_t{16} * c.buffers;
  }

  // Bytes from 8 channels of the places of a tile to the next 8, when a tap moves as many places of
  // each image as `reached`.
  std::int64_t plane_of(const Box& box, const Spatial& halo, std::int64_t reached) const {
    const std::int64_t line = raster(halo, 2), plane = line * raster(halo, 1);
    const std::int64_t residues = (steps_of_all() - 1) * plane * raster(halo, 0);
    const std::int64_t moved = table_.reach[0] / step_[0] * plane +
                               table_.reach[1] / step_[1] * line + table_.reach[2] / step_[2];
    const std::int64_t images = (box.images - 1) * image_places(halo);
    const std::int64_t reach = images + residues + moved + reached;
    return (std::max(reach, images + image_places(halo)) | 1) * 16;
  }

  // By w: y has a raster with lines as long as those of x, in whole steps of 16 places. A block of
  // 64 rows may begin where the channels of x have less than 64 left.
  void count_weight_raster(const Box& box, BoxCounts& c) const {
    const std::int64_t line = raster(c.halo, 2), plane = line * raster(c.halo, 1);
    const std::int64_t last = (box.size[0] - 1) * plane + (box.size[1] - 1) * line + box.size[2];
    c.raster_blocks = tile::ceil_div(last, 16);
    c.plane = plane_of(box, c.halo, c.raster_blocks * 16);
    const std::int64_t lines = (box.size[0] - 1) * plane + box.size[1] * line;
    c.other_places = std::max(c.raster_blocks * 16, lines);
    c.other_plane = (box.images * c.other_places | 1) * 16;
    c.image_bytes = tile::ceil_div(c.plane * shape_.channels / 8, 128) * 128;
    c.other_bytes = tile::ceil_div(c.other_plane * shape_.columns / 8, 128) * 128;
    const std::int64_t rows = tile::ceil_div(shape_.channels, 64) * 8 * c.plane;
    c.stage_bytes = std::max(c.image_bytes + c.other_bytes, tile::ceil_div(rows, 128) * 128);
    c.buffers = shape_.stages;
    c.shared_bytes = c.stage_bytes * c.buffers + std::int64_t{16} * c.buffers;
  }

  // Cycles of a unit for all tiles: copies of chunks, and rows that warps multiply whether or not
  // they have results.
  double cost_of(const Box& box, const BoxCounts& c) const {
    double tiles = double(tile::ceil_div(p_.n, box.images));
    for (std::size_t dim = 0; dim < 3; ++dim) {
      tiles *= double(tile::ceil_div(results_[dim], box.size[dim]));
    }
    const double chunks = double(c.places) * shape_.products * shape_.channels / 8;
    if (shape_.is_wide() && shape_.by_weight) {
      const double gradient = double(box.images * c.raster_blocks) * 16 * shape_.columns / 8;
      const double steps = double(box.images * c.raster_blocks) * shape_.warps * shape_.rows / 64;
      return tiles * ((chunks + gradient) * kChunkCycles + steps * shape_.columns * kWgmmaCycles +
                      kTileCycles);
    }
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
    g_.by_parts = grouped_divisor(g_.column_parts);
    const ConvStrides& strides = shape_.by_data ? p_.in_strides : p_.out_strides;
    g_.image_distance = strides[kGroupedStrideN];
    for (std::size_t dim = 0; dim < 3; ++dim) {
      g_.result_distance[dim] =
          static_cast<int>(strides[kGroupedStrideD + dim] * (shape_.by_data ? p_.stride[dim] : 1));
    }
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
      g_.by_box[dim] = grouped_divisor(box.size[dim]);
      g_.tiles_across[dim] = static_cast<int>(tile::ceil_div(results_[dim], box.size[dim]));
      g_.by_tiles_across[dim] = grouped_divisor(g_.tiles_across[dim]);
      g_.result_step[dim] = shape_.by_data ? static_cast<int>(p_.stride[dim]) : 1;
      g_.by_result_step[dim] = grouped_divisor(g_.result_step[dim]);
      g_.halo[dim] = static_cast<int>(c.halo[dim]);
      g_.by_step[dim] = grouped_divisor(step_[dim]);
      g_.image_step[dim] = step(dim);
      g_.origin[dim] = static_cast<int>(table_.origin[dim]);
    }
    g_.image_lines = grouped_lines(c.halo[2], shape_.products * shape_.channels / 8, shape_);
    g_.other_lines = grouped_lines(box.size[2], shape_.products * shape_.columns / 8, shape_);
    g_.image_bytes = static_cast<int>(c.image_bytes);
    g_.other_bytes = static_cast<int>(c.other_bytes);
    g_.buffers = c.buffers;
    if (!shape_.is_wide() || !shape_.by_weight) return;
    const std::int64_t pitch = raster(c.halo, 2);
    g_.stage_bytes = static_cast<int>(c.stage_bytes);
    g_.other_lines = grouped_lines(pitch, shape_.columns / 8, shape_);
    g_.other_plane = static_cast<int>(c.other_plane);
    g_.other_image = static_cast<int>(c.other_places * 16);
    g_.other_slice = static_cast<int>(pitch * raster(c.halo, 1) * 16);
    g_.other_line = static_cast<int>(pitch * 16);
    for (std::size_t dim = 0; dim < 3; ++dim) g_.other_box[dim] = g_.box[dim];
    g_.other_box[2] = static_cast<int>(pitch);
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
    g_.by_raster[2] = grouped_divisor(raster(c.halo, 2));
    g_.by_raster[1] = grouped_divisor(raster(c.halo, 1));
    g_.by_raster[0] = grouped_divisor(1);
  }

  void put_taps() {
    g_.taps = static_cast<int>(table_.taps.size());
    g_.by_taps = grouped_divisor(g_.taps);
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
      g_.slot[tap.number] = static_cast<unsigned char>(i);
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
    if (shape_.is_wide() && shape_.by_weight) plan.steps = double(box.images * c.raster_blocks);
    plan.resident = resident_with(double(c.shared_bytes));
    g_.parts = g_.unit_blocks = g_.row_units = 1;
    plan.blocks = double(g_.product_blocks) * g_.column_parts;
    g_.by_blocks = grouped_divisor(static_cast<std::int64_t>(plan.blocks));
    g_.tiles = static_cast<int>(std::min(tiles, kMostTiles));
    g_.walkers = 1;
    if (shape_.is_wide() && !shape_.by_weight) {
      const double walkers = std::max(1.0, std::floor(plan.resident * target_.units / plan.blocks));
      plan.walkers = std::min(walkers, tiles);
      g_.walkers = static_cast<int>(plan.walkers);
      plan.blocks *= plan.walkers;
      return;
    }
    if (!shape_.by_weight) {
      put_walkers(c, plan);
      return;
    }
    // A warp has some rows of all taps and channels; by wgmma a tap begins with a block of 64.
    const int channels = shape_.is_wide() ? round_up(shape_.channels, 64) : shape_.channels;
    g_.row_units = (g_.taps * channels + shape_.rows - 1) / shape_.rows;
    const int units = shape_.products * g_.row_units * (shape_.columns / shape_.warp_columns);
    const int at_once = shape_.warps / shape_.sharers;
    g_.unit_blocks = (units + at_once - 1) / at_once;
    plan.unit_blocks = g_.unit_blocks;
    plan.blocks *= plan.unit_blocks;
    g_.by_blocks = grouped_divisor(static_cast<std::int64_t>(plan.blocks));
    // Up to two blocks for each unit, with as many tiles each. Blocks that share sums have a
    // counter.
    const double most = plan.blocks * 4 > device::kCounterBytes ? 1.0 : kMostParts;
    // All of them run at the same time, so that none waits long for the others.
    const double each_unit = std::min(plan.resident, shape_.is_wide() ? 1.0 : 2.0);
    const double wanted = std::max(1.0, std::floor(each_unit * target_.units / plan.blocks));
    const double each = std::ceil(tiles / std::min(wanted, most));
    plan.parts = std::ceil(tiles / each);
    plan.part_bytes = plan.parts < 2 && !shape_.is_wide() ? 0 : plan.blocks * shape_.part_bytes();
    g_.parts = static_cast<int>(plan.parts);
    g_.tiles_of_part = static_cast<int>(each);
    plan.blocks *= plan.parts;
    g_.waits = plan.blocks <= plan.resident * target_.units ? 1 : 0;
  }

  // Blocks of so many bytes of shared memory that a unit runs at a time.
  double resident_with(double shared_bytes) const {
    const double by_shared = std::floor(kUnitShared / (shared_bytes + kOwnShared));
    const double by_threads = std::floor(double(kUnitThreads) / shape_.threads());
    const double by_registers =
        std::floor(target_.registers_per_unit /
                   (double(shape_.threads()) * grouped_registers(signature_of_conv(), a_)));
    return std::clamp(std::min({by_shared, by_threads, by_registers}), 1.0, kMostResident);
  }

  // By mma: where the blocks of all tiles do not run at the same time, fewer of them have as many
  // tiles each, and bring one while they multiply another.
  void put_walkers(const BoxCounts& c, GroupedPlan& plan) {
    const double at_once = std::floor(plan.resident * target_.units / plan.blocks);
    const double both = double(c.shared_bytes + c.image_bytes);
    plan.walkers = plan.tiles;
    if (plan.tiles > at_once && both <= target_.shared_memory_bytes) {
      plan.resident = resident_with(both);
      plan.shared_bytes = both;
      g_.buffers = 2;
      const double most = std::max(std::floor(plan.resident * target_.units / plan.blocks), 1.0);
      plan.walkers = std::ceil(plan.tiles / std::ceil(plan.tiles / most));
    }
    g_.walkers = static_cast<int>(std::min(plan.walkers, kMostTiles));
    plan.blocks *= plan.walkers;
  }

  ConvSignature signature_of_conv() const {
    return std::get<ConvSignature>(signature_of(Problem(p_)));
  }

  // Cycles that were guessed by counting instructions; they only choose between tiles.
  static constexpr double kChunkCycles = 0.6, kMmaCycles = 1.6, kTileCycles = 600;
  static constexpr double kWgmmaCycles = 1.4;    // for each column of 64 x 16
  static constexpr double kUnitShared = 233472;  // bytes of a unit
  static constexpr double kMostTiles = 0x1p30, kMostParts = 255;

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

}  // namespace

device::GroupedDivisor grouped_divisor(std::int64_t by) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(by, 1));
  // 2^(31 + bits) / by, rounded up, has 32 bits, and is near enough for values of 31 bits.
  const auto bits = static_cast<unsigned>(std::bit_width(value - 1));
  const std::uint64_t power = std::uint64_t{1} << (31 + bits);
  return {static_cast<unsigned>(value), static_cast<unsigned>((power + value - 1) / value), bits};
}

device::GroupedLines grouped_lines(std::int64_t places, int chunks, const GroupedShape& shape) {
  constexpr int kWideCopyThreads = 128;  // by wgmma
  const int threads = shape.is_wide() ? kWideCopyThreads : shape.threads();
  const auto columns = static_cast<int>(std::max<std::int64_t>(places * chunks, 1));
  return {columns, std::max(threads / columns, 1), grouped_divisor(columns)};
}

GroupedPlan grouped_plan(const ConvProblem& problem, const Algorithm& algorithm,
                         const Target& target, GroupedArguments& arguments) {
  return Planner(problem, algorithm, target, arguments).plan();
}

}  // namespace tessera::conv
