// Training on this machine's own measurements, and keeping what is better than what was there.
#pragma once

#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::cli {

// What became of one kind of operands.
struct Learned {
  std::string types;  // the key of its models, "bf16"
  bool installed = false;
  std::string outcome;           // a sentence
  train::Summary before, after;  // on problems that the new model had not seen; if it was trained
};

// A model for each kind of operands that the kernels take, scored by cross-validation, and written
// to <models>/<op>_<target>_<types> when it chooses better, in the mean and in the tenth worst
// part, than what the dispatcher has without models of the user's own. One kind that cannot be
// learned (too few problems, no LightGBM) is no error: its outcome says why.
std::vector<Learned> learn(const measure::SweepData& data, const Target& target, int threads,
                           const std::vector<KernelSpec>& kernels, const fs::path& models);

}  // namespace tessera::cli
