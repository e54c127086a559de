// The arguments of the cpasync kernels of convolutions. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"

namespace tessera::device {

// How threads bring a chunk of 16 bytes to shared memory: by copies of this many bytes, or through
// registers, as aligned vectors around the chunk or element by element.
enum GatherWidth { kByElement = 0, kByVector = 1, kBy4 = 4, kBy8 = 8, kBy16 = 16 };

// An operand. A chunk is a part of a run; its element i exists where run + i * run_step of its
// place is at least 0 and below run_limit.
struct GatherOperand {
  const char* data;
  const char* end;  // behind the last element
  i64 product;      // elements from one product to the next
  i64 step;         // elements from one element of a chunk to the next
  int run_limit, run_step;
  int width;
};

// A product has the channels of `together` neighbouring groups; the elements of a filter that
// belong to two groups are zeros. A run is what the innermost digit of the depth, or of
// backward_weight's columns, counts: the channels of a product, or, where taps_in_run is set, all
// of a line of the filter.
struct GatherArguments {
  ConvArguments conv;
  GatherOperand image, other;
  int image_limit[kSpatialDims];
  int together, products;
  int run, padded_run;  // elements; chunks begin at multiples of a chunk in the padded run
  int lead;             // elements of the padded run before the run: its chunks are then aligned
  int taps_in_run;
  // The share of a pixel's place along the width in the place in the run, and in image_limit's.
  int run_scale, at_scale;
  int tiles_down, tiles_right;  // of one product and residue
  int tiles;                    // in all, without slices
  int pairs;                    // results are stored in pairs of columns
  void* workspace;
  i64 partial_sums;  // slices: their offset in the workspace, in bytes
};

}  // namespace tessera::device
