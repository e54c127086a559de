#include "tessera/learn/shelf.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/log.h"
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

std::optional<Model> shipped_model(std::span<const EmbeddedFile> files, const std::string& name,
                                   const ModelUse& use) {
  const auto manifest = embedded(files, name + "/manifest.json");
  if (!manifest) return std::nullopt;
  const std::string what = "the shipped model " + name;
  const std::string file = parse_manifest(*manifest, what).file;
  const auto forest = embedded(files, name + "/" + file);
  if (forest) return make_model(*manifest, *forest, use, what);
  throw Error(ErrorCode::not_found, fmt::format("{}: {} was not shipped", what, file));
}

std::optional<Model> own_model(const fs::path& own, const std::string& name, const ModelUse& use) {
  std::error_code unknown;
  if (own.empty() || !fs::exists(own / name, unknown)) return std::nullopt;
  return load_model(own / name, use);
}

ShelvedModel shelve(std::optional<Model> model, const Family& family) {
  return {make_model_ranker(std::make_shared<const Model>(std::move(*model)), family.extract), ""};
}

// How many shelves are kept even when no dispatcher holds them.
constexpr std::size_t kKeptShelves = 8;

struct SharedShelves {
  Mutex mutex;
  std::shared_ptr<const ModelShelf> shipped = std::make_shared<const ModelShelf>(fs::path());
  // One entry for each folder; the last one that was asked for comes first.
  std::list<std::pair<fs::path, std::shared_ptr<const ModelShelf>>> recent;
};

class ShelfRanker final : public Ranker {
 public:
  explicit ShelfRanker(std::shared_ptr<const ModelShelf> shelf) : shelf_(std::move(shelf)) {}
  ChoiceSource source() const override { return ChoiceSource::learned; }
  std::string why(const RankInput& input, const Ranked& best) const override {
    return find(input).ranker->why(input, best);
  }
  std::vector<Ranked> rank(const RankInput& input) const override {
    if (input.legal.empty()) return {};
    const ShelvedModel& found = find(input);
    return found.ranker ? found.ranker->rank(input) : std::vector<Ranked>{};
  }
  std::string why_not(const RankInput& input) const override {
    if (input.legal.empty()) return {};
    const ShelvedModel& found = find(input);
    return found.ranker ? found.ranker->why_not(input) : found.why_not;
  }

 private:
  // A model for the problem's own types, otherwise for its twin's types.
  const ShelvedModel& find(const RankInput& input) const {
    const ShelvedModel& own = find(input, input.problem);
    if (own.ranker) return own;
    const ShelvedModel& other =
        find(input, family_of(input.problem).twin(input.problem, input.target));
    return other.ranker ? other : own;
  }
  const ShelvedModel& find(const RankInput& input, const Problem& problem) const {
    return shelf_->find(op_of(problem), input.target.name, model_key(problem));
  }

  std::shared_ptr<const ModelShelf> shelf_;
};

}  // namespace

std::string model_name(Op op, std::string_view target, std::string_view key) {
  return fmt::format("{}_{}_{}", to_string(op), target, key);
}

ModelShelf::ModelShelf(fs::path own, std::span<const EmbeddedFile> shipped,
                       std::shared_ptr<const ModelShelf> others)
    : own_(std::move(own)), shipped_(shipped), others_(std::move(others)) {}

// A model that cannot be used costs speed, not results, because the analytic ranker is asked
// instead.
ShelvedModel ModelShelf::read(Op op, std::string_view target, std::string_view key) const {
  const std::string name = model_name(op, target, key);
  const Family& family = family_of(op);
  const ModelUse use{to_string(op), target, family.features()};
  try {
    if (auto own = own_model(own_, name, use)) return shelve(std::move(own), family);
    if (auto model = shipped_model(shipped_, name, use)) return shelve(std::move(model), family);
    if (others_) return others_->find(op, target, key);
    return {nullptr, fmt::format("there is no learned model {}", name)};
  } catch (const Error& error) {
    warn_once(fmt::format("{}; kernels are chosen without it", error.what()));
    return {nullptr, fmt::format("the learned model {} cannot be used: {}", name, error.what())};
  }
}

const ShelvedModel& ModelShelf::find(Op op, std::string_view target, std::string_view key) const {
  const std::string name = model_name(op, target, key);
  const std::lock_guard lock(mutex_);
  const auto known = models_.find(name);
  if (known != models_.end()) return known->second;
  return models_.emplace(name, read(op, target, key)).first->second;
}

std::optional<Model> load_shipped_model(Op op, std::string_view target, std::string_view key) {
  const ModelUse use{to_string(op), target, family_of(op).features()};
  return shipped_model(shipped_models(), model_name(op, target, key), use);
}

fs::path own_models(const fs::path& cache_folder) {
  const std::string named = environment("TESSERA_MODELS");
  if (!named.empty()) return named;
  return cache_folder.empty() ? cache_folder : cache_folder / "models";
}

std::shared_ptr<const ModelShelf> shared_shelf(const fs::path& own) {
  static Forever<SharedShelves> instance;
  SharedShelves& shelves = *instance;
  const std::lock_guard lock(shelves.mutex);
  if (own.empty()) return shelves.shipped;
  auto& recent = shelves.recent;
  const auto known = std::find_if(recent.begin(), recent.end(),
                                  [&own](const auto& shelf) { return shelf.first == own; });
  if (known != recent.end()) {
    recent.splice(recent.begin(), recent, known);
  } else {
    const std::span<const EmbeddedFile> none;
    recent.emplace_front(own, std::make_shared<const ModelShelf>(own, none, shelves.shipped));
    if (recent.size() > kKeptShelves) recent.pop_back();
  }
  return recent.front().second;
}

std::shared_ptr<const Ranker> make_shelf_ranker(std::shared_ptr<const ModelShelf> shelf) {
  return std::make_shared<ShelfRanker>(std::move(shelf));
}

}  // namespace tessera
