// A vendor's run-time compiler: a shared library that turns a text into a GPU's binary. NVRTC and
// hiprtc have the same functions under other names. The library is loaded by the worker program
// only, one process for each kernel.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jit {

// The worker's side. The functions are prefix + "Version" and so on; the binary comes from prefix +
// "Get" + binary.
struct RtcNames {
  std::string_view title;   // "NVRTC"
  std::string_view prefix;  // "nvrtc", and the worker's command
  std::string_view binary;  // "CUBIN"
};

// `words` are "LIBRARY --version [OPTIONS]", or "LIBRARY OPTIONS SOURCE -o OUTPUT" with paths
// relative to the working folder. With options, --version compiles an empty kernel first. Its
// answer is a line with the version and one for each shared library that was loaded for it. Appends
// the compiler's messages to `output` and returns an exit status.
int run_rtc(const RtcNames& names, std::span<const std::string> words, std::string& output);

// The caller's side: asks a worker for the version, and returns what it said. Throws
// Error{compile_failed}, whose sentence ends with `advice`.
std::string ask_rtc(std::string_view title, const std::vector<std::string>& command,
                    const std::filesystem::path& library, std::string_view advice);

// The worker program; throws Error{compile_failed} where there is none.
std::filesystem::path require_worker(std::string_view title, const std::string& wanted);

// What is compiled to learn whether a compiler makes code for a target.
inline constexpr const char* kEmptyKernel =
    "extern \"C\" __attribute__((global)) void empty() {}\n";

// The folders in `parent` whose name starts with `prefix`, later versions first.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& parent,
                                              std::string_view prefix);

bool is_regular(const std::filesystem::path& path);

}  // namespace tessera::jit
