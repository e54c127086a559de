#include "tessera/learn/model_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/log.h"
#include "tessera/base/text.h"
#include "tessera/learn/ranker.h"

namespace tessera {
namespace {

std::optional<std::string_view> embedded(std::span<const EmbeddedFile> files,
                                         const std::string& path) {
  for (const EmbeddedFile& file : files) {
    if (file.path == path) return file.content;
  }
  return std::nullopt;
}

constexpr std::string_view kManifestEnd = "/manifest.json";

std::string_view shipped_manifest(std::span<const EmbeddedFile> files, const std::string& name) {
  const auto manifest = embedded(files, name + std::string(kManifestEnd));
  if (manifest) return *manifest;
  throw Error(ErrorCode::not_found, fmt::format("no model {} is shipped", name));
}

Model shipped_model(std::span<const EmbeddedFile> files, const std::string& name,
                    const ModelUse& use) {
  const std::string what = "the shipped model " + name;
  const std::string_view manifest = shipped_manifest(files, name);
  const std::string file = parse_manifest(manifest, what).file;
  const auto forest = embedded(files, name + "/" + file);
  if (forest) return make_model(manifest, *forest, use, what);
  throw Error(ErrorCode::not_found, fmt::format("{}: {} was not shipped", what, file));
}

// The plain name comes first, because it is the beginning of the others.
std::vector<std::string> shipped_names(std::span<const EmbeddedFile> files,
                                       const std::string& plain) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files) {
    if (!file.path.starts_with(plain) || !file.path.ends_with(kManifestEnd)) continue;
    const std::string_view name = file.path.substr(0, file.path.size() - kManifestEnd.size());
    if (name == plain || is_further_name(name, plain)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A folder that does not exist or cannot be listed has no further models.
std::vector<std::string> own_names(const fs::path& own, const std::string& plain) {
  std::vector<std::string> names;
  if (own.empty()) return names;
  std::error_code unknown;
  for (fs::directory_iterator it(own, unknown), end; it != end; it.increment(unknown)) {
    std::string name = it->path().filename().string();
    std::error_code dangling;
    if (is_further_name(name, plain) && it->is_directory(dangling))
      names.push_back(std::move(name));
  }
  if (fs::exists(own / plain, unknown)) names.push_back(plain);
  std::sort(names.begin(), names.end());
  return names;
}

// How many libraries are kept even when no dispatcher holds them.
constexpr std::size_t kKeptLibraries = 8;

struct SharedLibraries {
  Mutex mutex;
  std::shared_ptr<const ModelLibrary> shipped = std::make_shared<const ModelLibrary>(fs::path());
  // One entry for each folder; the last one that was asked for comes first.
  std::list<std::pair<fs::path, std::shared_ptr<const ModelLibrary>>> recent;
};

class LibraryRanker final : public Ranker {
 public:
  explicit LibraryRanker(std::shared_ptr<const ModelLibrary> library)
      : library_(std::move(library)) {}
  ChoiceSource source() const override { return ChoiceSource::learned; }
  std::string why(const RankInput& input, const Ranked& best) const override {
    return speaker(input, key_for(input))->ranker->why(input, best);
  }
  std::vector<Ranked> rank(const RankInput& input) const override {
    if (input.legal.empty()) return {};
    // A ranker finds out by itself whether it has an opinion; where it has none, it ranks nothing.
    const std::string key = key_for(input);
    for (std::size_t i = 0; i < count(input, key); ++i) {
      const ShelvedModel* found = eligible(input, key, i);
      if (!found) continue;
      std::vector<Ranked> ranked = found->ranker->rank(input);
      if (!ranked.empty()) return ranked;
    }
    return {};
  }
  std::string why_not(const RankInput& input) const override {
    if (input.legal.empty()) return {};
    const std::string key = key_for(input);
    if (const ShelvedModel* found = speaker(input, key)) return found->ranker->why_not(input);
    return why_none(input, key);
  }

 private:
  std::size_t count(const RankInput& input, const std::string& key) const {
    return library_->count(op_of(input.problem), input.target.name, key);
  }
  const ShelvedModel& find(const RankInput& input, const std::string& key,
                           std::size_t place) const {
    return library_->find(op_of(input.problem), input.target.name, key, place);
  }
  const ModelHead& head(const RankInput& input, const std::string& key, std::size_t place) const {
    return library_->head(op_of(input.problem), input.target.name, key, place);
  }
  // Whether the model learned from such a core as this. One that did not need not be read.
  Verdict knows_core(const RankInput& input, const std::string& key, std::size_t place) const {
    if (is_gpu(input.target)) return {};
    const std::optional<Target>& machine = head(input, key, place).machine;
    return machine ? is_same_core(*machine, input.target) : Verdict{};
  }
  static Verdict opinion(const RankInput& input, const ShelvedModel& found) {
    return has_opinion(*found.model, family_of(input.problem).extract, input);
  }
  bool has_model(const RankInput& input, const std::string& key) const {
    const std::size_t models = count(input, key);
    for (std::size_t i = 0; i < models; ++i) {
      if (!knows_core(input, key, i) || find(input, key, i).ranker) return true;
    }
    return false;
  }
  // The key of the problem's own types, or of its twin's where only the twin has a model.
  std::string key_for(const RankInput& input) const {
    std::string own = model_key(input.problem);
    if (has_model(input, own)) return own;
    std::string other = model_key(family_of(input.problem).twin(input.problem, input.target));
    return has_model(input, other) ? other : own;
  }
  // A model that learned from such a core as this and can rank; otherwise null.
  const ShelvedModel* eligible(const RankInput& input, const std::string& key,
                               std::size_t place) const {
    if (!knows_core(input, key, place)) return nullptr;
    const ShelvedModel& found = find(input, key, place);
    return found.ranker ? &found : nullptr;
  }
  // The model that answers. Models behind it are not read.
  const ShelvedModel* speaker(const RankInput& input, const std::string& key) const {
    const std::size_t models = count(input, key);
    for (std::size_t i = 0; i < models; ++i) {
      const ShelvedModel* found = eligible(input, key, i);
      if (found && (models == 1 || opinion(input, *found))) return found;
    }
    return nullptr;
  }
  std::string why_silent(const RankInput& input, const std::string& key, std::size_t place) const {
    Verdict reason = knows_core(input, key, place);
    if (reason) {
      const ShelvedModel& found = find(input, key, place);
      if (!found.ranker) return found.why_not;
      reason = opinion(input, found);
    }
    return fmt::format("{} has no opinion: {}",
                       count(input, key) == 1 ? "the learned model" : head(input, key, place).what,
                       reason.reason);
  }
  // Names each model where there are several.
  std::string why_none(const RankInput& input, const std::string& key) const {
    const std::size_t models = count(input, key);
    if (models == 0) return find(input, key, 0).why_not;
    std::vector<std::string> reasons;
    for (std::size_t i = 0; i < models; ++i) reasons.push_back(why_silent(input, key, i));
    return join(reasons, "; ");
  }

  std::shared_ptr<const ModelLibrary> library_;
};

}  // namespace

std::string model_name(Op op, std::string_view target, std::string_view key) {
  return fmt::format("{}_{}_{}", to_string(op), target, key);
}

bool is_further_name(std::string_view folder, std::string_view plain) {
  if (!folder.starts_with(plain)) return false;
  const std::string_view end = folder.substr(plain.size());
  return end.size() > 1 && end[0] == '.' && std::ranges::all_of(end.substr(1), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

ModelLibrary::ModelLibrary(fs::path own, std::span<const EmbeddedFile> shipped,
                           std::shared_ptr<const ModelLibrary> others)
    : own_(std::move(own)), shipped_(shipped), others_(std::move(others)) {}

// What is wrong with a manifest is reported when the model itself is read.
ModelHead ModelLibrary::read_head(const Folder& folder) const {
  ModelHead head;
  head.what = fmt::format("the {} model {}", folder.own ? "own" : "shipped", folder.name);
  try {
    const std::string json = folder.own ? read_file(own_ / folder.name / kManifestEnd.substr(1))
                                        : std::string(shipped_manifest(shipped_, folder.name));
    const Manifest manifest = parse_manifest(json, head.what);
    if (!manifest.machine.empty()) head.machine = target_from_json(manifest.machine);
  } catch (const Error&) {
    head.machine.reset();
  }
  return head;
}

// A model that cannot be used costs speed, not results, because the next model or the analytic
// ranker is asked instead.
ShelvedModel ModelLibrary::read(const Folder& folder, Op op, std::string_view target) const {
  const Family& family = family_of(op);
  const ModelUse use{to_string(op), target, family.features()};
  ShelvedModel shelved;
  try {
    shelved.model =
        std::make_shared<const Model>(folder.own ? load_model(own_ / folder.name, use)
                                                 : shipped_model(shipped_, folder.name, use));
    shelved.ranker = make_model_ranker(shelved.model, family.extract);
  } catch (const Error& error) {
    warn_once(fmt::format("{}; kernels are chosen without it", error.what()));
    shelved.why_not =
        fmt::format("the learned model {} cannot be used: {}", folder.name, error.what());
  }
  return shelved;
}

// The caller holds the lock.
ModelLibrary::Row& ModelLibrary::row_of(const std::string& name) const {
  const auto known = rows_.find(name);
  if (known != rows_.end()) return known->second;
  Row row;
  for (const std::string& own : own_names(own_, name)) row.folders.push_back({own, true});
  for (const std::string& each : shipped_names(shipped_, name))
    row.folders.push_back({each, false});
  return rows_.emplace(name, std::move(row)).first->second;
}

std::size_t ModelLibrary::count(Op op, std::string_view target, std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const std::size_t here = row_of(model_name(op, target, key)).folders.size();
  return others_ ? here + others_->count(op, target, key) : here;
}

const ModelHead& ModelLibrary::head(Op op, std::string_view target, std::string_view key,
                                    std::size_t place) const {
  const std::lock_guard lock(mutex_);
  Row& row = row_of(model_name(op, target, key));
  const std::size_t here = row.folders.size();
  if (place >= here && others_) return others_->head(op, target, key, place - here);
  const auto known = row.heads.find(place);
  if (known != row.heads.end()) return known->second;
  ModelHead head = place < here ? read_head(row.folders[place]) : ModelHead{};
  return row.heads.emplace(place, std::move(head)).first->second;
}

const ShelvedModel& ModelLibrary::find(Op op, std::string_view target, std::string_view key,
                                       std::size_t place) const {
  const std::string name = model_name(op, target, key);
  const std::lock_guard lock(mutex_);
  Row& row = row_of(name);
  const std::size_t here = row.folders.size();
  if (place >= here && others_) return others_->find(op, target, key, place - here);
  const auto known = row.models.find(place);
  if (known != row.models.end()) return known->second;
  ShelvedModel model;
  model.why_not = fmt::format("there is no learned model {}", name);
  if (place < here) model = read(row.folders[place], op, target);
  return row.models.emplace(place, std::move(model)).first->second;
}

std::vector<std::string> shipped_model_names(Op op, std::string_view target, std::string_view key) {
  return shipped_names(shipped_models(), model_name(op, target, key));
}

Model load_shipped_model(const std::string& name) {
  const std::string_view json = shipped_manifest(shipped_models(), name);
  const Manifest manifest = parse_manifest(json, "the shipped model " + name);
  const ModelUse use{manifest.op, manifest.target, family_of(parse_op(manifest.op)).features()};
  return shipped_model(shipped_models(), name, use);
}

fs::path own_models(const fs::path& cache_folder) {
  const std::string named = environment("TESSERA_MODELS");
  if (!named.empty()) return named;
  return cache_folder.empty() ? cache_folder : cache_folder / "models";
}

std::shared_ptr<const ModelLibrary> shared_model_library(const fs::path& own) {
  static Forever<SharedLibraries> instance;
  SharedLibraries& libraries = *instance;
  const std::lock_guard lock(libraries.mutex);
  if (own.empty()) return libraries.shipped;
  auto& recent = libraries.recent;
  const auto known = std::find_if(recent.begin(), recent.end(),
                                  [&own](const auto& library) { return library.first == own; });
  if (known != recent.end()) {
    recent.splice(recent.begin(), recent, known);
  } else {
    const std::span<const EmbeddedFile> none;
    recent.emplace_front(own, std::make_shared<const ModelLibrary>(own, none, libraries.shipped));
    if (recent.size() > kKeptLibraries) recent.pop_back();
  }
  return recent.front().second;
}

std::shared_ptr<const Ranker> make_library_ranker(std::shared_ptr<const ModelLibrary> library) {
  return std::make_shared<LibraryRanker>(std::move(library));
}

}  // namespace tessera
