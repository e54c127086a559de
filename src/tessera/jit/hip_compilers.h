// Compilers of kernels for AMD's GPUs: a program (amdclang++ of a ROCm installation, or Debian's
// clang) or a library (hiprtc, which the worker program runs). None of them needs ROCm's headers or
// device libraries, nor a GPU.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/toolchain.h"

namespace tessera::jit {

struct HipCompilerOptions {
  std::string compiler;  // empty: TESSERA_HIPCC, then hip_compiler_places()
  std::string worker;    // for hiprtc; empty: the one installed with the library
};

// Where compilers may be, the best first: amdclang++ in the ROCm installations that ROCM_PATH and
// HIP_PATH name and in /opt, clang++-22 and clang++-19 on PATH, and then libhiprtc.so in ROCm
// installations and the system's folders. Files that do not exist are left out.
std::vector<std::filesystem::path> hip_compiler_places();

// The first compiler that makes code for the target. Each is asked for an empty kernel first; one
// that is known to make wrong code for the target is refused. Throws Error{compile_failed}, which
// says why each was not taken. The result is remembered like other toolchains.
Toolchain find_hip_compiler(const HipCompilerOptions& options, const Target& target,
                            const std::filesystem::path& memo = {});

// Why code that this compiler makes for the target is not to be trusted; empty when nothing is
// known against it. `version` is the first line of its answer to --version.
std::string wrong_code_reason(std::string_view version, std::string_view target);

// LLVM's disassembler, which knows the code of AMD's GPUs: TESSERA_LLVM_OBJDUMP, then the one of a
// ROCm installation, then llvm-objdump-22 and -19 on PATH. Empty when there is none.
std::filesystem::path find_objdump();

// The worker's side of hiprtc: see run_nvrtc().
int run_hiprtc(std::span<const std::string> words, std::string& output);

}  // namespace tessera::jit
