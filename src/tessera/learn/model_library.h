// The available models: those that are shipped with the library, and the user's own folder of
// models, which come first.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/embedded.h"
#include "tessera/base/fork.h"
#include "tessera/families/family.h"
#include "tessera/learn/model.h"
#include "tessera/select/select.h"

namespace tessera {

// The plain name of a model's folder, such as gemm_avx512_bf16. The key is Family::model_key(). The
// folders of further models for the same have a dot and a word after it, which names their machine:
// gemm_avx512_bf16.emerald_rapids.
std::string model_name(Op op, std::string_view target, std::string_view key);

// Whether a folder is one of a further model: the plain name, a dot, and a word of lower-case
// letters, digits and underscores.
bool is_further_name(std::string_view folder, std::string_view plain);

// What is known of a model before its forest is read, which takes most of the time.
struct ModelHead {
  std::string what;               // "the shipped model gemm_avx512_bf16"
  std::optional<Target> machine;  // as in Model; also empty when the manifest cannot be read
};

// A model with the ranker that asks it, or a clause that says why there is no model.
struct ShelvedModel {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Ranker> ranker;
  std::string why_not;
};

// Thread-safe. A model is read once, when it is first asked for, and stays in memory.
class ModelLibrary {
 public:
  // `own` holds folders such as gemm_avx512_bf16, each a model folder; empty: there are none.
  // `shipped` holds the files of such folders and must outlive the library. The models of the
  // library `others` come last.
  explicit ModelLibrary(std::filesystem::path own,
                        std::span<const EmbeddedFile> shipped = shipped_models(),
                        std::shared_ptr<const ModelLibrary> others = nullptr);
  ModelLibrary(const ModelLibrary&) = delete;
  ModelLibrary& operator=(const ModelLibrary&) = delete;

  // How many models there are. They are asked in this order: the user's own before the shipped
  // ones, and of both the plain name before the further ones, which are sorted.
  std::size_t count(Op op, std::string_view target, std::string_view key) const;

  // The head of the model at this place of the order; empty where no model is.
  const ModelHead& head(Op op, std::string_view target, std::string_view key,
                        std::size_t place) const;

  // The model at this place of the order. A model that cannot be read is logged once, as a note,
  // and has no ranker; neither has a place where no model is.
  const ShelvedModel& find(Op op, std::string_view target, std::string_view key,
                           std::size_t place = 0) const;

 private:
  struct Folder {
    std::string name;
    bool own = false;
  };
  struct Row {
    std::vector<Folder> folders;
    std::map<std::size_t, ModelHead> heads;  // by place
    std::map<std::size_t, ShelvedModel> models;
  };
  Row& row_of(const std::string& name) const;
  ModelHead read_head(const Folder& folder) const;
  ShelvedModel read(const Folder& folder, Op op, std::string_view target) const;

  std::filesystem::path own_;
  std::span<const EmbeddedFile> shipped_;
  std::shared_ptr<const ModelLibrary> others_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Row> rows_;  // by plain name
};

// The names of the shipped models for this, in the order in which they are asked.
std::vector<std::string> shipped_model_names(Op op, std::string_view target, std::string_view key);

// Reads the shipped model of this name, plain or not. Throws Error{not_found} when none is shipped,
// and what make_model() throws.
Model load_shipped_model(const std::string& name);

// The default folder of the user's own models: TESSERA_MODELS, otherwise "models" in the cache
// folder; empty when there is neither.
std::filesystem::path own_models(const std::filesystem::path& cache_folder);

// The library that all dispatchers with this folder share. The shipped models are read once for all
// folders. A folder's models are forgotten when no dispatcher uses the folder any more and eight
// other folders have been asked for since.
std::shared_ptr<const ModelLibrary> shared_model_library(const std::filesystem::path& own);

// A ranker that asks the models for the problem's operation, key (or its twin's key) and target.
// The first one with an opinion decides. The ranker's why_not() says why no model does.
std::shared_ptr<const Ranker> make_library_ranker(std::shared_ptr<const ModelLibrary> library);

}  // namespace tessera
