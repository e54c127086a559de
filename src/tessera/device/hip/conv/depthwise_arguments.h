// The arguments of HIP's depthwise convolutions. Plain C layout; a change here raises the family's
// ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

inline constexpr int kHipDepthwiseLanes = 256;  // of a block
inline constexpr int kHipDepthwiseParts = 16;   // that a launch has at most

// The most taps of a filter: as many weights a channel as a block keeps in LDS.
constexpr int hip_depthwise_taps(int taps_of_line, int ndim) {
  if (taps_of_line == 0) return 64;
  if (ndim == 1) return taps_of_line;
  return taps_of_line * taps_of_line * (ndim == 3 && taps_of_line == 3 ? 3 : 1);
}

// An image whose vectors of channels are read; pitches are bytes.
struct HipDepthwiseImage {
  int size[kSpatialDims], pitch[kSpatialDims];
  i64 image_pitch, bytes;  // of all images, below 2^31
};

// The results of a launch, or those of one residue of the strides of backward_data. A run is
// kColumns neighbouring results of a line (backward_weight: places of y). A result and a tap name a
// place of the image that is read: along each dimension
//   place * step + base + tap number * tap
struct HipDepthwisePart {
  int runs;                // of all images
  int grid[kSpatialDims];  // results; along the width, runs
  int width;               // results of a line
  int step[kSpatialDims], base[kSpatialDims], tap[kSpatialDims], taps[kSpatialDims];
  int filter_first, filter[kSpatialDims];  // elements to the first tap, and from tap to tap
  // Where results are, counted in rows of ld_out elements. backward_weight has no use of these.
  i64 result_first, result_image, result[kSpatialDims];
  int next[kSpatialDims], next_n;  // by how many runs a lane goes on: digits, and images
};

template <int kParts>
struct HipDepthwiseArguments {
  GemmArguments gemm;              // a: the image that is read, b: filters, or in backward_weight y
  void* workspace;                 // backward_weight: sums of every slice of the runs
  i64 partial_sums;                // offset of these sums, in bytes
  int channels;                    // of y
  int channel_blocks;              // of kTileN channels of y
  int slices;                      // blocks that share the runs of the same channels
  i64 filter_channel;              // elements of filters from a channel of y to the next one
  HipDepthwiseImage image, other;  // other: y, of backward_weight
  HipDepthwisePart parts[kParts];
};

}  // namespace tessera::device
