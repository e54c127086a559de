#include "tessera/jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/toolchain_memo_internal.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

constexpr std::string_view kHowToGetIt =
    "get it with 'pip install nvidia-cuda-nvrtc' or a CUDA toolkit, or name the file with "
    "TESSERA_NVRTC; kernels in a pack need none";

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

fs::path find_library(const std::string& wanted) {
  const std::string named = wanted.empty() ? environment("TESSERA_NVRTC") : wanted;
  if (!named.empty()) {
    if (is_file(named)) return fs::absolute(named);
    fail_toolchain(fmt::format("NVRTC '{}'{} is not a file; {}", named,
                               wanted.empty() ? ", named by TESSERA_NVRTC," : "", kHowToGetIt));
  }
  const std::vector<fs::path> places = nvrtc_places();
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    for (const fs::path& folder : places) {
      if (is_file(folder / name)) return folder / name;
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

fs::path require_worker(const std::string& wanted) {
  fs::path worker = find_worker_program(wanted);
  if (!worker.empty()) return worker;
  std::vector<std::string> names;
  for (const fs::path& place : worker_places(wanted)) {
    names.push_back(fmt::format("'{}'", place.lexically_normal().string()));
  }
  fail_toolchain(
      fmt::format("NVRTC is run by the worker program, which is not an executable file at {}: "
                  "install it there, or name it in BuildOptions::worker",
                  join(names, " or ")));
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
  const SubprocessResult result =
      run_subprocess({worker.string(), "nvrtc", library.string(), "--version"},
                     {.working_folder = {},
                      .extra_environment = compile_environment(),
                      .timeout_seconds = kProbeSeconds,
                      .merge_stderr = true});
  const std::string version = result.output.substr(0, result.output.find('\n'));
  if (!result.ok()) {
    fail_toolchain(fmt::format("NVRTC {} cannot be used (exit code {}, signal {}): {}; {}",
                               library.string(), result.exit_code, result.signal,
                               version.empty() ? "it said nothing" : version, kHowToGetIt),
                   result.output);
  }
  ToolchainMemo memo = stamp_parts(parts_of(library));
  memo.toolchain.path = library;
  memo.toolchain.version = version;
  return memo;
}

// ---- The worker's end ----

using NvrtcResult = int;
using Program = struct ProgramTag*;
using SizeOf = NvrtcResult (*)(Program program, std::size_t* bytes);
using BytesOf = NvrtcResult (*)(Program program, char* bytes);

struct Nvrtc {
  NvrtcResult (*version)(int* major, int* minor);
  NvrtcResult (*create)(Program* program, const char* text, const char* name, int num_headers,
                        const char* const* headers, const char* const* header_names);
  NvrtcResult (*destroy)(Program* program);
  NvrtcResult (*compile)(Program program, int num_options, const char* const* options);
  SizeOf log_size;
  BytesOf log;
  SizeOf cubin_size;
  BytesOf cubin;
  const char* (*error_string)(NvrtcResult result);
};

Nvrtc load_nvrtc(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail_toolchain(dlerror());
  Nvrtc nvrtc{};
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) fail_toolchain(fmt::format("{} lacks {}", library, name));
  };
  load(nvrtc.version, "nvrtcVersion");
  load(nvrtc.create, "nvrtcCreateProgram");
  load(nvrtc.destroy, "nvrtcDestroyProgram");
  load(nvrtc.compile, "nvrtcCompileProgram");
  load(nvrtc.log_size, "nvrtcGetProgramLogSize");
  load(nvrtc.log, "nvrtcGetProgramLog");
  load(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  load(nvrtc.cubin, "nvrtcGetCUBIN");
  load(nvrtc.error_string, "nvrtcGetErrorString");
  return nvrtc;
}

void require(const Nvrtc& nvrtc, NvrtcResult result, std::string_view function) {
  if (result == 0) return;
  const char* const words = nvrtc.error_string(result);
  fail_toolchain(fmt::format("{} failed with {}", function,
                             words != nullptr ? words : fmt::format("error {}", result)));
}

// Reads a text from NVRTC: one function returns its size, another its bytes.
std::string fetch(const Nvrtc& nvrtc, Program program, SizeOf size_of, BytesOf bytes_of,
                  const std::string& what) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  std::size_t bytes = 0;
  require(nvrtc, size_of(program, &bytes), what + "Size");
  if (bytes > kMostBytes) {
    fail_toolchain(fmt::format("{}Size says {} bytes, no more than {} are taken; is this NVRTC?",
                               what, bytes, kMostBytes));
  }
  std::string text(bytes, '\0');
  require(nvrtc, bytes_of(program, text.data()), what);
  return text;
}

struct Words {
  std::vector<const char*> options;
  std::string source;
  std::string output;
};

Words read_words(std::span<const std::string> words) {
  Words read;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "-o" && i + 1 < words.size()) {
      read.output = words[++i];
    } else if (words[i].starts_with('-')) {
      read.options.push_back(words[i].c_str());
    } else {
      read.source = words[i];
    }
  }
  if (read.source.empty() || read.output.empty())
    fail_toolchain("nvrtc: give a source and -o OUTPUT");
  return read;
}

// The headers lie below the working folder. They are given to NVRTC in memory as "tessera/...", and
// NVRTC searches nowhere else.
struct Headers {
  std::vector<std::string> names;
  std::vector<std::string> texts;
  std::vector<const char*> name_pointers;
  std::vector<const char*> text_pointers;

  Headers() {
    std::error_code none;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator("tessera", none)) {
      if (!entry.is_regular_file()) continue;
      names.push_back(entry.path().string());
      texts.push_back(read_file(entry.path()));
    }
    for (const std::string& name : names) name_pointers.push_back(name.c_str());
    for (const std::string& text : texts) text_pointers.push_back(text.c_str());
  }
};

void compile(const Nvrtc& nvrtc, const Words& words, std::string& output) {
  const std::string text = read_file(words.source);
  const Headers headers;
  Program program = nullptr;
  require(nvrtc,
          nvrtc.create(&program, text.c_str(), words.source.c_str(),
                       static_cast<int>(headers.names.size()), headers.text_pointers.data(),
                       headers.name_pointers.data()),
          "nvrtcCreateProgram");
  const std::unique_ptr<Program, NvrtcResult (*)(Program*)> owner(&program, nvrtc.destroy);
  const NvrtcResult result =
      nvrtc.compile(program, static_cast<int>(words.options.size()), words.options.data());
  const std::string log =
      fetch(nvrtc, program, nvrtc.log_size, nvrtc.log, "nvrtcGetProgramLog").c_str();
  output += log;  // without the zero at its end
  if (!log.empty() && log.back() != '\n') output += '\n';
  require(nvrtc, result, "nvrtcCompileProgram");
  const std::string cubin = fetch(nvrtc, program, nvrtc.cubin_size, nvrtc.cubin, "nvrtcGetCUBIN");
  write_file_unflushed(words.output, cubin);
}

}  // namespace

Toolchain find_nvrtc(const NvrtcOptions& options, const fs::path& memo) {
  const fs::path library = find_library(options.library);
  const fs::path worker = require_worker(options.worker);
  Toolchain toolchain =
      remembered("nvrtc\n" + library.string(), memo, [&] { return probe(library, worker); });
  toolchain.runner = worker;
  return toolchain;
}

int run_nvrtc(std::span<const std::string> words, std::string& output) try {
  if (words.empty()) fail_toolchain("nvrtc: name the library");
  const Nvrtc nvrtc = load_nvrtc(words[0]);
  if (words.size() == 2 && words[1] == "--version") {
    int major = 0, minor = 0;
    require(nvrtc, nvrtc.version(&major, &minor), "nvrtcVersion");
    output += fmt::format("NVRTC {}.{}\n", major, minor);
    return 0;
  }
  compile(nvrtc, read_words(words.subspan(1)), output);
  return 0;
} catch (const std::exception& error) {
  output += fmt::format("error: {}\n", error.what());
  return 1;
}

}  // namespace tessera::jit
