// The parts of the feature extractor: what it looks up once for a problem and once for a kernel,
// and the two tables of features.
#pragma once

#include <span>

#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/features.h"

namespace tessera::conv {

using tile::alignment_of;
using tile::at_least;
using tile::at_most;
using tile::ceil_of;
using tile::flag;
using tile::floor_of;
using tile::log2_from_1;
using tile::log2_of;
using tile::number;
using tile::quotient;
using tile::used_share;

// What all kernels of a problem share.
struct ProblemFacts {
  ConvProblem p;  // with its strides filled in
  tile::MachineFacts machine;
  tile::WorkFacts work;
  Spatial out{};  // sizes of y
  View view{};
  double c = 0, k = 0, g = 0;  // c and k of one group
  double taps = 0, in_pixels = 0, out_pixels = 0;
  double x_bytes = 0, w_bytes = 0, y_bytes = 0;
  double slab = 0;   // channels of a tap along the depth of the product; by w: the whole depth
  double lines = 0;  // pixels of a line along the rows of the product
};
// The parts of p that features name must be valid.
ProblemFacts problem_facts(const ConvProblem& problem, const Target& target, int threads);

// A kernel on a problem. Rows and columns are those that tile_m and tile_n count.
struct KernelFacts {
  const Algorithm& a;
  double rows = 0, columns = 0, groups = 0, depth = 0;
  double tile_m = 1, tile_n = 1, tile_k = 1;
  double size_m = 4, size_n = 4;  // bytes of an element of the operand along tile_m and tile_n
  double tiles_m = 0, tiles_n = 0, tiles_k = 0, tiles = 0;
  double threads = 1;  // of a block
  double stage_bytes = 0, shared_bytes = 0;
  double resident = 1;                 // blocks of a unit at a time
  double jobs = 0;                     // blocks; on a CPU, register blocks
  double slots = 1;                    // jobs that run at a time
  double steps = 0;                    // of tile_k for a block
  double tiled_bytes = 0;              // what tiles read
  double slice_bytes = 0;              // sums of slices, written and read
  tile::EstimateFacts estimated = {};  // only where a feature of it is wanted
};
KernelFacts kernel_facts(const ProblemFacts& problem, const Algorithm& algorithm);

using ProblemFeature = tile::ProblemFeature<ProblemFacts>;
using KernelFeature = tile::KernelFeature<ProblemFacts, KernelFacts>;
std::span<const ProblemFeature> problem_features();
std::span<const KernelFeature> kernel_features();

// The pipelines that have a feature of their own, in the order of those features.
std::span<const Pipeline> pipelines_with_flags();

}  // namespace tessera::conv
