// The compiler as data: its path, its exact identity, and its command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/spec/target.h"

namespace tessera::jit {

// What identifies a compiler. A change of any field may change the bytes that the compiler writes.
struct Toolchain {
  std::filesystem::path path;
  std::string version;                 // first line of --version
  std::string build_id;                // hash of the content of all programs that make a kernel
  std::vector<std::string> arguments;  // further words of TESSERA_CXX or CXX ("ccache g++ -m64")
  std::filesystem::path runner;  // for NVRTC, the worker program, which calls the library `path`
};

// Finds the C++ compiler for kernels; `wanted` names one, empty looks at TESSERA_CXX, CXX, g++,
// c++, clang++. Throws Error{compile_failed}, which lists where it looked. The result is remembered
// in the process and in `memo_folder`, if that is given, until one of the compiler's files changes.
Toolchain find_toolchain(const std::string& wanted, const std::filesystem::path& memo_folder = {});

// The argument vector that turns a source into its binary, in the folder where both lie. The
// objects that it links lie there too, as linked_object(0), linked_object(1), ...
std::vector<std::string> compile_command(const Toolchain& toolchain, const Target& target,
                                         const Source& source);
std::string linked_object(std::size_t index);
// The file that is included before the text of a source that links objects.
inline constexpr const char* kDeclarationsFile = "objects.h";

// "NAME" and "NAME=value" for SubprocessOptions: changes of the environment for a compiler, so that
// no variable of the user's changes its output.
std::vector<std::string> compile_environment();

// Everything that can change the bytes: text, headers, compiler, flags, target, ABI number.
std::string cache_key(const Source& source, const Target& target, const Toolchain& toolchain);

// The part of the key that does not depend on the compiler: text, headers, target, and the ABI
// number of the source's family.
std::string source_key(const Source& source, const Target& target);

}  // namespace tessera::jit
