#include "tessera/learn/feature_importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"
#include "tessera/learn/gzip.h"
#include "tessera/learn/refuse_internal.h"

namespace tessera {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 30;  // of inflated gzip, in bytes

constexpr std::string_view kNames = "feature_names=";
constexpr std::string_view kFeatures = "split_feature=";
constexpr std::string_view kGains = "split_gain=";

template <class Number>
std::vector<Number> numbers(std::string_view line, std::string_view what) {
  std::vector<Number> values;
  for (const std::string_view word : split_words(line)) {
    Number value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      refuse_file(what, fmt::format("a split's feature or gain must be a number, got '{}'", word));
    }
    values.push_back(value);
  }
  return values;
}

void add_tree(std::vector<FeatureGain>& all, const std::vector<std::size_t>& features,
              const std::vector<double>& gains, std::string_view what) {
  if (features.size() != gains.size()) {
    refuse_file(what,
                fmt::format("a tree has {} splits and {} gains", features.size(), gains.size()));
  }
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (features[i] >= all.size()) {
      refuse_file(
          what, fmt::format("a split asks for feature {}, there are {}", features[i], all.size()));
    }
    all[features[i]].gain += std::isfinite(gains[i]) ? std::max(gains[i], 0.0) : 0;
    ++all[features[i]].splits;
  }
}

}  // namespace

std::vector<FeatureGain> feature_gains(std::string_view bytes, std::string_view what) {
  const std::string inflated = is_gzip(bytes) ? inflate_gzip(bytes, what, kMostText) : "";
  std::vector<FeatureGain> all;
  std::vector<std::size_t> features;
  for (const std::string_view line : split(inflated.empty() ? bytes : inflated, '\n')) {
    if (line.starts_with(kNames)) {
      for (const std::string_view name : split_words(line.substr(kNames.size()))) {
        all.push_back({std::string(name)});
      }
    } else if (line.starts_with(kFeatures)) {
      features = numbers<std::size_t>(line.substr(kFeatures.size()), what);
    } else if (line.starts_with(kGains)) {
      add_tree(all, features, numbers<double>(line.substr(kGains.size()), what), what);
    }
  }
  double total = 0;
  for (const FeatureGain& feature : all) total += feature.gain;
  for (FeatureGain& feature : all) feature.gain /= total > 0 ? total : 1;
  std::sort(all.begin(), all.end(), [](const FeatureGain& a, const FeatureGain& b) {
    return a.gain != b.gain ? a.gain > b.gain : a.feature < b.feature;
  });
  return all;
}

std::vector<FeatureGain> feature_gains(const std::filesystem::path& folder,
                                       const Manifest& manifest) {
  const std::filesystem::path file = folder / manifest.file;
  return feature_gains(read_file(file), file.string());
}

}  // namespace tessera
