// Where NVRTC may be. Each folder is searched without its subfolders.
#include "tessera/base/files.h"
#include "tessera/base/python_packages.h"
#include "tessera/base/text.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/runtime_compiler_internal.h"

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
  for (const fs::path& prefix : python_prefixes()) places.push_back(prefix / "lib");  // of conda
  for (const fs::path& packages : python_packages()) add_python(packages, places);
  // PyTorch has loaded its own, wherever it lies.
  for (const fs::path& library : loaded_libraries("libnvrtc.so.")) {
    places.push_back(library.parent_path());
  }
  return places;
}

}  // namespace tessera::jit
