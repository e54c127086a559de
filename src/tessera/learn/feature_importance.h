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
  double gain = 0;  // reduction of the training loss by its splits, as a share of all gains
  int splits = 0;
};

// Reads LightGBM's model text, plain or gzip. The result has every feature, most gain first, equal
// gains by name. Throws Error{parse_error} when splits, gains and feature names do not fit
// together.
std::vector<FeatureGain> feature_gains(std::string_view bytes, std::string_view what);

// The same for a model folder. Throws Error{io_error} when the forest cannot be read.
std::vector<FeatureGain> feature_gains(const std::filesystem::path& folder,
                                       const Manifest& manifest);

}  // namespace tessera
