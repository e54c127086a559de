// A model folder: a forest, and the manifest that says what the forest was trained for and with
// which data.
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
#include "tessera/learn/forest.h"

namespace tessera {

// What the model predicts: time, 10^12 useful operations per second, 10^9 bytes of least traffic
// per second, the time of the problem's best kernel over the kernel's own, or a rank (more is
// better, and nothing else is known).
enum class ModelQuantity : std::uint8_t { seconds, tflops, bandwidth, efficiency, rank };
constexpr bool gives_times(ModelQuantity q) { return q < ModelQuantity::efficiency; }
// The function that was applied to the quantity before training.
enum class ModelTransform : std::uint8_t { none, log, log1p };

// The range of a problem feature in the training data.
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
  std::vector<std::string> dtypes;  // keys of the kernels that it learned, see Family::model_key
  // The target's row, as JSON, from which the features were computed. Predictions use the same row,
  // whatever memory and caches the current machine has. Empty: the current machine's row.
  std::string machine;
  int threads = 0;  // threads of CPU kernels in the training data; 0: several numbers, or a GPU
  ModelQuantity quantity = ModelQuantity::seconds;
  ModelTransform transform = ModelTransform::log;
  std::string file;        // "model.txt" or "model.txt.gz"
  std::string model_hash;  // hash of the file's bytes
  std::string feature_hash;
  std::vector<std::string> features;
  std::vector<TrainingRange> ranges;  // of problem features, and of others that varied
  std::string data_hash;
  std::int64_t rows = 0;
  std::int64_t problems = 0;
  std::string date;                             // date of the training, "2026-11-21"
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

// Throws Error{parse_error} for malformed JSON, with line and column, and for a wrong field, with
// its path. `what` begins every message.
Manifest parse_manifest(std::string_view json, std::string_view what);
std::string to_json(const Manifest& manifest);

struct Model {
  Manifest manifest;
  Forest forest;
  // One entry for each feature. Not 0: the feature depends only on the problem or the machine, so
  // all candidates share it.
  std::vector<std::uint8_t> shared;
  std::vector<FeatureUse> wanted;           // which features the forest needs
  std::vector<FeatureUse> judged;           // which features in_range() needs
  std::vector<std::size_t> range_features;  // for each training range, its feature's index
  std::optional<Target> machine;            // Manifest::machine
};

// The operation, target and features that a model must fit.
struct ModelUse {
  std::string_view op;
  std::string_view target;
  std::span<const Feature> features;  // the features that the family extracts now
};

// Makes a model from the contents of its two files; `what` begins messages. Throws
// Error{parse_error} for a malformed manifest or forest, a forest that does not belong to the
// manifest or has other features, and a problem feature without a range. Throws
// Error{invalid_argument} when the operation or the target differs, and when a feature of the model
// has changed since or is gone; the message has both hashes or the feature. Features that are new
// since then do no harm.
Model make_model(std::string_view manifest_json, std::string_view forest_bytes, const ModelUse& use,
                 std::string_view what);

// The same from a folder. Throws Error{io_error} when a file cannot be read.
Model load_model(const std::filesystem::path& folder, const ModelUse& use);

// The same for whatever operation and target the model was made for.
Model load_model(const std::filesystem::path& folder);

// The text of a forest file, plain or gzip. Throws Error{parse_error} for damaged gzip.
std::string model_text(std::string_view bytes);

enum class ModelFile : std::uint8_t { text, gzip };

// Writes a model folder, and fills in the manifest's `file` and `model_hash`. The parts of the
// forest's text that no prediction needs (weights and counts of leaves, values of inner nodes) are
// left out; they are more than half of it. Both files are written to a folder inside, flushed, and
// then renamed. So a full disk leaves the old model unchanged, and the hash shows when only one of
// the two renames happened. Throws Error{io_error}.
void save_model(const std::filesystem::path& folder, Manifest manifest,
                std::string_view forest_text, ModelFile form);

// Whether each problem feature lies within the model's training range. The reason names the feature
// that does not, and by how much. `row` holds the features of any candidate.
Verdict in_range(const Model& model, std::span<const double> row);

// Turns predictions into seconds, in place. A rank becomes its negative, so that less is always
// better. `work` is the problem's flops (tflops) or bytes (bandwidth).
void to_seconds(const Manifest& manifest, double work, std::span<double> predictions);

}  // namespace tessera
