// The argument of the grouped kernels of convolutions. Plain C layout; a change here raises the
// family's ABI number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"

namespace tessera::device {

// A number to divide by: a quotient is value * magic / 2^(31 + shift). Quotients of all values
// below 2^31 are exact.
struct GroupedDivisor {
  unsigned by, magic, shift;
};

// How threads share the lines of a tile. A thread copies 8 channels of one place of each line that
// it has, so that its addresses follow from those of the line before.
struct GroupedLines {
  int columns;  // copies that a line takes
  int at_once;  // lines that the threads copy at a time
  GroupedDivisor by_columns;
};

// A tap: where it lies in the filter, in elements, and where it moves a result's place in the tile
// of the image, in bytes.
struct GroupedTap {
  int filter, image;
};

// How far the filters of a tap lie from those of the tap before in shared memory, in bytes, when a
// line has `chunks` of 16 bytes and lines lie `pitch` bytes from each other. Chunks that lie side
// by side in memory then go to different banks.
constexpr int grouped_tap_bytes(int lines, int pitch, int chunks) {
  return lines * pitch + ((chunks * 16 - lines * pitch) % 128 + 128) % 128;
}

// Results that see the same taps: all of them, or in backward_data with strides one residue's. A
// result's place in its image is start + index * result_step.
struct GroupedClass {
  int first_tap, taps;
  int start[kSpatialDims];
};

inline constexpr int kMostGroupedTaps = 128;
inline constexpr int kMostGroupedClasses = 27;  // strides of 3 in three dimensions
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
  GroupedDivisor by_blocks, by_parts;  // blocks that share a tile; parts of the columns

  // A tile: `images` x box results of each class; `tiles_across` tiles along each dimension.
  int images, box[kSpatialDims];
  int tiles_across[kSpatialDims], tiles;
  GroupedDivisor by_tiles_across[kSpatialDims];
  GroupedDivisor by_box[kSpatialDims];
  int result_step[kSpatialDims];
  GroupedDivisor by_result_step[kSpatialDims];
  // Elements from a result of a tile to the next image's, and along each dimension.
  i64 image_distance;
  int result_distance[kSpatialDims];

  // Places of the image that a tile meets: `halo` along each dimension, from `origin` on in the
  // first tile. A place x of a tile lies x / step * pitch + x % step * residue bytes from its
  // first one.
  int halo[kSpatialDims], origin[kSpatialDims], image_step[kSpatialDims];
  GroupedLines image_lines, other_lines;  // backward_weight: the others are those of y
  GroupedDivisor by_step[kSpatialDims];
  int pitch[kSpatialDims], residue[kSpatialDims];
  int image_pitch;  // bytes from a place of an image to that of the next one
  // Kernels by wgmma: bytes from 8 channels of a place to the next 8, blocks of 64 places of an
  // image, lengths of the lines and planes of a tile's raster, and how many blocks share the tiles.
  int plane, raster_blocks;
  GroupedDivisor by_raster[kSpatialDims];
  int walkers;
  // backward_weight by wgmma: the steps of 16 places of an image are raster_blocks. Bytes of a tile
  // of x and y together; of y: bytes from 8 channels to the next 8 and from one image, slice and
  // line to the next, and the places of its raster along each dimension.
  int stage_bytes;
  int other_plane, other_image, other_slice, other_line, other_box[kSpatialDims];
  int image_bytes;  // of a tile of the image
  int other_bytes;  // backward_weight: of a tile of y

  // Bytes of the widest copies that addresses and strides allow: 16, 8, 4 or kGroupedByElement.
  int image_width, filter_width, other_width;
  int result_width;  // elements that are stored together: 8, 4, 2 or 1
  // Where a product's filters lie side by side without gaps: elements of a row, which has all taps
  // of a channel of y, and how threads share the rows. 0: they do not.
  int row_elements;
  GroupedLines filter_lines;

  int parts;                   // backward_weight: so many blocks share the tiles of a product
  int tiles_of_part;           // at most
  int waits;                   // whether all parts run at the same time
  int buffers;                 // tiles in shared memory
  int row_units, unit_blocks;  // backward_weight: parts of the rows; blocks that share a product
  int classes, taps;
  GroupedDivisor by_taps;
  GroupedClass of_class[kMostGroupedClasses];
  GroupedTap tap[kMostGroupedTaps];
  unsigned char slot[kMostGroupedTaps];  // of each tap of the filter: its index in `tap`
};

}  // namespace tessera::device
