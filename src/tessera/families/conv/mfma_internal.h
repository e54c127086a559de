// The kernels of src/tessera/device/hip/conv/ on the host: what a launch of a problem looks like,
// without addresses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/gemm/gemm_arguments.h"
#include "tessera/device/hip/conv/repack_arguments.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::conv::mfma {

enum { kN, kG, kC, kD, kH, kW };  // among the strides of images

inline bool by_weight(const auto& x) { return x.direction == ConvDirection::backward_weight; }
inline bool by_data(const auto& x) { return x.direction == ConvDirection::backward_data; }

// The types of the product: the operands that a direction multiplies, and its result.
struct Types {
  DType a, b, out, d;
};
Types types_of(const ConvSignature& signature);
// Bytes of an element of both operands.
int element_bytes(const ConvSignature& signature);
inline int bytes_of(const ConvProblem& p) { return size_of(by_data(p) ? p.out : p.in); }

// The kernel's tile as the device's functions for sizes take it.
device::MfmaShape shape_of(const ConvSignature& signature, const Algorithm& algorithm);

// One of the products of a launch: all of it, or of backward_data the pixels of one residue of the
// strides.
struct Part {
  std::int64_t rows, depth;
};
struct Plan {
  std::vector<Part> parts;
  std::int64_t columns = 0, groups = 0;
  std::int64_t most_rows = 0;  // of a part
};
// The taps that pixels of one residue see along one dimension, as ConvView has them
// (device/cuda/conv/conv_view.h): tap i is at first + i * step of the filter and moves the place in
// y by shift + i * shift_step.
struct Taps {
  std::int64_t count, first, step, shift, shift_step;
};
struct Residue {
  Taps taps[3];
  std::int64_t first[3], pixels[3];  // of x, along each dimension
};
std::vector<Residue> residues_of(const ConvProblem& problem);

// The largest number that divides the distances of all pixels: rows of results have so many
// elements.
std::int64_t row_of_results(const ConvStrides& strides, const Spatial& size, std::int64_t n);
// C, D and numbers of the epilogue. C and D that are matrices lie as the result does, whose strides
// are set.
void set_results(const ConvProblem& problem, const ConvOperands& operands,
                 device::GemmArguments& arguments);
// Throws Error{invalid_argument} where an operand that is read by dwords is not aligned to them.
void refuse_unaligned(std::string_view name, const void* data, Pipeline pipeline);

// The problem has its strides.
Plan plan_of(const ConvProblem& problem);

// backward_data: the largest distance of neighbouring results of a residue, in rows of results.
double farthest_result(const ConvProblem& problem);
// The distance of neighbouring pixels where it is the same everywhere, else -1; `alone` where there
// is one pixel.
std::int64_t pixel_distance(const ConvStrides& strides, const Spatial& size, std::int64_t n,
                            std::int64_t alone);
// Whether the taps of a filter lie side by side, so that it is one line.
bool taps_adjoin(const ConvProblem& problem);

// A module has a second entry for problems whose steps of the depth lie in one tap each, or in
// backward_weight their tiles of columns: walking is then the scalar unit's. Copies of
// backward_weight walk a lane at a time whatever the taps are, and have no such entry.
inline constexpr std::uint8_t kAnyTaps = 0, kWholeTaps = 1;  // of Source::entries
bool has_whole_taps(const ConvSignature& signature, const Algorithm& algorithm);
bool lies_in_whole_taps(const ConvProblem& problem, const Algorithm& algorithm);

// mfma_repack.cc: kernels with repack copy operands to the workspace in a first step, and store
// each result by itself, so that they take any layout and any channels.
struct Repack {
  ConvProblem problem;        // what the main loop sees
  std::int64_t together = 1;  // groups that are one there
  bool copies_x = false, copies_y = false;
  double bytes[2] = {};  // of the copies of an image, and of filters (backward_weight: of y)
};
Repack repack(const ConvProblem& problem);
// Whether repack is worth a try: where the plain kernels serve nothing, or small groups one a tile.
// The problem has its strides.
bool wants_repack(const ConvProblem& problem);
std::string unrepackable(const ConvProblem& problem);
struct RepackArguments {
  const void *&a, *&b;  // of the product
  device::i64 (&in_workspace)[2];
  device::HipConvCopy (&copies)[2];
};
// Where the workspace ends when the copies begin at this offset.
std::int64_t add_copies(const ConvProblem& problem, const ConvOperands& operands,
                        const Repack& repack, std::int64_t workspace, RepackArguments& to);
device::HipConvResult results_of(const ConvProblem& problem, const Repack& repack);

// mfma_text.cc
Source emit(const KernelSpec& spec, const Target& target);

Launch bind(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
            const ConvOperands& operands);
Estimate estimate(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                  int threads);

}  // namespace tessera::conv::mfma
