#include "tessera/jit/toolchain.h"

#include <fmt/format.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

struct Compiler {
  fs::path path;
  std::vector<std::string> arguments;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

constexpr std::string_view kHowToGetOne =
    "install one ('apt install g++') or name one with TESSERA_CXX";

// "ccache g++ -m64" means a program and its first arguments, unless there is a program with that
// whole name.
std::optional<Compiler> locate(const std::string& wanted) {
  const auto absolute = [](const fs::path& path) {
    std::error_code ignored;
    return fs::absolute(path, ignored);
  };
  if (const fs::path found = find_executable(wanted); !found.empty()) {
    return Compiler{.path = absolute(found), .arguments = {}};
  }
  const std::vector<std::string_view> words = split_words(wanted);
  if (words.size() < 2) return std::nullopt;
  const fs::path found = find_executable(std::string(words[0]));
  if (found.empty()) return std::nullopt;
  return Compiler{.path = absolute(found), .arguments = {words.begin() + 1, words.end()}};
}

// A compiler that the user names is used or is an error; no other one replaces it. CXX is only a
// hint, because people set it for other purposes.
Compiler locate_any(const std::string& wanted) {
  const std::string own = environment("TESSERA_CXX");
  const std::string named = wanted.empty() ? own : wanted;
  if (!named.empty()) {
    if (const std::optional<Compiler> found = locate(named)) return *found;
    fail_toolchain(fmt::format(
        "the C++ compiler '{}'{} is not an executable file (PATH is '{}'); {}", named,
        wanted.empty() ? ", named by TESSERA_CXX," : "", environment("PATH"), kHowToGetOne));
  }
  const std::string hint = environment("CXX");
  for (const std::string& name :
       {hint, std::string("g++"), std::string("c++"), std::string("clang++")}) {
    if (const std::optional<Compiler> found = locate(name)) return *found;
  }
  fail_toolchain(
      fmt::format("no C++ compiler was found: looked at TESSERA_CXX (not set), CXX ({}), and for "
                  "g++, c++ and clang++ on PATH '{}'; {}",
                  hint.empty() ? "not set" : "'" + hint + "'", environment("PATH"), kHowToGetOne));
}

SubprocessResult ask(const Compiler& compiler, const std::string& question) {
  std::vector<std::string> argv = {compiler.path.string()};
  argv.insert(argv.end(), compiler.arguments.begin(), compiler.arguments.end());
  argv.push_back(question);
  return run_subprocess(argv, {.working_folder = {},
                               .extra_environment = compile_environment(),
                               .timeout_seconds = kProbeSeconds,
                               .merge_stderr = true});
}

std::string ask_version(const Compiler& compiler) {
  const SubprocessResult result = ask(compiler, "--version");
  if (!result.ok()) {
    fail_toolchain(
        fmt::format("the C++ compiler {} does not answer '--version' (exit code {}, signal {}): "
                    "{}; name another one with TESSERA_CXX",
                    compiler.path.string(), result.exit_code, result.signal,
                    result.output.empty() ? "it said nothing" : first_line(result.output)),
        result.output);
  }
  return first_line(result.output);
}

// A program that the compiler starts: gcc answers with a path, or with the bare name if it would
// look on PATH. Empty when there is none, like clang's cc1plus.
fs::path ask_program(const Compiler& compiler, const std::string& name) {
  const SubprocessResult result = ask(compiler, "-print-prog-name=" + name);
  return result.ok() ? find_executable(first_line(result.output)) : fs::path();
}

// The shared libraries of a program, as its loader lists them: clang's driver is a thin one.
std::vector<fs::path> libraries_of(const fs::path& program) {
  const SubprocessResult result =
      run_subprocess({program.string()}, {.working_folder = {},
                                          .extra_environment = {"LD_TRACE_LOADED_OBJECTS=1"},
                                          .timeout_seconds = kProbeSeconds,
                                          .merge_stderr = false});
  std::vector<fs::path> libraries;
  for (const std::string_view line : split(result.output, '\n')) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.size() >= 3 && words[1] == "=>" && words[2].starts_with('/')) {
      libraries.emplace_back(words[2]);
    }
  }
  return libraries;
}

// All programs whose content can change a kernel's bytes.
std::vector<fs::path> parts_of(const Compiler& compiler) {
  std::vector<fs::path> parts = {compiler.path};
  const fs::path backend = ask_program(compiler, "cc1plus");
  for (const char* name : {"as", "ld"}) parts.push_back(ask_program(compiler, name));
  if (backend.empty()) {
    for (fs::path& library : libraries_of(compiler.path)) parts.push_back(std::move(library));
  } else {
    parts.push_back(backend);
  }
  std::erase_if(parts, [](const fs::path& part) { return part.empty(); });
  return parts;
}

ToolchainMemo probe(const Compiler& compiler) {
  ToolchainMemo memo = stamp_parts(parts_of(compiler));
  memo.toolchain.path = compiler.path;
  memo.toolchain.version = ask_version(compiler);
  memo.toolchain.arguments = compiler.arguments;
  return memo;
}

}  // namespace

Toolchain find_toolchain(const std::string& wanted, const fs::path& memo_folder) {
  const Compiler compiler = locate_any(wanted);
  std::string id = compiler.path.string();
  for (const std::string& argument : compiler.arguments) id += '\n' + argument;
  return remembered(id, memo_folder, [&compiler] { return probe(compiler); });
}

}  // namespace tessera::jit
