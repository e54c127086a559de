// NVRTC, NVIDIA's run-time compiler: from CUDA text to a cubin, without a GPU or a CUDA toolkit.
//
// It runs in the worker program, one process per kernel, like any other compiler: a time limit can
// be kept, a crash harms nobody, and the calling process never loads 100 MB of compiler.
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

// The folders that are searched for libnvrtc.so.13, then .12: those of LD_LIBRARY_PATH and
// CUDA_HOME, CUDA toolkits, the system's, and Python environments with NVIDIA's wheel.
std::vector<std::filesystem::path> nvrtc_places();

// Throws Error{compile_failed} that says where it looked and how to get it. What was found is
// remembered like other toolchains.
Toolchain find_nvrtc(const NvrtcOptions& options = {}, const std::filesystem::path& memo = {});

// The worker's end: "LIBRARY --version", or "LIBRARY OPTIONS SOURCE -o OUTPUT" with paths relative
// to the working folder. Appends what the compiler says to `output`; returns an exit status.
int run_nvrtc(std::span<const std::string> words, std::string& output);

}  // namespace tessera::jit
