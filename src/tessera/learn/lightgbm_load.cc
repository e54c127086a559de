// Finding and loading LightGBM.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/python_packages.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/learn/lightgbm_api_internal.h"

namespace tessera::lightgbm {
namespace {

constexpr const char* kName = "lib_lightgbm.so";
constexpr std::string_view kInPackages = "lightgbm/lib/lib_lightgbm.so";
constexpr std::string_view kHowToGet =
    "get it with 'pip install lightgbm' or set TESSERA_LIGHTGBM to lib_lightgbm.so; it also needs "
    "libgomp.so.1, which comes with GCC (Debian: libgomp1)";

std::vector<fs::path> installed() {
  std::vector<fs::path> found;
  for (const fs::path& packages : python_packages()) {
    std::error_code missing;
    if (fs::exists(packages / kInPackages, missing)) found.push_back(packages / kInPackages);
  }
  return found;
}

// dlopen(); throws with the loader's message.
void* open_library(const std::string& path, std::string& words) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* said = ::dlerror();
    words = said == nullptr ? "no reason given" : said;
  }
  return library;
}

[[noreturn]] void refuse_load(const std::string& path, const std::string& words) {
  throw Error(ErrorCode::load_failed,
              fmt::format("cannot load LightGBM from {}: {}; {}", path, words, kHowToGet));
}

struct Library {
  void* handle;
  std::string path;
};

Library find_library() {
  std::string words;
  if (const std::string wanted = environment("TESSERA_LIGHTGBM"); !wanted.empty()) {
    void* handle = open_library(wanted, words);
    if (handle == nullptr) refuse_load(wanted + " (TESSERA_LIGHTGBM)", words);
    return {handle, wanted};
  }
  if (void* handle = open_library(kName, words)) return {handle, kName};
  for (const fs::path& path : installed()) {
    void* handle = open_library(path.string(), words);
    if (handle == nullptr) refuse_load(path.string(), words);
    return {handle, path.string()};
  }
  throw Error(ErrorCode::not_found, fmt::format("LightGBM is not installed here: {}", kHowToGet));
}

template <class Function>
void resolve(const Library& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library.handle, name));
  if (function != nullptr) return;
  refuse_load(library.path, fmt::format("it has no function {}", name));
}

void say_nothing(const char*) {}

Api load_api() {
  const Library library = find_library();
  Api api;
  resolve(library, "LGBM_GetLastError", api.last_error);
  resolve(library, "LGBM_RegisterLogCallback", api.set_log);
  resolve(library, "LGBM_DatasetCreateFromMat", api.dataset_from_mat);
  resolve(library, "LGBM_DatasetSetField", api.dataset_set_field);
  resolve(library, "LGBM_DatasetSetFeatureNames", api.dataset_set_names);
  resolve(library, "LGBM_DatasetFree", api.dataset_free);
  resolve(library, "LGBM_BoosterCreate", api.booster_create);
  resolve(library, "LGBM_BoosterLoadModelFromString", api.booster_from_string);
  resolve(library, "LGBM_BoosterFree", api.booster_free);
  resolve(library, "LGBM_BoosterAddValidData", api.booster_add_valid);
  resolve(library, "LGBM_BoosterUpdateOneIter", api.booster_update);
  resolve(library, "LGBM_BoosterRollbackOneIter", api.booster_roll_back);
  resolve(library, "LGBM_BoosterMerge", api.booster_merge);
  resolve(library, "LGBM_BoosterGetEvalCounts", api.booster_eval_counts);
  resolve(library, "LGBM_BoosterGetEval", api.booster_eval);
  resolve(library, "LGBM_BoosterSaveModelToString", api.booster_to_string);
  resolve(library, "LGBM_BoosterFeatureImportance", api.booster_importance);
  resolve(library, "LGBM_BoosterPredictForMat", api.booster_predict_mat);
  api.path = library.path;
  // Only messages go to this callback, which drops them, because a library does not print. Errors
  // are returned as text.
  if (api.set_log(say_nothing) != 0) refuse_load(library.path, api.last_error());
  return api;
}

}  // namespace

// A failure is not remembered, because the user may install the library and try again.
const Api& api() {
  static std::mutex mutex;
  static Forever<std::optional<Api>> loaded;
  const std::lock_guard lock(mutex);
  if (!*loaded) *loaded = load_api();
  return **loaded;
}

void load() { api(); }
std::string library_path() { return api().path; }

}  // namespace tessera::lightgbm
