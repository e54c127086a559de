// The models at hand: those that come with the library, and a folder of the user's own before them.
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

// The folder of a model, such as gemm_avx512_bf16. The key is Family::model_key's.
std::string model_name(Op op, std::string_view target, std::string_view key);

// A ranker that asks a model, or a clause that says why there is none.
struct ShelvedModel {
  std::shared_ptr<const Ranker> ranker;
  std::string why_not;
};

// Thread-safe. A model is read when it is first asked for, once; nothing is ever put away.
class ModelShelf {
 public:
  // `own` holds folders such as gemm_avx512_bf16, each a model folder that replaces the shipped one
  // of that name; empty: there are none. `shipped` are such folders' files, and must outlive it;
  // what is not among them is looked for on the shelf `others`.
  explicit ModelShelf(std::filesystem::path own,
                      std::span<const EmbeddedFile> shipped = shipped_models(),
                      std::shared_ptr<const ModelShelf> others = nullptr);
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  // The model of that name. One that cannot be read is reported once, as a note, and counts as
  // none.
  const ShelvedModel& find(Op op, std::string_view target, std::string_view key) const;

 private:
  ShelvedModel read(Op op, std::string_view target, std::string_view key) const;

  std::filesystem::path own_;
  std::span<const EmbeddedFile> shipped_;
  std::shared_ptr<const ModelShelf> others_;
  mutable Mutex mutex_;
  mutable std::map<std::string, ShelvedModel> models_;
};

// The shipped model of that name, read anew; nothing where none is shipped. Throws as
// make_model() does.
std::optional<Model> load_shipped_model(Op op, std::string_view target, std::string_view key);

// The folder of the user's own models unless told otherwise: TESSERA_MODELS, else "models" in the
// cache folder; empty where there is neither.
std::filesystem::path own_models(const std::filesystem::path& cache_folder);

// The shelf of all dispatchers with this folder of the user's own. The shipped models are read once
// for all folders; what was read from a folder is forgotten when no dispatcher has it any more and
// eight other folders have been asked for since.
std::shared_ptr<const ModelShelf> shared_shelf(const std::filesystem::path& own);

// Asks the model of each problem's operation, key (or its twin's) and target; says why where
// there is none.
std::shared_ptr<const Ranker> make_shelf_ranker(std::shared_ptr<const ModelShelf> shelf);

}  // namespace tessera
