// How much each feature of a trained forest contributed to fitting its data.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/learn/model.h"

namespace tessera {

struct FeatureGain {
  std::string feature;
  double gain = 0;  // what its splits took off the training loss, as a share of all features' gain
  int splits = 0;
};

// From LightGBM's model text, plain or gzip: every feature, most gain first, equal ones by name.
// Throws Error{parse_error} where splits, their gains and the feature names do not fit together.
std::vector<FeatureGain> feature_gains(std::string_view bytes, std::string_view what);

// The same of a model folder; throws Error{io_error} when its forest cannot be read.
std::vector<FeatureGain> feature_gains(const std::filesystem::path& folder,
                                       const Manifest& manifest);

}  // namespace tessera
