#include "tessera/jit/load_check_internal.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

constexpr std::size_t kAskedAtOnce =
    100;  // 40 KB of names and paths, of 128 KB that a system takes
constexpr double kLoadSeconds = 60;

using Answers = std::vector<std::optional<std::string>>;

bool may_run_from(const std::filesystem::path& file) {
  struct statvfs disk {};
  return ::statvfs(file.c_str(), &disk) == 0 && (disk.f_flag & ST_NOEXEC) == 0;
}

std::string how_it_ended(const SubprocessResult& worker) {
  if (worker.timed_out) return fmt::format("loading it takes longer than {:g} s", kLoadSeconds);
  if (worker.signal == 0) {
    return fmt::format("loading it ends a process with exit code {}", worker.exit_code);
  }
  return fmt::format("loading it ends a process with signal {} ({})", worker.signal,
                     ::strsignal(worker.signal));
}

// Asks about the libraries until one of them ends the worker; that library is the last one with an
// answer. Empty when there is no worker or it has another version.
Answers ask(const std::filesystem::path& worker, std::span<const LibraryToLoad> libraries) {
  std::vector<std::string> command = {worker.string(), kLoadVerb};
  for (const LibraryToLoad& library : libraries) {
    command.insert(command.end(), {library.name, library.file.string()});
  }
  const SubprocessResult result = run_subprocess(command, {.working_folder = {},
                                                           .extra_environment = {},
                                                           .timeout_seconds = kLoadSeconds,
                                                           .merge_stderr = false});
  Answers answers;
  const std::vector<std::string_view> lines = split(result.output, '\n');
  if (lines.empty() || lines.front() != kReadyWord) return answers;
  for (const std::string_view line : lines) {
    if (line == kLoadsWord) answers.emplace_back("");
    if (line.starts_with(kFailsWord)) answers.emplace_back(line.substr(kFailsWord.size()));
  }
  // A system that is out of memory also kills processes, so being killed does not prove that the
  // library is bad.
  const bool says_nothing = !result.timed_out && result.signal == SIGKILL;
  if (answers.size() < libraries.size()) {
    answers.push_back(says_nothing ? std::nullopt : std::optional(how_it_ended(result)));
  }
  answers.resize(std::min(answers.size(), libraries.size()));
  return answers;
}

}  // namespace

std::vector<std::optional<std::string>> load_damages(const std::filesystem::path& worker,
                                                     std::span<const LibraryToLoad> libraries) {
  Answers answers;
  while (!worker.empty() && answers.size() < libraries.size()) {
    const auto rest = libraries.subspan(answers.size());
    const Answers more = ask(worker, rest.first(std::min(rest.size(), kAskedAtOnce)));
    if (more.empty()) break;
    answers.insert(answers.end(), more.begin(), more.end());
  }
  answers.resize(libraries.size());
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    if (!may_run_from(libraries[i].file)) answers[i] = std::nullopt;
  }
  return answers;
}

std::optional<std::string> load_damage(const std::filesystem::path& worker,
                                       const LibraryToLoad& library) {
  return load_damages(worker, {&library, 1}).front();
}

}  // namespace tessera::jit
