// The kernels of src/tessera/device/cuda/conv/tma_conv.h on the host: what a launch of a problem
// looks like, without addresses.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "tessera/device/cuda/conv/repack_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::conv {

inline constexpr std::int64_t kTmawsDepth = 64;  // elements of 16 bits in a line of 128 bytes

// The corners of im2col's boxes, and how far a tap lies from the first one, have so many bits.
inline int place_bits(std::int64_t dims) { return static_cast<int>(16 / dims); }

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
  // no common distance, or share a place.
  std::int64_t tap_distance, y_distance;
  // The results as a matrix for each batch; ld is 0 where rows have no common distance.
  std::int64_t rows, columns, batch, ld, batch_stride;
  std::int64_t tiles_q, tiles;
};
// What a plan depends on besides the problem.
struct TmawsForm {
  Shape3 tile;
  // backward_weight: tiles leave their sums in the workspace, so that a tile may hold several taps
  // whose channels fill no slab.
  bool keeps_sums = false;
  Spatial apart = {1, 1, 1};     // backward_data: places of y between two results
  std::int64_t filter_rows = 0;  // of a group; 0: its channels of y
};
// The problem has its strides.
TmawsPlan tmaws_plan(const ConvProblem& problem, const TmawsForm& form);
// The form of a kernel.
TmawsForm form_of(const ConvSignature& signature, const Algorithm& algorithm);

// Whether the copy engine can take a stride of so many elements. It is not asked to take a stride
// of 0.
bool fits_stride(std::int64_t stride, DType dtype);
// A stride between pixels or images that it cannot take, if there is one.
std::optional<std::int64_t> wrong_stride(const ConvStrides& strides, const Spatial& size,
                                         std::int64_t n, DType dtype);

// Whether the copy engine can store the pixels of backward_data, with repack. It writes whole
// pieces of 16 bytes, also where the channels end within one. A null `out` counts as aligned.
bool copies_pixels(const ConvProblem& p, const void* out);
// Whether it then stores no channels of the next group. A kernel stores `stored_columns` at once.
int stored_columns(const Algorithm& algorithm);
bool stores_whole_groups(const ConvProblem& p, const Algorithm& algorithm);

// An operand of a kernel with repack: where it lies, or where its copy lies in the workspace.
struct RepackedOperand {
  const void* data = nullptr;  // null where it is copied
  std::int64_t at = 0;         // the copy's offset in the workspace; 0: it is read where it lies
  std::int64_t bytes = 0;
};

// A problem as the main loop of a kernel with repack sees it, in nhwgc.
struct Repacked {
  ConvProblem problem;    // with the strides of copies where operands are copied
  std::int64_t together;  // groups of the given problem in one of its groups; 0: a stem
  // Rows of a group's filters: the channels of y, and with gradients by x of several groups zeros
  // up to a multiple of 64, because a step of the depth may read the next group's channels of y.
  std::int64_t filter_rows;
  // Where the results have cells, the problem's result has a pixel for each cell and a channel for
  // each of its elements. backward_data: its pixels see places of y that are `apart`.
  bool has_result_cells;
  Spatial cell, apart;
  std::int64_t in_line;  // a stem's: so many results of a line are one, with all their channels
  std::int64_t run;      // pixels of a line that are one, with all their channels (pixel_runs.cc)
  RepackedOperand x, w, y;
  bool x_transposed, y_transposed;
  device::ImageCopy cells;  // how the copy of x divides into cells: step, pad, cells, cell_channels
  std::int64_t copied_bytes() const { return x.bytes + w.bytes + y.bytes; }
};
// The problem has its strides. A null operand stands for any address: it is copied wherever the
// address could ask for that. Offsets begin at `workspace`.
Repacked repack(const ConvProblem& problem, const ConvOperands& operands, std::int64_t workspace);

// The form of a kernel with repack.
TmawsForm form_of(const ConvSignature& signature, const Algorithm& algorithm,
                  const Repacked& repacked);

// Makes a row of neighbouring pixels' results where that pays (result_cells.cc).
void see_result_cells(const ConvProblem& problem, Repacked& to);
void add_result_cells(const ConvProblem& problem, const Repacked& repacked,
                      device::CudaRepackArguments& to);

// Why no kernel with repack serves the problem; empty where one may.
std::string unrepackable(const ConvProblem& problem);

// How many neighbouring pixels of a line are one pixel of the product; 1 where that does not pay.
std::int64_t pixels_of_run(const ConvProblem& problem);
// The problem with such pixels, which have a group for each pixel of the run.
ConvProblem in_runs(const ConvProblem& problem, std::int64_t run);
// Whether each result of a run finds its place, and its element of a vector, by itself.
bool has_scattered_runs(const ConvProblem& problem, std::int64_t run);

// The arguments of the steps that copy and that store.
void add_repack(const ConvProblem& problem, const ConvOperands& operands, const Repacked& repacked,
                device::CudaRepackArguments& to);

// What a kernel multiplies, see tile/tmaws.h.
tile::Product tmaws_product(const ConvSignature& signature);

Launch bind_tmaws(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                  const ConvOperands& operands);

Estimate estimate_tmaws(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                        int threads);

}  // namespace tessera::conv
