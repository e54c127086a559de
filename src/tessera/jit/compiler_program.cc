#include "tessera/jit/compiler_program_internal.h"

#include <fmt/format.h>

#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

SubprocessResult ask(const CompilerProgram& compiler, const std::string& question) {
  std::vector<std::string> argv = {compiler.path.string()};
  argv.insert(argv.end(), compiler.arguments.begin(), compiler.arguments.end());
  argv.push_back(question);
  return run_subprocess(argv, {.working_folder = {},
                               .extra_environment = compile_environment(),
                               .timeout_seconds = kProbeSeconds,
                               .merge_stderr = true});
}

}  // namespace

std::optional<CompilerProgram> locate_compiler(const std::string& wanted) {
  const auto absolute = [](const fs::path& path) {
    std::error_code ignored;
    return fs::absolute(path, ignored);
  };
  if (const fs::path found = find_executable(wanted); !found.empty()) {
    return CompilerProgram{.path = absolute(found), .arguments = {}};
  }
  const std::vector<std::string_view> words = split_words(wanted);
  if (words.size() < 2) return std::nullopt;
  const fs::path found = find_executable(std::string(words[0]));
  if (found.empty()) return std::nullopt;
  return CompilerProgram{.path = absolute(found), .arguments = {words.begin() + 1, words.end()}};
}

std::string ask_version(const CompilerProgram& compiler, std::string_view title,
                        std::string_view variable) {
  const SubprocessResult result = ask(compiler, "--version");
  if (!result.ok()) {
    fail_toolchain(
        fmt::format("{} {} does not answer '--version' (exit code {}, signal {}): {}; name another "
                    "one with {}",
                    title, compiler.path.string(), result.exit_code, result.signal,
                    result.output.empty() ? "it said nothing" : first_line(result.output),
                    variable),
        result.output);
  }
  return first_line(result.output);
}

fs::path ask_program(const CompilerProgram& compiler, const std::string& name) {
  const SubprocessResult result = ask(compiler, "-print-prog-name=" + name);
  return result.ok() ? find_executable(first_line(result.output)) : fs::path();
}

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

}  // namespace tessera::jit
