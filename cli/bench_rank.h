// Measures what choosing costs: the learned ranking of a new problem, the parts of it, and
// LightGBM's predictor for comparison.
#pragma once

#include <functional>
#include <string>

#include "command.h"
#include "tessera/commands/console.h"
#include "tessera/commands/options.h"

namespace tessera::cli {

struct RankBench {
  ProblemOptions problem;  // without words and file: a typical problem of the model's type
  std::string target;      // the target whose shipped model is used
  std::string model;       // a model folder to use instead; its machine is then the target
  int candidates = 0;  // how many candidates; the problem's legal kernels are repeated or cut to
                       // this number
  runtime::Protocol protocol;
  std::function<double()> memo_hit;  // measures the seconds of a warm call
};

// Compares our predictions with LightGBM's bit for bit before anything is timed. A note says when
// LightGBM is missing, and when no kernel can be built for the memo. Throws Error{not_found} when
// no model is shipped, Error{unsupported} when the model has no opinion, and
// Error{verification_failed} when predictions differ.
int run_rank_bench(const RankBench& bench, const Console& console);

}  // namespace tessera::cli
