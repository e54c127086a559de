// Trains models on this machine's own measurements, and keeps those that are better than the
// previous ones.
#pragma once

#include <string>
#include <vector>

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace tessera::commands {

// The result for one kind of operands.
struct Learned {
  std::string types;  // the key of its models, "bf16"
  bool installed = false;
  std::string outcome;           // a sentence
  train::Summary before, after;  // on problems that the new model did not train on; set if it was
                                 // trained
};

// Trains a model for each kind of operands of the kernels, and scores it by cross-validation. The
// model is written to <models>/<op>_<target>_<types> when its mean and its 10th percentile are
// better than the dispatcher's without the user's own models. When a model cannot be trained
// (too few problems, no LightGBM, the command shall end), its outcome says why.
std::vector<Learned> learn(const Console& console, const measure::SweepData& data,
                           const Target& target, int threads,
                           const std::vector<KernelSpec>& kernels, const fs::path& models);

}  // namespace tessera::commands
