#include "tessera/jit/worker_program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <system_error>

#ifndef TESSERA_LIBEXEC
#define TESSERA_LIBEXEC "../libexec/tessera"  // from the library's folder; set by the build
#endif

namespace tessera::jit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWorkerName = "tessera-worker";

// Its address tells which file this code was loaded from.
const char kAnchor = 0;

fs::path own_folder() {
  Dl_info info{};
  if (dladdr(&kAnchor, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code unknown;
  return fs::canonical(info.dli_fname, unknown).parent_path();
}

bool is_executable(const fs::path& file) {
  std::error_code unknown;
  return fs::is_regular_file(file, unknown) && access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::vector<fs::path> worker_places(const std::string& wanted) {
  if (!wanted.empty()) return {wanted};
  const fs::path folder = own_folder();
  return {folder / kWorkerName, folder / TESSERA_LIBEXEC / kWorkerName};
}

fs::path find_worker_program(const std::string& wanted) {
  for (const fs::path& place : worker_places(wanted)) {
    if (is_executable(place)) return place;
  }
  return {};
}

}  // namespace tessera::jit
