// The available models: those that are shipped with the library, and the user's own folder of
// models, which come first.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/embedded.h"
#include "tessera/base/fork.h"
#include "tessera/families/family.h"
#include "tessera/learn/model.h"
#include "tessera/select/select.h"

namespace tessera {

// The name of a model's folder, such as gemm_avx512_bf16. The key is Family::model_key().
std::string model_name(Op op, std::string_view target, std::string_view key);

// A ranker that asks a model, or a clause that says why there is no model.
struct ShelvedModel {
  std::shared_ptr<const Ranker> ranker;
  std::string why_not;
};

// Thread-safe. A model is read once, when it is first asked for, and stays in memory.
class ModelShelf {
 public:
  // `own` holds folders such as gemm_avx512_bf16, each a model folder that replaces the shipped one
  // of that name; empty: there are none. `shipped` holds the files of such folders and must outlive
  // the shelf. A model that is in neither is taken from the shelf `others`.
  explicit ModelShelf(std::filesystem::path own,
                      std::span<const EmbeddedFile> shipped = shipped_models(),
                      std::shared_ptr<const ModelShelf> others = nullptr);
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  // The model of this name. A model that cannot be read is logged once, as a note, and counts as
  // missing.
  const ShelvedModel& find(Op op, std::string_view target, std::string_view key) const;

 private:
  ShelvedModel read(Op op, std::string_view target, std::string_view key) const;

  std::filesystem::path own_;
  std::span<const EmbeddedFile> shipped_;
  std::shared_ptr<const ModelShelf> others_;
  mutable Mutex mutex_;
  mutable std::map<std::string, ShelvedModel> models_;
};

// Reads the shipped model of this name; nothing when none is shipped. Throws what make_model()
// throws.
std::optional<Model> load_shipped_model(Op op, std::string_view target, std::string_view key);

// The default folder of the user's own models: TESSERA_MODELS, otherwise "models" in the cache
// folder; empty when there is neither.
std::filesystem::path own_models(const std::filesystem::path& cache_folder);

// The shelf that all dispatchers with this folder share. The shipped models are read once for all
// folders. A folder's models are forgotten when no dispatcher uses the folder any more and eight
// other folders have been asked for since.
std::shared_ptr<const ModelShelf> shared_shelf(const std::filesystem::path& own);

// A ranker that asks the model for the problem's operation, key (or its twin's key) and target. Its
// why_not() says why there is no model.
std::shared_ptr<const Ranker> make_shelf_ranker(std::shared_ptr<const ModelShelf> shelf);

}  // namespace tessera
