// A model of two features with its manifest, in memory.
#pragma once

#include <array>

#include "host/learn/forests.h"
#include "tessera/base/hash.h"
#include "tessera/learn/model.h"

namespace tessera {

// The features of kSmall: the problem's m and the kernel's stages.
inline constexpr std::array kSmallFeatures = {
    Feature{"x0", "1", "m", FeatureGroup::problem},
    Feature{"x1", "1", "stages", FeatureGroup::kernel},
};
inline const ModelUse kSmallUse{"gemm", "avx512", kSmallFeatures};

inline Manifest small_manifest() {
  Manifest manifest;
  manifest.op = "gemm";
  manifest.target = "avx512";
  manifest.dtypes = {"fp32"};
  manifest.file = "model.txt";
  manifest.model_hash = hash_hex(kSmall);
  manifest.feature_hash = feature_hash_text(kSmallFeatures);
  manifest.features = {"x0", "x1"};
  manifest.ranges = {{"x0", 16, 4096}};
  manifest.data_hash = "d00d";
  manifest.rows = 1000;
  manifest.problems = 10;
  manifest.date = "2026-11-21";
  manifest.versions = {{"lightgbm", "4.7.0"}};
  manifest.metrics = {{"mean_efficiency", 0.985}};
  manifest.params = {{"num_leaves", "3"}};
  return manifest;
}

inline Model small_model(const Manifest& manifest) {
  return make_model(to_json(manifest), kSmall, kSmallUse, "small");
}

}  // namespace tessera
