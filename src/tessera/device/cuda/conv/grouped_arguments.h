// The argument of the grouped kernels of convolutions. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"

namespace tessera::device {

// A number to divide by. magic is 2^32 / by, rounded up, and 0 where `by` is 1: quotients of
// numbers are exact whose product with `by` is below 2^32.
struct GroupedDivisor {
  unsigned by, magic;
};

// A tap: where it lies in the filter, in elements, and where it moves a result's place in the tile
// of the image, in bytes.
struct GroupedTap {
  int filter, image;
};

// Results that see the same taps: all of them, or in backward_data with strides one residue's. A
// result's place in its image is start + index * result_step.
struct GroupedClass {
  int first_tap, taps;
  int start[kSpatialDims];
};

inline constexpr int kMostGroupedTaps = 128;
inline constexpr int kMostGroupedClasses = 27;  // strides of 3 in three dimensions
// backward_weight, the second step: so many threads add up the parts of an element.
inline constexpr int kGroupedLanes = 8;
// How far a launch may copy at once, in bytes; kGroupedByElement: one element after the other.
inline constexpr int kGroupedByElement = 2;

// The image is what the taps move over: x, or in backward_data y. A product has the channels of
// `together` neighbouring groups; the elements of a filter that belong to two groups are zeros.
struct GroupedArguments {
  ConvArguments conv;
  void* workspace;
  i64 partial_sums;  // parts: their offset in the workspace, in bytes

  int together, products;
  int depth, columns;          // channels of the image, and of the results or of y, in a product
  int all_depth, all_columns;  // over all groups
  int product_blocks, column_parts;

  // A tile: `images` x box results of each class; `tiles_across` tiles along each dimension.
  int images, box[kSpatialDims];
  int tiles_across[kSpatialDims], tiles;
  GroupedDivisor by_box[kSpatialDims];
  int result_step[kSpatialDims];

  // Places of the image that a tile meets: `halo` along each dimension, from `origin` on in the
  // first tile. A place x of a tile lies x / step * pitch + x % step * residue bytes from its
  // first one.
  int halo[kSpatialDims], origin[kSpatialDims], image_step[kSpatialDims];
  int places;  // in all
  GroupedDivisor by_halo[kSpatialDims], by_step[kSpatialDims];
  int pitch[kSpatialDims], residue[kSpatialDims];
  int image_pitch;  // bytes from a place of an image to that of the next one
  // Kernels by wgmma: bytes from 8 channels of a place to the next 8, blocks of 64 places of an
  // image, lengths of the lines and planes of a tile's raster, and how many blocks share the tiles.
  int plane, raster_blocks;
  GroupedDivisor by_raster[kSpatialDims];
  int walkers;
  int image_bytes;  // of a tile of the image
  int other_bytes;  // backward_weight: of a tile of y

  // Bytes of the widest copies that addresses and strides allow: 16, 8, 4 or kGroupedByElement.
  int image_width, filter_width, other_width;
  int result_width;  // elements that are stored together: 4, 2 or 1

  int parts;                   // backward_weight: so many blocks share the tiles of a product
  int buffers;                 // tiles in shared memory
  int row_units, unit_blocks;  // backward_weight: parts of the rows; blocks that share a product
  int classes, taps;
  GroupedDivisor by_taps;
  GroupedClass of_class[kMostGroupedClasses];
  GroupedTap tap[kMostGroupedTaps];
};

}  // namespace tessera::device
