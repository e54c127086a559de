#include "tessera/jit/compilers.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/jit/hip_compilers_internal.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/nvrtc_internal.h"

namespace tessera::jit {
namespace {

#if defined(__x86_64__)
constexpr unsigned kHostMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned kHostMachine = EM_AARCH64;
#else
constexpr unsigned kHostMachine = EM_NONE;  // any
#endif

constexpr unsigned kCudaMachine = 190;

Toolchain find_for_processors(const BuildOptions& options, const Target&,
                              const std::filesystem::path& memo) {
  return find_toolchain(options.compiler, memo);
}

Toolchain find_for_cuda(const BuildOptions& options, const Target&,
                        const std::filesystem::path& memo) {
  return find_nvrtc({.library = options.nvrtc, .worker = options.worker}, memo);
}

std::map<std::string, std::int64_t> facts_of_cubin(std::string_view log, std::string_view,
                                                   std::string_view name) {
  return cubin_facts(log, name);
}

Toolchain find_for_hip(const BuildOptions& options, const Target& target,
                       const std::filesystem::path& memo) {
  return find_hip_compiler({.compiler = options.hip_compiler, .worker = options.worker}, target,
                           memo);
}

std::map<std::string, std::int64_t> facts_of_code_object(std::string_view, std::string_view binary,
                                                         std::string_view name) {
  return code_object_facts(binary, name);
}

constexpr std::array kCompilers = {
    CompilerRow{.backend = "cpu",
                .title = "C++ compiler",
                .find = find_for_processors,
                .command = cpp_command,
                .binary = {"kernel.so", ET_DYN, kHostMachine},
                .facts = nullptr,
                .host_runs = true},
    CompilerRow{.backend = "cuda",
                .title = "NVRTC",
                .find = find_for_cuda,
                .command = nvrtc_command,
                .binary = {"kernel.cubin", ET_EXEC, kCudaMachine},
                .facts = facts_of_cubin,
                .host_runs = false},
    CompilerRow{.backend = "hip",
                .title = "AMD compiler",
                .find = find_for_hip,
                .command = hip_command,
                .binary = {kCodeObject, ET_DYN, kAmdGpuMachine},
                .facts = facts_of_code_object,
                .host_runs = false},
};

constexpr BinaryKind kObject = {kObjectFile, ET_REL, kHostMachine};

}  // namespace

std::span<const CompilerRow> compilers() { return kCompilers; }

const CompilerRow& compiler_for(const Target& target, std::string_view who) {
  std::vector<std::string> backends;
  for (const CompilerRow& row : kCompilers) {
    if (row.backend == target.backend) return row;
    backends.emplace_back(row.backend);
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: only kernels of {} targets can be compiled here, got target {} of "
                          "backend {}; write its source with 'tessera generate'",
                          who, join(backends, ", "), target.name, target.backend));
}

const CompilerRow* compiler_of_binary(std::string_view file) {
  const auto* const row =
      std::find_if(kCompilers.begin(), kCompilers.end(),
                   [file](const CompilerRow& each) { return each.binary.file == file; });
  return row == kCompilers.end() ? nullptr : row;
}

bool is_host_library(std::string_view file) {
  const CompilerRow* const row = compiler_of_binary(file);
  return row != nullptr && row->host_runs;
}

std::vector<BinaryKind> binary_kinds() {
  std::vector<BinaryKind> kinds;
  for (const CompilerRow& row : kCompilers) kinds.push_back(row.binary);
  kinds.push_back(kObject);
  return kinds;
}

BinaryKind binary_kind(const CompilerRow& compiler, const Source& source) {
  return source.is_object ? kObject : compiler.binary;
}

}  // namespace tessera::jit
