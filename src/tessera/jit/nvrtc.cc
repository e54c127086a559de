#include "tessera/jit/nvrtc.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"
#include "tessera/jit/runtime_compiler_internal.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

constexpr std::string_view kHowToGetIt =
    "get it with 'pip install nvidia-cuda-nvrtc' or a CUDA toolkit, or name the file with "
    "TESSERA_NVRTC; kernels in a pack need none";

fs::path find_library(const std::string& wanted) {
  const std::string named = wanted.empty() ? environment("TESSERA_NVRTC") : wanted;
  if (!named.empty()) {
    if (is_regular(named)) return fs::absolute(named);
    fail_toolchain(fmt::format("NVRTC '{}'{} is not a file; {}", named,
                               wanted.empty() ? ", named by TESSERA_NVRTC," : "", kHowToGetIt));
  }
  const std::vector<fs::path> places = nvrtc_places();
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    for (const fs::path& folder : places) {
      if (is_regular(folder / name)) return folder / name;
    }
  }
  std::vector<std::string> folders;
  for (const fs::path& folder : places) folders.push_back(folder.string());
  fail_toolchain(fmt::format("NVRTC was not found: looked for libnvrtc.so.13 and libnvrtc.so.12 in "
                             "LD_LIBRARY_PATH, CUDA toolkits, the system's libraries and Python "
                             "environments; {}",
                             kHowToGetIt),
                 join(folders, "\n"));
}

// The library and those beside it that it loads itself.
std::vector<fs::path> parts_of(const fs::path& library) {
  std::vector<fs::path> parts = {library};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(library.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so.")) parts.push_back(entry.path());
  }
  return parts;
}

ToolchainMemo probe(const fs::path& library, const fs::path& worker) {
  const std::string said = ask_rtc(
      "NVRTC", {worker.string(), "nvrtc", library.string(), "--version"}, library, kHowToGetIt);
  ToolchainMemo memo = stamp_parts(parts_of(library));
  memo.toolchain.path = library;
  memo.toolchain.version = said.substr(0, said.find('\n'));
  return memo;
}

}  // namespace

Toolchain find_nvrtc(const NvrtcOptions& options, const fs::path& memo) {
  const fs::path library = find_library(options.library);
  const fs::path worker = require_worker("NVRTC", options.worker);
  Toolchain toolchain =
      remembered("nvrtc\n" + library.string(), memo, [&] { return probe(library, worker); });
  toolchain.runner = worker;
  return toolchain;
}

int run_nvrtc(std::span<const std::string> words, std::string& output) {
  constexpr RtcNames kNvrtc = {.title = "NVRTC", .prefix = "nvrtc", .binary = "CUBIN"};
  return run_rtc(kNvrtc, words, output);
}

}  // namespace tessera::jit
