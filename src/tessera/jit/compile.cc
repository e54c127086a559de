#include "tessera/jit/compile_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/families/headers.h"
#include "tessera/jit/cache_entry_internal.h"
#include "tessera/jit/cache_folder_internal.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/elf_internal.h"
#include "tessera/jit/load_check_internal.h"

namespace tessera::jit {
namespace {

// The command as people can paste it into a shell. The library itself never uses a shell.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "+-./:=,_@%";
  const auto is_plain = [&](char c) { return is_alphanumeric(c) || kPlain.find(c) != kPlain.npos; };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string to_text(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(quoted(word));
  return join(words, " ") + "\n";
}

void write_inputs(const Source& source, const fs::path& folder) {
  write_file_unflushed(folder / source_file(source), source.text);
  if (!source.objects.empty())
    write_file_unflushed(folder / kDeclarationsFile, source.declarations);
  if (source.headers == nullptr) return;
  for (const EmbeddedFile& header : source.headers->files) {
    const fs::path path = folder / header.path;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      throw Error(ErrorCode::io_error, fmt::format("cannot create {}: {}",
                                                   path.parent_path().string(), error.message()));
    }
    write_file_unflushed(path, header.content);
  }
}

// Objects are put into the compiler's folder, because an artifact may have no path that another
// process can open, and may leave the cache at any time.
void bring_objects(const CompileJob& job, const fs::path& folder) {
  for (std::size_t i = 0; i < job.objects.size(); ++i) {
    write_file_unflushed(folder / linked_object(i), read_file(job.objects[i].binary));
  }
}

// The first lines that contain "error", or else the first lines.
std::string gist(const std::string& output) {
  constexpr std::size_t kLines = 3;
  constexpr std::size_t kLongest = 300;
  std::vector<std::string> errors;
  std::string first;
  for (const std::string_view line : split(output, '\n')) {
    if (split_words(line).empty()) continue;
    if (first.empty()) first = line.substr(0, kLongest);
    if (line.find("error") == line.npos || errors.size() == kLines) continue;
    errors.emplace_back(line.substr(0, kLongest));
  }
  if (errors.empty()) return first.empty() ? "it said nothing" : first;
  return join(errors, "; ");
}

std::string outcome(const SubprocessResult& result, double timeout_seconds,
                    const std::string& damage) {
  if (!result.started) return "could not be started";
  if (result.timed_out) {
    return fmt::format("ran longer than {:g} s and was stopped", timeout_seconds);
  }
  if (result.signal != 0) {
    return fmt::format("died on signal {} ({})", result.signal, ::strsignal(result.signal));
  }
  if (result.exit_code != 0) return fmt::format("failed with exit code {}", result.exit_code);
  return "reported success but " + damage;
}

[[noreturn]] void fail(const CompileJob& job, const SubprocessResult& result,
                       const std::string& damage, const fs::path& folder) {
  const std::string& name = job.source->name;
  const fs::path kept =
      move_to_shelf(job.cache, "failed", folder, entry_folder_name(name, job.key));
  const std::string place =
      kept.empty() ? "" : fmt::format("; all it said is in {}", (kept / "log.txt").string());
  throw Error(result.timed_out ? ErrorCode::timeout : ErrorCode::compile_failed,
              fmt::format("{}: {} {}: {}{}", name, job.toolchain->path.string(),
                          outcome(result, job.timeout_seconds, damage), gist(result.output), place),
              result.output);
}

// Files of an earlier attempt say nothing about this one.
void forget_failure(const CompileJob& job) {
  const fs::path kept = job.cache / "failed" / entry_folder_name(job.source->name, job.key);
  std::error_code error;
  if (fs::exists(kept, error)) remove_stored(job.cache, kept);
}

// A sentence about what is wrong with the compiler's output file; empty when nothing is.
std::string binary_damage(const CompileJob& job, const fs::path& folder) {
  const BinaryKind kind = binary_kind(*job.compiler, *job.source);
  const std::string file(kind.file);
  std::string damage;
  const std::optional<std::string> content = read_regular_file(folder / file, damage);
  if (content ? content->empty() : damage == "is missing") return "wrote no " + file;
  if (content) damage = elf_damage(kind, *content);
  if (!damage.empty()) return fmt::format("its {} {}", file, damage);
  if (job.source->is_object || !job.compiler->host_runs) return {};
  damage = load_damage(job.worker, {job.source->name, folder / file}).value_or("");
  return damage.empty() ? "" : fmt::format("its {} is of no use: {}", file, damage);
}

}  // namespace

void compile(const CompileJob& job, const fs::path& folder) {
  const std::vector<std::string> command =
      job.compiler->command(*job.toolchain, *job.target, *job.source);
  forget_failure(job);
  write_inputs(*job.source, folder);
  bring_objects(job, folder);
  write_file_unflushed(folder / "command.txt", to_text(command));

  // The compiler's temporary files lie in the folder, so that they are removed with it.
  std::vector<std::string> variables = compile_environment();
  variables.push_back("TMPDIR=" + folder.string());
  const SubprocessResult result = run_subprocess(command, {.working_folder = folder,
                                                           .extra_environment = variables,
                                                           .timeout_seconds = job.timeout_seconds,
                                                           .merge_stderr = true});
  write_file_unflushed(folder / "log.txt", result.output);
  const std::string damage = result.ok() ? binary_damage(job, folder) : "";
  if (!result.ok() || !damage.empty()) fail(job, result, damage, folder);
}

}  // namespace tessera::jit
