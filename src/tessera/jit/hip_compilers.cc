#include "tessera/jit/hip_compilers.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/jit/compiler_program_internal.h"
#include "tessera/jit/hip_compilers_internal.h"
#include "tessera/jit/runtime_compiler_internal.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

constexpr std::string_view kHowToGetHip =
    "get one with 'apt install clang-22 lld-22' or ROCm, or name a clang++ or libhiprtc.so with "
    "TESSERA_HIPCC; kernels in a pack need none";

// A compiler of LLVM's own releases (AMD's branch is another one) that makes wrong code.
struct WrongCode {
  int first_major, last_major;
  std::string_view target;
  std::string_view reason;
};
constexpr std::array kWrongCode = {
    WrongCode{
        17, 21, "gfx942",
        "clang 19 moves writes to LDS behind a barrier in code for gfx942, so that waves read "
        "what is not written yet; clang 22 is the first later version that was checked"},
};

// The 22 of "Debian clang version 22.1.8 (1~deb12u1)"; 0 for AMD's compilers and all others.
int major_of_llvm(std::string_view version) {
  constexpr std::string_view kWords = "clang version ";
  const std::size_t at = version.find(kWords);
  if (at == version.npos || version.starts_with("AMD ")) return 0;
  int major = 0;
  const char* const begin = version.data() + at + kWords.size();
  std::from_chars(begin, version.data() + version.size(), major);
  return major;
}

bool is_library(const fs::path& file) {
  return file.filename().string().find(".so") != std::string::npos;
}

void check_code(const Toolchain& found, const Target& target) {
  const std::string reason = wrong_code_reason(found.version, target.name);
  if (reason.empty()) return;
  fail_toolchain(fmt::format("{} ({}) is refused for target '{}': {}", found.path.string(),
                             found.version, target.name, reason));
}

// A folder that is removed again.
class ScratchFolder {
 public:
  ScratchFolder() : path_(make_unique_folder(fs::temp_directory_path(), "tessera-probe-")) {}
  ~ScratchFolder() { remove_tree(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Whether the compiler, its linker and its version of LLVM make code for the target.
void try_program(const Toolchain& found, const Target& target) {
  const ScratchFolder folder;
  const Source source{.name = "empty", .extension = ".hip", .text = kEmptyKernel, .headers = {}};
  write_file_unflushed(folder.path() / "kernel.hip", source.text);
  const SubprocessResult result = run_subprocess(hip_command(found, target, source),
                                                 {.working_folder = folder.path(),
                                                  .extra_environment = compile_environment(),
                                                  .timeout_seconds = kProbeSeconds,
                                                  .merge_stderr = true});
  if (result.ok()) return;
  fail_toolchain(fmt::format("{} ({}) makes no code for target '{}' (exit code {}, signal {}): {}",
                             found.path.string(), found.version, target.name, result.exit_code,
                             result.signal, result.output.substr(0, result.output.find('\n'))),
                 result.output);
}

std::vector<fs::path> program_parts(const CompilerProgram& compiler) {
  std::vector<fs::path> parts = {compiler.path};
  for (fs::path& library : libraries_of(compiler.path)) parts.push_back(std::move(library));
  if (fs::path linker = ask_program(compiler, "lld"); !linker.empty()) {
    for (fs::path& library : libraries_of(linker)) parts.push_back(std::move(library));
    parts.push_back(std::move(linker));
  }
  return parts;
}

ToolchainMemo probe_program(const CompilerProgram& compiler, const Target& target) {
  Toolchain found;
  found.path = compiler.path;
  found.arguments = compiler.arguments;
  found.version = ask_version(compiler, "the compiler", "TESSERA_HIPCC");
  check_code(found, target);
  try_program(found, target);
  ToolchainMemo memo = stamp_parts(program_parts(compiler));
  found.build_id = memo.toolchain.build_id;
  memo.toolchain = found;
  return memo;
}

// hiprtc 5 states no version of its own, but its file's full name does.
ToolchainMemo probe_library(const fs::path& library, const fs::path& worker, const Target& target) {
  std::vector<std::string> command = {worker.string(), "hiprtc", library.string(), "--version"};
  command.insert(command.end(), target.compile_flags.begin(), target.compile_flags.end());
  const std::string said = ask_rtc("hiprtc", command, library, kHowToGetHip);
  std::vector<fs::path> parts;
  std::string version;
  for (const std::string_view line : split(said, '\n')) {
    if (line.starts_with("hiprtc ")) version = line;
    if (line.starts_with('/')) parts.emplace_back(line);
  }
  ToolchainMemo memo = stamp_parts(parts);
  memo.toolchain.path = library;
  memo.toolchain.version =
      fmt::format("{} in {}", version, fs::canonical(library).filename().string());
  return memo;
}

ToolchainMemo probe_hip(const fs::path& compiler, const HipCompilerOptions& options,
                        const Target& target) {
  if (!is_library(compiler)) return probe_program({.path = compiler, .arguments = {}}, target);
  return probe_library(compiler, require_worker("hiprtc", options.worker), target);
}

// The first of the places that makes code. What was refused before it is stamped too, so that it is
// asked again when it changes.
ToolchainMemo probe_places(const std::vector<fs::path>& places, const HipCompilerOptions& options,
                           const Target& target) {
  std::vector<std::string> reasons;
  std::vector<PartStamp> refused;
  for (const fs::path& place : places) {
    try {
      ToolchainMemo memo = probe_hip(place, options, target);
      memo.parts.insert(memo.parts.end(), refused.begin(), refused.end());
      return memo;
    } catch (const Error& error) {
      reasons.emplace_back(error.what());
      refused.push_back(stamp_part(place));
    }
  }
  fail_toolchain(fmt::format("no compiler for target '{}' was found: {}; {}", target.name,
                             reasons.empty()
                                 ? "looked for amdclang++ in ROCM_PATH, HIP_PATH and /opt/rocm*, "
                                   "clang++-22 and clang++-19 on PATH, and libhiprtc.so in ROCm's "
                                   "and the system's folders"
                                 : join(reasons, "; "),
                             kHowToGetHip));
}

Toolchain find_named(const std::string& named, bool by_variable, const HipCompilerOptions& options,
                     const Target& target, const fs::path& memo) {
  const auto id = [&](const std::string& words) {
    return fmt::format("hip\n{}\n{}", target.name, words);
  };
  if (is_library(named) && is_regular(named)) {
    const fs::path library = fs::absolute(named);
    return remembered(id(library.string()), memo,
                      [&] { return probe_hip(library, options, target); });
  }
  const std::optional<CompilerProgram> program =
      is_library(named) ? std::nullopt : locate_compiler(named);
  if (!program) {
    fail_toolchain(fmt::format(
        "the compiler '{}'{} is neither an executable file nor a library "
        "(PATH is '{}'); {}",
        named, by_variable ? ", named by TESSERA_HIPCC," : "", environment("PATH"), kHowToGetHip));
  }
  return remembered(id(program->path.string() + "\n" + join(program->arguments, "\n")), memo,
                    [&] { return probe_program(*program, target); });
}

}  // namespace

std::string wrong_code_reason(std::string_view version, std::string_view target) {
  const int major = major_of_llvm(version);
  for (const WrongCode& row : kWrongCode) {
    if (row.target == target && major >= row.first_major && major <= row.last_major) {
      return std::string(row.reason);
    }
  }
  return {};
}

Toolchain find_hip_compiler(const HipCompilerOptions& options, const Target& target,
                            const fs::path& memo) {
  const std::string variable = environment("TESSERA_HIPCC");
  const std::string named = options.compiler.empty() ? variable : options.compiler;
  Toolchain found;
  if (!named.empty()) {
    found = find_named(named, options.compiler.empty(), options, target, memo);
  } else {
    const std::vector<fs::path> places = hip_compiler_places();
    std::string id = fmt::format("hip\n{}", target.name);
    for (const fs::path& place : places) id += "\n" + place.string();
    found = remembered(id, memo, [&] { return probe_places(places, options, target); });
  }
  if (is_library(found.path)) found.runner = require_worker("hiprtc", options.worker);
  return found;
}

// The options work without ROCm's headers and device libraries. Code objects of version 4 are what
// every HIP from 5.0 on loads.
std::vector<std::string> hip_command(const Toolchain& compiler, const Target& target,
                                     const Source& source) {
  std::vector<std::string> command;
  const auto append = [&command](const std::vector<std::string>& words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (compiler.runner.empty()) {
    append({compiler.path.string()});
    append(compiler.arguments);
    append({"-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
            "-I."});
  } else {
    append({compiler.runner.string(), "hiprtc", compiler.path.string()});
  }
  append(target.compile_flags);
  append({"-std=c++20", "-O3", "-ffp-contract=fast", "-mcode-object-version=4", "-w",
          "kernel" + source.extension, "-o", kCodeObject});
  return command;
}

int run_hiprtc(std::span<const std::string> words, std::string& output) {
  constexpr RtcNames kHiprtc = {.title = "hiprtc", .prefix = "hiprtc", .binary = "Code"};
  return run_rtc(kHiprtc, words, output);
}

}  // namespace tessera::jit
