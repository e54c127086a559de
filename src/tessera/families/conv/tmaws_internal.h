// The kernels of src/tessera/device/cuda/conv/tma_conv.h on the host: what a launch of a problem
// looks like, without addresses.
#pragma once

#include <array>
#include <string>

#include "tessera/device/cuda/conv/conv_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::conv {

inline constexpr std::int64_t kTmawsDepth = 64;  // elements of 16 bits in a line of 128 bytes

// Per spatial dimension, the innermost one first; only the problem's dimensions count.
using Innermost = std::array<std::int64_t, 3>;

// Pixels of the image's product that see the same taps, see device/cuda/conv/conv_arguments.h.
struct TmawsClass {
  Innermost pixels, start, taps, low, high;
  std::int64_t rows, steps, tiles_p, first_tile, filter;
  std::int64_t offset;  // backward_data: of its first pixel in x, in elements
};

// The image that im2col unrolls: x, or in backward_data y.
struct TmawsImage {
  DType dtype;
  std::int64_t channels;   // of all groups
  Innermost size, stride;  // strides in elements
  std::int64_t image_stride;
};

struct TmawsPlan {
  int dims;
  TmawsImage image;
  InlineVector<TmawsClass, device::kMostClasses> classes;  // those with the most steps first
  std::int64_t num_classes;                                // may be more than fit
  Innermost pixel_step, tap_step, filter_step;
  std::int64_t image_channels, other_channels;  // of one group
  std::int64_t slabs;
  bool batch_is_tap;
  // The distance of neighbouring taps in w and of neighbouring pixels in y; 0 where neighbours have
  // no common distance.
  std::int64_t tap_distance, y_distance;
  // The results as a matrix for each batch; ld is 0 where rows have no common distance.
  std::int64_t rows, columns, batch, ld, batch_stride;
  std::int64_t tiles_q, tiles;
};
// The problem has its strides.
TmawsPlan tmaws_plan(const ConvProblem& problem, const Shape3& tile);

// What a kernel multiplies, see tile/tmaws.h.
tile::Product tmaws_product(const ConvSignature& signature);

Launch bind_tmaws(const KernelSpec& spec, const ConvProblem& problem, const ConvOperands& operands);

}  // namespace tessera::conv
