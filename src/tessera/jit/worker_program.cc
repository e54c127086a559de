#include "tessera/jit/worker_program.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <system_error>

// The layout of the package; set by the build.
#ifndef TESSERA_LIBEXEC
#define TESSERA_BIN "bin"                     // the folder of programs ...
#define TESSERA_LIBRARY "../lib"              // ... and the library's, from there
#define TESSERA_LIBEXEC "../libexec/tessera"  // from the library's folder
#endif

namespace tessera::jit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWorkerName = "tessera-worker";

// Its address tells which file this code was loaded from.
const char kAnchor = 0;

bool is_executable(const fs::path& file) {
  std::error_code unknown;
  return fs::is_regular_file(file, unknown) && access(file.c_str(), X_OK) == 0;
}

}  // namespace

fs::path library_folder() {
  Dl_info info{};
  link_map* holder = nullptr;
  if (dladdr1(&kAnchor, &info, reinterpret_cast<void**>(&holder), RTLD_DL_LINKMAP) == 0) return {};
  std::error_code unknown;
  if (holder->l_name[0] != '\0') return fs::canonical(holder->l_name, unknown).parent_path();
  // The program has no name here, and its argv[0] may be any.
  const fs::path folder = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  if (folder.filename() != TESSERA_BIN) return folder;
  return (folder / TESSERA_LIBRARY).lexically_normal();
}

std::vector<fs::path> worker_places(const std::string& wanted) {
  if (!wanted.empty()) return {wanted};
  const fs::path folder = library_folder();
  if (folder.empty()) return {};
  return {folder / kWorkerName, folder / TESSERA_LIBEXEC / kWorkerName};
}

fs::path find_worker_program(const std::string& wanted) {
  for (const fs::path& place : worker_places(wanted)) {
    if (is_executable(place)) return place;
  }
  return {};
}

}  // namespace tessera::jit
