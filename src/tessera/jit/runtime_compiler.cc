#include "tessera/jit/runtime_compiler_internal.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/toolchain_memo_internal.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

using RtcResult = int;
using Program = struct ProgramTag*;
using SizeOf = RtcResult (*)(Program program, std::size_t* bytes);
using BytesOf = RtcResult (*)(Program program, char* bytes);

struct Rtc {
  const RtcNames& names;
  RtcResult (*version)(int* major, int* minor) = nullptr;
  RtcResult (*create)(Program* program, const char* text, const char* name, int num_headers,
                      const char* const* headers, const char* const* header_names) = nullptr;
  RtcResult (*destroy)(Program* program) = nullptr;
  RtcResult (*compile)(Program program, int num_options, const char* const* options) = nullptr;
  SizeOf log_size = nullptr;
  BytesOf log = nullptr;
  SizeOf binary_size = nullptr;
  BytesOf binary = nullptr;
  const char* (*error_string)(RtcResult result) = nullptr;

  std::string full(std::string_view function) const {
    return fmt::format("{}{}", names.prefix, function);
  }
};

Rtc load_rtc(const RtcNames& names, const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail_toolchain(dlerror());
  Rtc rtc{.names = names};
  const auto load = [&](auto& function, std::string_view rest) {
    const std::string name = rtc.full(rest);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name.c_str()));
    if (function == nullptr) fail_toolchain(fmt::format("{} lacks {}", library, name));
  };
  const std::string get = fmt::format("Get{}", names.binary);
  load(rtc.version, "Version");
  load(rtc.create, "CreateProgram");
  load(rtc.destroy, "DestroyProgram");
  load(rtc.compile, "CompileProgram");
  load(rtc.log_size, "GetProgramLogSize");
  load(rtc.log, "GetProgramLog");
  load(rtc.binary_size, get + "Size");
  load(rtc.binary, get);
  load(rtc.error_string, "GetErrorString");
  return rtc;
}

void require(const Rtc& rtc, RtcResult result, std::string_view function) {
  if (result == 0) return;
  const char* const words = rtc.error_string(result);
  fail_toolchain(fmt::format("{} failed with {}", rtc.full(function),
                             words != nullptr ? words : fmt::format("error {}", result)));
}

// Reads a text from the library: one function returns its size, another its bytes.
std::string fetch(const Rtc& rtc, Program program, SizeOf size_of, BytesOf bytes_of,
                  const std::string& what) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  std::size_t bytes = 0;
  require(rtc, size_of(program, &bytes), what + "Size");
  if (bytes > kMostBytes) {
    fail_toolchain(fmt::format("{}Size says {} bytes, no more than {} are taken; is this {}?",
                               rtc.full(what), bytes, kMostBytes, rtc.names.title));
  }
  std::string text(bytes, '\0');
  require(rtc, bytes_of(program, text.data()), what);
  return text;
}

struct Words {
  std::vector<const char*> options;
  std::string source;
  std::string output;
};

Words read_words(const RtcNames& names, std::span<const std::string> words) {
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
    fail_toolchain(fmt::format("{}: give a source and -o OUTPUT", names.prefix));
  return read;
}

// The headers lie below the working folder. They are given to the library in memory as
// "tessera/...", and it searches nowhere else.
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

// Returns the binary, and appends what the compiler said to `output`.
std::string compile_text(const Rtc& rtc, const std::string& text, const std::string& name,
                         const std::vector<const char*>& options, const Headers& headers,
                         std::string& output) {
  Program program = nullptr;
  require(rtc,
          rtc.create(&program, text.c_str(), name.c_str(), static_cast<int>(headers.names.size()),
                     headers.text_pointers.data(), headers.name_pointers.data()),
          "CreateProgram");
  const std::unique_ptr<Program, RtcResult (*)(Program*)> owner(&program, rtc.destroy);
  const RtcResult result = rtc.compile(program, static_cast<int>(options.size()), options.data());
  const std::string log = fetch(rtc, program, rtc.log_size, rtc.log, "GetProgramLog").c_str();
  output += log;  // without the zero at its end
  if (!log.empty() && log.back() != '\n') output += '\n';
  require(rtc, result, "CompileProgram");
  return fetch(rtc, program, rtc.binary_size, rtc.binary, fmt::format("Get{}", rtc.names.binary));
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> files;
  const auto note = [](dl_phdr_info* info, std::size_t, void* data) {
    if (info->dlpi_name[0] == '/') {
      static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
    }
    return 0;
  };
  dl_iterate_phdr(note, &files);
  return files;
}

// The compiler proper may be another library, which is loaded when something is compiled.
std::string describe_library(const RtcNames& names, const std::string& library,
                             std::span<const std::string> options, std::string& output) {
  const std::vector<std::string> before = loaded_libraries();
  const Rtc rtc = load_rtc(names, library);
  int major = 0, minor = 0;
  require(rtc, rtc.version(&major, &minor), "Version");
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  std::string answer = fmt::format("{} {}.{}\n", names.title, major, minor);
  if (words.empty()) return answer;
  compile_text(rtc, kEmptyKernel, "empty.hip", words, Headers(), output);
  for (const std::string& file : loaded_libraries()) {
    const bool was_there = std::find(before.begin(), before.end(), file) != before.end();
    if (!was_there) answer += file + "\n";
  }
  return answer;
}

}  // namespace

int run_rtc(const RtcNames& names, std::span<const std::string> words, std::string& output) try {
  if (words.empty()) fail_toolchain(fmt::format("{}: name the library", names.prefix));
  if (words.size() >= 2 && words[1] == "--version") {
    output += describe_library(names, words[0], words.subspan(2), output);
    return 0;
  }
  const Rtc rtc = load_rtc(names, words[0]);
  const Words read = read_words(names, words.subspan(1));
  const std::string text = read_file(read.source);
  write_file_unflushed(read.output,
                       compile_text(rtc, text, read.source, read.options, Headers(), output));
  return 0;
} catch (const std::exception& error) {
  output += fmt::format("error: {}\n", error_of(error).what());
  return 1;
}

std::string ask_rtc(std::string_view title, const std::vector<std::string>& command,
                    const fs::path& library, std::string_view advice) {
  const SubprocessResult result =
      run_subprocess(command, {.working_folder = {},
                               .extra_environment = compile_environment(),
                               .timeout_seconds = kProbeSeconds,
                               .merge_stderr = true});
  if (result.ok()) return result.output;
  const std::string first = result.output.substr(0, result.output.find('\n'));
  fail_toolchain(fmt::format("{} {} cannot be used (exit code {}, signal {}): {}; {}", title,
                             library.string(), result.exit_code, result.signal,
                             first.empty() ? "it said nothing" : first, advice),
                 result.output);
}

fs::path require_worker(std::string_view title, const std::string& wanted) {
  fs::path worker = find_worker_program(wanted);
  if (!worker.empty()) return worker;
  std::vector<std::string> names;
  for (const fs::path& place : worker_places(wanted)) {
    names.push_back(fmt::format("'{}'", place.lexically_normal().string()));
  }
  fail_toolchain(
      fmt::format("{} is run by the worker program, which is not an executable file at {}: "
                  "install it there, or name it in BuildOptions::worker",
                  title, join(names, " or ")));
}

std::vector<fs::path> folders_in(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    if (name.starts_with(prefix) && entry.is_directory(unknown)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

bool is_regular(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

}  // namespace tessera::jit
