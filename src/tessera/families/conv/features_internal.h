// The parts of the feature extractor: what it looks up once for a problem and once for a kernel,
// and the two tables of features.
#pragma once

#include <span>

#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/lanes.h"

namespace tessera::conv {

inline constexpr double kLeastSeconds = 1e-9;  // of any predicted time

inline double number(std::int64_t value) { return static_cast<double>(value); }
inline double log2_from_1(double value) { return tile::log2_of(tile::at_least(value, 1)); }
inline double quotient(double part, double whole) { return whole > 0 ? part / whole : 0; }

// What all kernels of a problem share. A cache of 0 bytes does not exist.
struct ProblemFacts {
  ConvProblem p;  // with its strides filled in
  const Target* target = nullptr;
  int threads = 1;
  bool on_cpu = false;
  Spatial out{};  // sizes of y
  View view{};
  double c = 0, k = 0, g = 0;  // c and k of one group
  double taps = 0, in_pixels = 0, out_pixels = 0;
  double x_bytes = 0, w_bytes = 0, y_bytes = 0, bytes = 0, flops = 0;
  double slab = 0;   // channels of a tap along the depth of the product; by w: the whole depth
  double lines = 0;  // pixels of a line along the rows of the product
  double units = 1;  // on a CPU, the threads
  double peak = 1, bandwidth = 1;  // each second
  double l1 = 0, l2 = 0, l3 = 0;   // bytes
  double ideal_log2 = 0;
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
  double resident = 1;           // blocks of a unit at a time
  double jobs = 0;               // blocks; on a CPU, register blocks
  double slots = 1;              // jobs that run at a time
  double steps = 0;              // of tile_k for a block
  double tiled_bytes = 0;        // what tiles read
  double slice_bytes = 0;        // sums of slices, written and read
  Estimate estimate = {};        // only where a feature of it is wanted
  double estimated_seconds = 0;  // at least kLeastSeconds
};
KernelFacts kernel_facts(const ProblemFacts& problem, const Algorithm& algorithm);

struct SharedFeature {
  Feature feature;
  double (*value)(const ProblemFacts&);
};
struct OwnFeature {
  Feature feature;
  double (*value)(const ProblemFacts&, const KernelFacts&);
  bool is_estimated = false;  // needs KernelFacts::estimate
};
// Problem and machine: the same for every candidate.
std::span<const SharedFeature> shared_features();
// Kernel and interaction.
std::span<const OwnFeature> own_features();

// The pipelines that have a feature of their own, in the order of those features.
std::span<const Pipeline> pipelines_with_flags();

}  // namespace tessera::conv
