// NVRTC, NVIDIA's run-time compiler: from CUDA text to a cubin, without a GPU or a CUDA toolkit.
//
// NVRTC runs in the worker program, one process for each kernel, like any other compiler. So a time
// limit holds, a crash harms only the worker, and the calling process never loads 100 MB of
// compiler.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tessera/jit/toolchain.h"

namespace tessera::jit {

struct NvrtcOptions {
  std::string library;  // empty: TESSERA_NVRTC, then nvrtc_places()
  std::string worker;   // empty: the one installed with the library
};

// The folders that are searched for libnvrtc.so.13, then .12: the folders of LD_LIBRARY_PATH and
// CUDA_HOME, of CUDA toolkits and of the system, and Python environments with NVIDIA's wheel.
std::vector<std::filesystem::path> nvrtc_places();

// Finds NVRTC. Throws Error{compile_failed}, which says where it looked and how to install NVRTC.
// The result is remembered like other toolchains.
Toolchain find_nvrtc(const NvrtcOptions& options = {}, const std::filesystem::path& memo = {});

// The worker's side. `words` are "LIBRARY --version", or "LIBRARY OPTIONS SOURCE -o OUTPUT" with
// paths relative to the working folder. Appends the compiler's messages to `output` and returns an
// exit status.
int run_nvrtc(std::span<const std::string> words, std::string& output);

}  // namespace tessera::jit
