// The functions in the rows of compilers.cc, and the kinds of binaries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/compilers.h"

namespace tessera::jit {

// The file of code that kernels share; only the host's compiler makes it.
inline constexpr const char* kObjectFile = "object.o";

std::vector<std::string> cpp_command(const Toolchain& compiler, const Target& target,
                                     const Source& source);
std::vector<std::string> nvrtc_command(const Toolchain& nvrtc, const Target& target,
                                       const Source& source);

// The row whose kernels are files of this name, or null.
const CompilerRow* compiler_of_binary(std::string_view file);
bool is_host_library(std::string_view file);

// The kinds of every compiler's binaries, and of objects.
std::vector<BinaryKind> binary_kinds();
BinaryKind binary_kind(const CompilerRow& compiler, const Source& source);

}  // namespace tessera::jit
