// Where NVRTC may be. Each folder is searched without its subfolders.
#include "tessera/base/files.h"
#include "tessera/base/text.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/rtc_internal.h"

namespace tessera::jit {
namespace {

using Places = std::vector<fs::path>;

void add_toolkit(const fs::path& root, Places& places) {
  for (const char* folder : {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
    places.push_back(root / folder);
  }
}

// nvidia-cuda-nvrtc-cu12 and nvidia-cuda-nvrtc (13) unpack to different folders.
void add_python(const fs::path& packages, Places& places) {
  places.push_back(packages / "nvidia/cu13/lib");
  places.push_back(packages / "nvidia/cuda_nvrtc/lib");
}

void add_python_prefix(const fs::path& prefix, Places& places) {
  for (const fs::path& version : folders_in(prefix / "lib", "python3")) {
    add_python(version / "site-packages", places);
    add_python(version / "dist-packages", places);
  }
}

}  // namespace

std::vector<fs::path> nvrtc_places() {
  Places places;
  const std::string library_path = environment("LD_LIBRARY_PATH");
  for (const std::string_view folder : split(library_path, ':')) {
    if (!folder.empty()) places.emplace_back(folder);
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = environment(variable); !root.empty()) add_toolkit(root, places);
  }
  add_toolkit("/usr/local/cuda", places);
  for (const fs::path& root : folders_in("/usr/local", "cuda-")) add_toolkit(root, places);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib", "/opt/cuda/lib64"}) {
    places.emplace_back(folder);
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = environment(variable);
    if (prefix.empty()) continue;
    places.push_back(fs::path(prefix) / "lib");
    add_python_prefix(prefix, places);
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    add_python_prefix(fs::path(home) / ".local", places);
  }
  add_python_prefix("/usr/local", places);
  add_python_prefix("/usr", places);
  return places;
}

}  // namespace tessera::jit
