// The helper program that does in a process of its own what might hang or crash: tessera-worker.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jit {

// Where it is looked for: `wanted` alone when given; else beside the library and in its libexec
// folder.
std::vector<std::filesystem::path> worker_places(const std::string& wanted);

// The first of these that is an executable file; empty if none is.
std::filesystem::path find_worker_program(const std::string& wanted);

// "load NAME FILE [NAME FILE ...]" says that it is ready, loads kernels of CPUs and answers one
// line each: that it loads, or that it fails and a sentence.
inline constexpr const char* kLoadVerb = "load";
inline constexpr std::string_view kReadyWord = "ready";
inline constexpr std::string_view kLoadsWord = "loads";
inline constexpr std::string_view kFailsWord = "fails ";

}  // namespace tessera::jit
