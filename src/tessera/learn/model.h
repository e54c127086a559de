// A model folder: a forest, and the manifest that says what it was trained for and on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/families/features.h"
#include "tessera/learn/forest.h"

namespace tessera {

// What the model predicts: time, 10^12 useful operations per second, 10^9 bytes of least traffic
// per second, the time of the problem's best kernel over the kernel's own, or a rank (more is
// better, and nothing else is known).
enum class ModelQuantity : std::uint8_t { seconds, tflops, bandwidth, efficiency, rank };
constexpr bool gives_times(ModelQuantity q) { return q < ModelQuantity::efficiency; }
// What was done to the quantity before training.
enum class ModelTransform : std::uint8_t { none, log, log1p };

// The values that a problem feature had in the training data.
struct TrainingRange {
  std::string feature;
  double min = 0;
  double max = 0;
  bool operator==(const TrainingRange&) const = default;
};

inline constexpr int kManifestFormat = 1;

struct Manifest {
  int format = kManifestFormat;
  std::string op;                   // "gemm"
  std::string target;               // "avx512"
  std::vector<std::string> dtypes;  // keys of what it learned, see Family::model_key
  // The target's row that features were computed from, as JSON: the same again at every prediction,
  // however much memory and cache the machine at hand shares among its cores. Empty: that of the
  // machine at hand.
  std::string machine;
  int threads = 0;  // of CPU kernels in the training data; 0: any number
  ModelQuantity quantity = ModelQuantity::seconds;
  ModelTransform transform = ModelTransform::log;
  std::string file;        // "model.txt" or "model.txt.gz"
  std::string model_hash;  // of the file's bytes
  std::string feature_hash;
  std::vector<std::string> features;
  std::vector<TrainingRange> ranges;  // one for each problem feature
  std::string data_hash;
  std::int64_t rows = 0;
  std::int64_t problems = 0;
  std::string date;                             // of the training, "2026-11-21"
  std::map<std::string, std::string> versions;  // "tessera", "lightgbm", ...
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> params;
  bool operator==(const Manifest&) const = default;
};

std::string_view to_string(ModelQuantity quantity);
std::string_view to_string(ModelTransform transform);
// Throws Error{parse_error} with the nearest word.
ModelTransform parse_model_transform(std::string_view word);

// 16 hexadecimal digits, as the manifest spells feature_hash().
std::string feature_hash_text(std::span<const Feature> features);

// Throws Error{parse_error}: malformed JSON with line and column, a wrong field with its path.
// `what` leads every message.
Manifest parse_manifest(std::string_view json, std::string_view what);
std::string to_json(const Manifest& manifest);

struct Model {
  Manifest manifest;
  Forest forest;
  // Per feature, not 0: depends on problem or machine only, so that all candidates share it.
  std::vector<std::uint8_t> shared;
  std::vector<FeatureUse> wanted;           // by the forest, of each feature
  std::vector<FeatureUse> judged;           // by in_range()
  std::vector<std::size_t> range_features;  // for each training range, its feature's index
  std::optional<Target> machine;            // the manifest's
};

// What a model is wanted for.
struct ModelUse {
  std::string_view op;
  std::string_view target;
  std::span<const Feature> features;  // what the family extracts now
};

// A model from the contents of its two files; `what` leads messages. Throws Error{parse_error} for
// a malformed manifest or forest, a forest that is not the manifest's or has other features, or a
// problem feature without a range; Error{invalid_argument} when operation or target are others, or
// when the family's features have changed since: with both hashes and the first that differs.
Model make_model(std::string_view manifest_json, std::string_view forest_bytes, const ModelUse& use,
                 std::string_view what);

// The same from a folder; throws Error{io_error} when a file cannot be read.
Model load_model(const std::filesystem::path& folder, const ModelUse& use);

// The same for whatever operation and target the model was made for.
Model load_model(const std::filesystem::path& folder);

// A forest file's text, packed or not. Throws Error{parse_error} for damaged gzip.
std::string model_text(std::string_view bytes);

enum class ModelFile : std::uint8_t { text, gzip };

// Writes a model folder; fills in the manifest's file and model_hash. Of the forest's text what no
// prediction asks for is left out (weights and counts of leaves, values of inner nodes), which
// takes more than half of it. Both files are written in a folder within it and flushed before they
// are renamed, so that a full disk leaves the old model as it was, and one of two renames
// missing is noticed by the hash. Throws Error{io_error}.
void save_model(const std::filesystem::path& folder, Manifest manifest,
                std::string_view forest_text, ModelFile form);

// Whether each problem feature lies within what the model was trained on; else which one does not,
// and by how much. `row` holds the features of any candidate.
Verdict in_range(const Model& model, std::span<const double> row);

// The model's prediction as seconds, in place; for rank as its negative, so that less is better
// throughout. `work` is the problem's flops (tflops) or bytes (bandwidth).
void to_seconds(const Manifest& manifest, double work, std::span<double> predictions);

}  // namespace tessera
