// tessera-worker: the program that runs work which might hang or crash in a process of its own.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jit {

// The library's folder. This is the folder of the file that contains this code: libtessera.so, or a
// program that links the library. For a program in the package's folder of programs, it is the
// folder of the package's library. The path is empty when the system does not know the file.
std::filesystem::path library_folder();

// The places that are searched: `wanted` alone when it is given, otherwise beside the library and
// in its libexec folder.
std::vector<std::filesystem::path> worker_places(const std::string& wanted);

// The first place that is an executable file; empty if none is.
std::filesystem::path find_worker_program(const std::string& wanted);

// The command "load NAME FILE [NAME FILE ...]". The worker says that it is ready, loads the CPU
// kernels, and answers one line for each: whether it loads, and if not, why.
inline constexpr const char* kLoadVerb = "load";
inline constexpr std::string_view kReadyWord = "ready";
inline constexpr std::string_view kLoadsWord = "loads";
inline constexpr std::string_view kFailsWord = "fails ";

}  // namespace tessera::jit
