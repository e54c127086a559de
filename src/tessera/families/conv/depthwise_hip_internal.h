// The depthwise kernels of AMD GPUs on the host (src/tessera/device/hip/conv/depthwise_*.h).
#pragma once

#include "tessera/device/hip/conv/depthwise_arguments.h"
#include "tessera/families/conv/mfma_internal.h"

namespace tessera::conv::hip_depthwise {

// What the numbers of a kernel stand for: a lane has 16 bytes of channels of what it reads, and
// `columns` neighbouring results of a line. No taps: any filter.
struct Shape {
  int multiple, columns, taps, step;
  int vector;  // channels of y of a lane
  int across;  // lanes of a block along channels
  int runs;    // of a block at a time
};
Shape shape_of(const ConvSignature& signature, const Algorithm& algorithm);

// How the blocks of a launch share the runs of all images: `slices` of them have the same channels
// (and of backward_weight the same taps).
struct Plan {
  std::int64_t channel_blocks, most_runs;  // of a part
  std::int64_t parts;                      // residues, or of backward_weight lines of taps
  std::int64_t slices;
  std::int64_t blocks() const { return channel_blocks * parts * slices; }
};
Plan plan_of(const ConvProblem& problem, const Shape& shape, const Target& target, int tile_n);

// The taps along a dimension that a result meets at most: of backward_data, those of a residue.
std::int64_t taps_along(const ConvProblem& problem, std::size_t dim);

Launch bind(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
            const ConvOperands& operands);

}  // namespace tessera::conv::hip_depthwise
