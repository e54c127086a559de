#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/learn/model.h"
#include "tessera/learn/refuse_internal.h"
#include "tessera/spec/json_internal.h"

namespace tessera {

template <>
struct Words<ModelQuantity> {
  static constexpr std::string_view kNoun = "quantity";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"seconds", "tflops", "bandwidth", "efficiency", "rank"});
  static_assert(kAll.size() == static_cast<std::size_t>(ModelQuantity::rank) + 1);
};

template <>
struct Words<ModelTransform> {
  static constexpr std::string_view kNoun = "transform";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "log", "log1p"});
  static_assert(kAll.size() == static_cast<std::size_t>(ModelTransform::log1p) + 1);
};

template <>
struct Fields<TrainingRange> {
  using S = TrainingRange;
  static constexpr auto kAll =
      row_list(field("feature", &S::feature, kRequired), field("min", &S::min, kRequired),
               field("max", &S::max, kRequired));
};

template <>
struct Fields<Manifest> {
  using S = Manifest;
  static constexpr auto kAll = row_list(
      field("format", &S::format, kRequiredPositive), field("op", &S::op, kRequired),
      field("target", &S::target, kRequired), field("dtypes", &S::dtypes, kRequired),
      field("machine", &S::machine), field("threads", &S::threads),
      field("quantity", &S::quantity, kRequired), field("transform", &S::transform, kRequired),
      field("file", &S::file, kRequired), field("model_hash", &S::model_hash, kRequired),
      field("feature_hash", &S::feature_hash, kRequired),
      field("features", &S::features, kRequired), field("ranges", &S::ranges, kRequired),
      field("data_hash", &S::data_hash, kRequired), field("rows", &S::rows, kRequiredPositive),
      field("problems", &S::problems, kRequiredPositive), field("date", &S::date, kRequired),
      field("versions", &S::versions), field("metrics", &S::metrics), field("params", &S::params));
};

namespace {

// The format is checked before the fields, because other formats have other fields.
void check_format(const nlohmann::json& document, std::string_view what) {
  const JsonPlace place{std::string(what), ""};
  if (!document.is_object()) refuse_json(place, "an object", document);
  if (!document.contains("format")) missing_json(place.key("format"));
  const auto format = read_json_integer(document["format"], place.key("format"), Range::positive,
                                        std::numeric_limits<int>::max());
  if (format != kManifestFormat) {
    refuse_file(what, fmt::format("format must be {}, the one that this version reads, got {}",
                                  kManifestFormat, format));
  }
}

void check_values(const Manifest& manifest, std::string_view what) {
  if (manifest.file != "model.txt" && manifest.file != "model.txt.gz") {
    refuse_file(what, fmt::format("file must be 'model.txt' or 'model.txt.gz', got '{}'",
                                  manifest.file.substr(0, 60)));
  }
  if (manifest.threads < 0) {
    refuse_file(what, fmt::format("threads must be 0 or more, got {}", manifest.threads));
  }
  for (std::size_t i = 0; i < manifest.ranges.size(); ++i) {
    const TrainingRange& range = manifest.ranges[i];
    if (range.min <= range.max) continue;
    refuse_file(what, fmt::format("ranges[{}].min must not be above its max, got {} and {}", i,
                                  range.min, range.max));
  }
}

}  // namespace

std::string_view to_string(ModelQuantity quantity) { return word_of(quantity); }
std::string_view to_string(ModelTransform transform) { return word_of(transform); }
ModelTransform parse_model_transform(std::string_view word) {
  return parse_word<ModelTransform>(word);
}

Manifest parse_manifest(std::string_view json, std::string_view what) {
  const nlohmann::json document = parse_json(json, what);
  check_format(document, what);
  Manifest manifest;
  read_json(document, JsonPlace{std::string(what), ""}, kRequired, manifest);
  check_values(manifest, what);
  return manifest;
}

std::string to_json(const Manifest& manifest) {
  return dump_json(write_json(manifest, Defaults::omit)) + "\n";
}

}  // namespace tessera
