// What choosing costs: the learned ranking of a new problem, its parts, and LightGBM beside it.
#pragma once

#include <functional>
#include <string>

#include "options.h"
#include "output.h"

namespace tessera::cli {

struct RankBench {
  ProblemOptions problem;  // without words and file: a typical one of the model's type
  std::string target;      // whose shipped model is taken
  std::string model;       // a folder instead; its machine is the target then
  int candidates = 0;      // of the problem's legal kernels, repeated or cut to this many
  runtime::Protocol protocol;
  std::function<double()> memo_hit;  // seconds of a warm call
};

// Compares our predictions with LightGBM's (bit for bit) before anything is timed; without its
// library, and where no kernel can be built for the memo, a note says so. Throws
// Error{not_found} where no model is shipped, Error{unsupported} where the model has no opinion,
// Error{verification_failed} where predictions differ.
int run_rank_bench(const RankBench& bench, const Output& output);

}  // namespace tessera::cli
