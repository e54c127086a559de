#include "tessera/learn/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/base/text.h"
#include "tessera/learn/gzip.h"
#include "tessera/learn/refuse_internal.h"

namespace tessera {
namespace {

constexpr std::string_view kManifestName = "manifest.json";
constexpr std::size_t kMostModelText = std::size_t{256} << 20;

[[noreturn]] void refuse_use(std::string_view what, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", what, why));
}

// Where today's features hold the model's, as far as they do. Today's may have new ones
// between them, which no tree of the model asks about, but the order is the same.
std::vector<std::size_t> places_of(const std::vector<std::string>& then,
                                   std::span<const Feature> now) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < now.size() && places.size() < then.size(); ++i) {
    if (then[places.size()] == now[i].name) places.push_back(i);
  }
  return places;
}

void check_use(const Manifest& manifest, const ModelUse& use, std::span<const std::size_t> places,
               std::string_view what) {
  if (manifest.op != use.op) {
    refuse_use(what,
               fmt::format("the model is for operation '{}', wanted is '{}'", manifest.op, use.op));
  }
  if (manifest.target != use.target) {
    refuse_use(what, fmt::format("the model is for target '{}', wanted is '{}'", manifest.target,
                                 use.target));
  }
  if (places.size() < manifest.features.size()) {
    refuse_use(what, fmt::format("the model was trained on {} features, of which '{}' is not among "
                                 "the {} of today, or in another order; train it again",
                                 manifest.features.size(), manifest.features[places.size()],
                                 use.features.size()));
  }
  std::vector<Feature> kept;
  for (const std::size_t place : places) kept.push_back(use.features[place]);
  const std::string hash = feature_hash_text(kept);
  if (manifest.feature_hash == hash) return;
  refuse_use(what, fmt::format("the model was trained on features with hash {}, those of today "
                               "have {}: all {} names agree, so that a unit, formula or group has "
                               "changed; train it again",
                               manifest.feature_hash, hash, kept.size()));
}

// LightGBM writes names with '_' for a space, so that ours, which have none, come back unchanged.
void check_forest(const Manifest& manifest, const Forest& forest, std::string_view what) {
  if (forest.feature_names.size() != manifest.features.size()) {
    refuse_file(what, fmt::format("the forest has {} features, the manifest's hash is of {}",
                                  forest.feature_names.size(), manifest.features.size()));
  }
  for (std::size_t i = 0; i < manifest.features.size(); ++i) {
    if (forest.feature_names[i] == manifest.features[i]) continue;
    refuse_file(what, fmt::format("feature {} must be '{}', got '{}'", i, manifest.features[i],
                                  forest.feature_names[i]));
  }
}

// Makes the forest ask for today's features. The order of its splits stays as it is, because the
// places rise.
void place_features(Forest& forest, std::span<const std::size_t> places,
                    std::span<const Feature> features) {
  for (Split& split : forest.splits) {
    split.feature = static_cast<std::uint32_t>(places[split.feature]);
  }
  forest.feature_names.clear();
  for (const Feature& feature : features) forest.feature_names.emplace_back(feature.name);
}

// Whether all candidates for a problem have the same value.
bool is_shared(const Feature& feature) {
  return feature.group == FeatureGroup::problem || feature.group == FeatureGroup::hardware;
}

// Problems that differ in newer features have models under other keys.
std::vector<std::size_t> find_ranges(const Manifest& manifest, std::span<const Feature> features,
                                     std::span<const std::size_t> places, std::string_view what) {
  std::vector<std::size_t> indices;
  for (const TrainingRange& range : manifest.ranges) {
    const auto found = std::find_if(features.begin(), features.end(), [&](const Feature& feature) {
      return feature.name == range.feature && is_shared(feature);
    });
    if (found == features.end()) {
      refuse_file(what,
                  fmt::format("ranges names '{}', which is no feature of problems or machines",
                              range.feature));
    }
    indices.push_back(static_cast<std::size_t>(found - features.begin()));
  }
  for (const std::size_t i : places) {
    if (features[i].group != FeatureGroup::problem) continue;
    const auto named = std::count(indices.begin(), indices.end(), i);
    if (named == 1) continue;
    refuse_file(what, fmt::format("ranges must name the problem feature '{}' once, got it {} times",
                                  features[i].name, named));
  }
  return indices;
}

std::optional<Target> machine_of(const Manifest& manifest, std::string_view what) {
  if (manifest.machine.empty()) return std::nullopt;
  std::optional<Target> machine;
  try {
    machine = target_from_json(manifest.machine);
  } catch (const Error& error) {
    refuse_file(what, fmt::format("machine: {}", error.what()));
  }
  if (machine->name == manifest.target) return machine;
  refuse_file(what, fmt::format("machine must be the row of '{}', got that of '{}'",
                                manifest.target, machine->name));
}

void rename_into(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  throw Error(ErrorCode::io_error,
              fmt::format("cannot write {}: {}", to.string(), error.message()));
}

// A temporary folder within the model's folder, removed on every path. It lies within, because the
// model's folder may be a link to another disk.
struct TemporaryFolder {
  fs::path path;
  explicit TemporaryFolder(const fs::path& model) : path(make_unique_folder(model, ".tessera-")) {}
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove_tree(path); }
};

double untransformed(ModelTransform transform, double y) {
  switch (transform) {
    case ModelTransform::none:
      return y;
    case ModelTransform::log:
      return std::exp(y);
    case ModelTransform::log1p:
      return std::expm1(y);
  }
  return y;
}

// The features that must be extracted. Few models need every feature.
void note_wanted(Model& model) {
  const auto of = [&](std::size_t f) {
    return model.shared[f] != 0 ? FeatureUse::first : FeatureUse::all;
  };
  model.wanted.assign(model.shared.size(), FeatureUse::none);
  model.judged = model.wanted;
  for (const Split& split : model.forest.splits) model.wanted[split.feature] = of(split.feature);
  for (const std::size_t f : model.range_features) model.judged[f] = FeatureUse::first;
}

// Lines that LightGBM writes and no prediction needs; they are more than half of a file. LightGBM
// can read and continue to train forests without them. It also needs no tree_sizes, which would be
// wrong.
constexpr std::array<std::string_view, 6> kUnused = {
    "tree_sizes=",     "leaf_weight=",     "leaf_count=",
    "internal_value=", "internal_weight=", "internal_count="};

std::string without_unused(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end == text.npos ? end : end + 1);
    text.remove_prefix(line.size());
    const bool unused =
        std::ranges::any_of(kUnused, [&](std::string_view key) { return line.starts_with(key); });
    if (!unused) kept += line;
  }
  return kept;
}

}  // namespace

std::string feature_hash_text(std::span<const Feature> features) {
  return fmt::format("{:016x}", feature_hash(features));
}

Model make_model(std::string_view manifest_json, std::string_view forest_bytes, const ModelUse& use,
                 std::string_view what) {
  const std::string manifest_name = fmt::format("{}/{}", what, kManifestName);
  Model model;
  model.manifest = parse_manifest(manifest_json, manifest_name);
  const std::vector<std::size_t> places = places_of(model.manifest.features, use.features);
  check_use(model.manifest, use, places, what);
  model.machine = machine_of(model.manifest, manifest_name);
  const std::string hash = hash_hex(forest_bytes);
  if (hash != model.manifest.model_hash) {
    refuse_file(what, fmt::format("{} has hash {}, the manifest is of {}: the two do not belong "
                                  "together, or the file is damaged",
                                  model.manifest.file, hash, model.manifest.model_hash));
  }
  model.forest = parse_forest(forest_bytes, fmt::format("{}/{}", what, model.manifest.file));
  check_forest(model.manifest, model.forest, what);
  place_features(model.forest, places, use.features);
  model.range_features = find_ranges(model.manifest, use.features, places, manifest_name);
  for (const Feature& feature : use.features) model.shared.push_back(is_shared(feature) ? 1 : 0);
  note_wanted(model);
  return model;
}

Model load_model(const fs::path& folder, const ModelUse& use) {
  const std::string json = read_file(folder / kManifestName);
  const std::string name = (folder / kManifestName).string();
  const std::string bytes = read_file(folder / parse_manifest(json, name).file);
  return make_model(json, bytes, use, folder.string());
}

Model load_model(const fs::path& folder) {
  const std::string name = (folder / kManifestName).string();
  const Manifest manifest = parse_manifest(read_file(folder / kManifestName), name);
  const Family& family = family_of(parse_op(manifest.op));
  return load_model(folder, {manifest.op, manifest.target, family.features()});
}

std::string model_text(std::string_view bytes) {
  return is_gzip(bytes) ? inflate_gzip(bytes, "model", kMostModelText) : std::string(bytes);
}

void save_model(const fs::path& folder, Manifest manifest, std::string_view forest_text,
                ModelFile form) {
  check_enum("model: form", form, ModelFile::gzip);
  const bool packed = form == ModelFile::gzip;
  const std::string kept = without_unused(forest_text);
  const std::string bytes = packed ? deflate_gzip(kept) : kept;
  manifest.file = packed ? "model.txt.gz" : "model.txt";
  manifest.model_hash = hash_hex(bytes);

  // With fs::path, the parent of "x/" is "x".
  const fs::path place = fs::absolute(folder / ".").lexically_normal().parent_path();
  std::error_code error;
  fs::create_directories(place, error);
  if (error) {
    throw Error(ErrorCode::io_error,
                fmt::format("cannot create {}: {}", place.string(), error.message()));
  }
  const TemporaryFolder temporary(place);
  write_file(temporary.path / manifest.file, bytes);
  write_file(temporary.path / kManifestName, to_json(manifest));
  rename_into(temporary.path / manifest.file, place / manifest.file);
  rename_into(temporary.path / kManifestName, place / kManifestName);
  // removes the old model's file, if any
  fs::remove(place / (packed ? "model.txt" : "model.txt.gz"), error);
  fsync_folder(place);
}

Verdict in_range(const Model& model, std::span<const double> row) {
  for (std::size_t i = 0; i < model.range_features.size(); ++i) {
    const TrainingRange& range = model.manifest.ranges[i];
    const double value = row[model.range_features[i]];
    if (value >= range.min && value <= range.max) continue;
    if (std::isnan(value)) {
      return {fmt::format("{} is not a number, trained were {:g} to {:g}", range.feature, range.min,
                          range.max)};
    }
    const double by = value < range.min ? range.min - value : value - range.max;
    return {fmt::format("{} = {:g} is {:g} {} the {:g} to {:g} that were trained", range.feature,
                        value, by, value < range.min ? "below" : "above", range.min, range.max)};
  }
  return {};
}

void to_seconds(const Manifest& manifest, double work, std::span<double> predictions) {
  constexpr double kTera = 1e12;
  constexpr double kGiga = 1e9;
  for (double& value : predictions) {
    if (manifest.quantity == ModelQuantity::rank) {
      value = -value;
      continue;
    }
    value = untransformed(manifest.transform, value);
    if (manifest.quantity == ModelQuantity::efficiency) value = 1 / value;
    if (manifest.quantity == ModelQuantity::tflops) value = work / (value * kTera);
    if (manifest.quantity == ModelQuantity::bandwidth) value = work / (value * kGiga);
  }
}

}  // namespace tessera
