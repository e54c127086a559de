// Cells of results: for few results a pixel, neighbouring pixels of the result are one row of the
// product. A row has all their channels side by side, and its filters are copied once for each of
// its pixels, moved as the pixels are.
#include <optional>

#include "tessera/families/conv/tmaws_internal.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kMostCellChannels = 32;  // of a pixel
constexpr std::int64_t kMostApart = 8;          // places that the copy engine steps over
// Cells are stored element by element. Where the copy engine could store pixels, cells pay if they
// save so many lines of the image a pixel (measured on an H200: 3 saved lines cost time, 5 and more
// gain it); elsewhere, if they save a tenth.
constexpr double kLeastSaved = 4;
constexpr double kLoadShare = 0.9;

std::int64_t pixels_of_cell(const Spatial& s) { return s[0] * s[1] * s[2]; }
std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Cells of `cell` pixels of the result, `apart` places of the image that is read from a cell to the
// next one, each with `taps` places, and the padding that gives the first cell its first place.
struct ResultCells {
  Spatial cell, apart, taps, pad;
  double loads;  // lines of the image that is read, for an image and 64 of its channels
};

// Cells of so many times the pixels that see the same place with the same tap.
ResultCells times_cells(const ConvProblem& p, const Spatial& size, const Spatial& times) {
  const bool forward = p.direction == ConvDirection::forward;
  ResultCells cells = {times, times, {}, p.pad, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t stride = p.stride[i], extent = (p.filter[i] - 1) * p.dilation[i];
    if (forward) {
      cells.apart[i] *= stride;
      cells.taps[i] = (times[i] - 1) * stride + extent + 1;
    } else {
      cells.cell[i] *= stride;
      cells.pad[i] = floor_div(cells.cell[i] - 1 + p.pad[i], stride);
      cells.taps[i] = cells.pad[i] + floor_div(extent - p.pad[i], stride) + 1;
    }
    cells.loads *= double(tile::ceil_div(size[i], cells.cell[i])) * double(cells.taps[i]);
  }
  return cells;
}

bool fits(const ResultCells& cells, std::int64_t channels) {
  return pixels_of_cell(cells.cell) * channels <= kTmawsDepth;
}
// Whether the copy engine reaches all places of the cells: their taps, and the corners of its box,
// which are the first cell's first place and, from the image's end, the last cell's.
bool is_within_reach(const ConvProblem& p, const Spatial& size, const ResultCells& cells) {
  const bool forward = p.direction == ConvDirection::forward;
  const Spatial image = forward ? p.size : out_size(p);
  const std::int64_t reach = std::int64_t{1} << place_bits(p.ndim);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t first = forward ? -cells.pad[i] : cells.pad[i] - (cells.taps[i] - 1);
    const std::int64_t last =
        (tile::ceil_div(size[i], cells.cell[i]) - 1) * cells.apart[i] + first + 1;
    const bool fits = first >= -reach / 2 && last - image[i] >= -reach / 2;
    if (cells.taps[i] > reach || !fits) return false;
  }
  return true;
}

// The cells that read the image least often; nothing where the pixels by themselves read it hardly
// more often.
std::optional<ResultCells> find_cells(const ConvProblem& p) {
  const bool forward = p.direction == ConvDirection::forward;
  const std::int64_t channels = forward ? p.k : p.c;
  if (p.direction == ConvDirection::backward_weight || p.g > 1) return {};
  if (channels > kMostCellChannels || p.n == 0 || p.filter == Spatial{1, 1, 1}) return {};
  const Spatial size = forward ? out_size(p) : p.size;
  double pixels = 1, taps = 1;
  Spatial most{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (p.stride[i] > kTmawsDepth || p.dilation[i] > kTmawsDepth) return {};
    pixels *= double(size[i]);
    taps *= double(p.filter[i]) / (forward ? 1 : double(p.stride[i]));
    most[i] = forward ? kMostApart / p.stride[i] : kMostApart;
    if (i + static_cast<std::size_t>(p.ndim) < 3) most[i] = 1;
  }
  const double slabs = double(tile::ceil_div(forward ? p.c : p.k, kTmawsDepth));
  const bool copies = channels % device::kOctet == 0;
  double least = pixels * (copies ? taps - kLeastSaved / slabs : kLoadShare * taps);
  std::optional<ResultCells> best;
  for (std::int64_t z = 1; z <= most[0]; ++z) {
    for (std::int64_t y = 1; y <= most[1]; ++y) {
      for (std::int64_t x = 1; x <= most[2]; ++x) {
        const ResultCells cells = times_cells(p, size, {z, y, x});
        if (!fits(cells, channels)) break;
        if (cells.loads < least && is_within_reach(p, size, cells))
          best = cells, least = cells.loads;
      }
    }
  }
  return best;
}

}  // namespace

void see_result_cells(const ConvProblem& p, Repacked& to) {
  if (to.together == 0) return;
  const std::optional<ResultCells> cells = find_cells(p);
  if (!cells) return;
  const bool forward = p.direction == ConvDirection::forward;
  const Spatial out = out_size(p);
  to.has_result_cells = true;
  to.cell = cells->cell;
  ConvProblem& q = to.problem;
  (forward ? q.k : q.c) *= pixels_of_cell(cells->cell);
  (forward ? q.out_strides : q.in_strides) = kPackedStrides;
  q.filter = cells->taps;
  q.pad = cells->pad;
  q.dilation = {1, 1, 1};
  if (!forward) to.apart = cells->apart;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t count = tile::ceil_div(forward ? out[i] : p.size[i], cells->cell[i]);
    q.stride[i] = forward ? cells->apart[i] : 1;
    if (!forward) q.size[i] = count;
    const std::int64_t y = forward ? count : out[i];  // that the main loop sees
    q.pad_right[i] = (y - 1) * q.stride[i] + q.filter[i] - q.size[i] - q.pad[i];
  }
}

void add_result_cells(const ConvProblem& p, const Repacked& r, device::CudaRepackArguments& to) {
  const bool forward = p.direction == ConvDirection::forward;
  device::ImageCopy& x = to.images[1];
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t pad = forward ? 0 : p.pad[i] - p.stride[i] * r.problem.pad[i];
    x.step[i] = static_cast<int>(r.cell[i]);
    x.cells[i] = static_cast<int>(r.problem.filter[i]);
    x.pad[i] = static_cast<int>(pad);
    to.pixel_step[2 - i] = static_cast<int>(forward ? r.problem.stride[i] : r.apart[i]);
  }
}

}  // namespace tessera::conv
