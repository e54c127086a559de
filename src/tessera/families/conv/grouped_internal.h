// The kernels of src/tessera/device/cuda/conv/grouped_conv.h on the host: what a tile of a problem
// holds, and what a launch looks like.
#pragma once

#include "tessera/device/cuda/conv/grouped_arguments.h"
#include "tessera/families/conv/conv.h"

namespace tessera::conv {

// What an algorithm's shapes mean, see the device header.
struct GroupedShape {
  int results;             // that a tile has room for
  int columns;             // of a product that a block has
  int channels;            // of the image in a product, filled up
  int products;            // of a block
  int rows, warp_columns;  // of a warp
  int warps, sharers;      // backward_weight: how many of the warps share the sums' pixels
  bool by_weight, by_data;
  int stages;  // tiles of the image in shared memory; more than 1: by wgmma

  bool is_wide() const { return stages > 1; }
  int threads() const { return is_wide() ? (warps + 1) * 128 : warps * 32; }
  int sums() const { return rows * warp_columns / (is_wide() ? 128 : 32); }  // of a thread
};
GroupedShape grouped_shape(ConvDirection direction, const Algorithm& algorithm);

// How many neighbouring groups a product has, and what it multiplies.
struct GroupedProduct {
  std::int64_t together, products;
  std::int64_t depth, columns;  // channels of the image, and of the results or of y
};
GroupedProduct grouped_product(const ConvProblem& problem);

// Counts of a kernel on a problem. No tile fits where `fits` is false; the bytes are then those of
// the smallest tile.
struct GroupedPlan {
  bool fits = false;
  double shared_bytes = 0;  // of a block
  double blocks = 0;        // of the first step
  double tiles = 0, parts = 1;
  double walkers = 1;      // by wgmma: blocks that share the tiles of a product
  double unit_blocks = 1;  // that share a product's sums
  double places = 0;       // of the image that a tile meets
  double results = 0;      // of all classes of a tile
  double steps = 0;        // taps times steps of the depth, of a result
  double resident = 1;     // blocks that a unit runs at a time
};
// The problem has its strides, and taps and classes that the arguments have room for. Fills in all
// that depends on the tile.
GroupedPlan grouped_plan(const ConvProblem& problem, const Algorithm& algorithm,
                         const Target& target, device::GroupedArguments& arguments);

// Registers of a thread, as far as blocks are to share a unit.
int grouped_registers(const ConvSignature& signature, const Algorithm& algorithm);

Launch bind_grouped(const KernelSpec& spec, const ConvProblem& problem, const Target& target,
                    const ConvOperands& operands);

}  // namespace tessera::conv
