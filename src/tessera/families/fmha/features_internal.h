// The parts of the feature extractor: what it looks up once for a problem and once for a kernel,
// and the two tables of features.
#pragma once

#include <span>

#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/features.h"

namespace tessera::fmha {

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
  FmhaProblem p;  // with its strides filled in
  tile::MachineFacts machine;
  tile::WorkFacts work;
  double group = 1;                // query heads of a key-value head
  double pairs = 0, pairs_kv = 0;  // heads and key-value heads of all sequences
  double rows_kv = 0;              // queries of a key-value head
  double tokens_q = 0, tokens_k = 0;
  double seen = 0;      // scores that no mask hides
  double row_keys = 0;  // keys that a query sees, on average
  double q_bytes = 0, kv_bytes = 0;
};
// The problem is valid.
ProblemFacts problem_facts(const FmhaProblem& problem, const Target& target, int threads);

// A kernel on a problem. Rows are those that tile_m counts: queries of a head, or of all heads that
// share keys.
struct KernelFacts {
  const Algorithm& a;
  double tile_m = 1, tile_n = 1, tile_k = 1;
  double room_v = 1;  // elements of v that a tile has room for
  double rows = 0, tiles_m = 0, items = 0;
  double threads = 1;  // of a block
  double shared_bytes = 0, workspace_bytes = 0;
  double steps = 0;                    // of the launch
  double parts = 1;                    // of the keys
  double resident = 1;                 // blocks of a unit at a time
  double jobs = 0;                     // blocks; on a CPU, what threads take one after the other
  double slots = 1;                    // jobs that run at a time
  double part_steps = 0;               // blocks of keys that a team takes for a part
  double tiled_bytes = 0;              // keys and values that tiles read
  tile::EstimateFacts estimated = {};  // only where a feature of it is wanted
};
// The kernel has the problem's signature and serves it.
KernelFacts kernel_facts(const ProblemFacts& problem, const KernelSpec& spec, const Target& target);

using ProblemFeature = tile::ProblemFeature<ProblemFacts>;
using KernelFeature = tile::KernelFeature<ProblemFacts, KernelFacts>;
std::span<const ProblemFeature> problem_features();
std::span<const KernelFeature> kernel_features();

// The pipelines that have a feature of their own, in the order of those features.
std::span<const Pipeline> pipelines_with_flags();

}  // namespace tessera::fmha
