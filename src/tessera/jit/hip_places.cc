// Where compilers for AMD's GPUs may be.
#include <algorithm>

#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/jit/runtime_compiler_internal.h"

namespace tessera::jit {
namespace {

using HipPlaces = std::vector<fs::path>;

// The user's own first, then /opt/rocm, then the versions beside it, the latest first.
HipPlaces rocm_folders() {
  HipPlaces folders;
  for (const char* variable : {"ROCM_PATH", "HIP_PATH"}) {
    if (const std::string root = environment(variable); !root.empty()) folders.emplace_back(root);
  }
  folders.emplace_back("/opt/rocm");
  for (fs::path& folder : folders_in("/opt", "rocm-")) folders.push_back(std::move(folder));
  return folders;
}

void add_existing(const fs::path& file, HipPlaces& places) {
  const bool is_known = std::find(places.begin(), places.end(), file) != places.end();
  if (is_regular(file) && !is_known) places.push_back(file);
}

void add_libraries(HipPlaces& places) {
  HipPlaces folders;
  const std::string library_path = environment("LD_LIBRARY_PATH");
  for (const std::string_view folder : split(library_path, ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  for (const fs::path& root : rocm_folders()) folders.push_back(root / "lib");
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    folders.emplace_back(folder);
  }
  // Before HIP 6, hiprtc may be a part of the runtime.
  for (const char* name :
       {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"}) {
    for (const fs::path& folder : folders) add_existing(folder / name, places);
  }
}

}  // namespace

std::vector<fs::path> hip_compiler_places() {
  HipPlaces places;
  for (const fs::path& root : rocm_folders()) {
    for (const char* folder : {"bin", "llvm/bin", "lib/llvm/bin"}) {
      add_existing(root / folder / "amdclang++", places);
    }
  }
  for (const char* name : {"clang++-22", "clang++-19"}) {
    if (const fs::path found = find_executable(name); !found.empty()) places.push_back(found);
  }
  add_libraries(places);
  return places;
}

fs::path find_objdump() {
  const std::string named = environment("TESSERA_LLVM_OBJDUMP");
  if (!named.empty()) return find_executable(named);
  for (const fs::path& root : rocm_folders()) {
    for (const char* folder : {"llvm/bin", "lib/llvm/bin"}) {
      const fs::path file = root / folder / "llvm-objdump";
      if (is_regular(file)) return file;
    }
  }
  for (const char* name : {"llvm-objdump-22", "llvm-objdump-19"}) {
    if (fs::path found = find_executable(name); !found.empty()) return found;
  }
  return {};
}

}  // namespace tessera::jit
