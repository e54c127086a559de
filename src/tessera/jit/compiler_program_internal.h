// A compiler that is a program of the command line: finding it, and asking it what it is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/toolchain.h"

namespace tessera::jit {

struct CompilerProgram {
  std::filesystem::path path;
  std::vector<std::string> arguments;
};

// "ccache g++ -m64" means a program and its first arguments, unless there is a program with that
// whole name.
std::optional<CompilerProgram> locate_compiler(const std::string& wanted);

// The first line of its answer to --version. Throws Error{compile_failed}, whose sentence begins
// with `title` and names the variable by which one names another compiler.
std::string ask_version(const CompilerProgram& compiler, std::string_view title,
                        std::string_view variable);

// A program that the compiler starts: gcc answers with a path, or with the bare name if it would
// look on PATH. Empty when there is none, like clang's cc1plus.
std::filesystem::path ask_program(const CompilerProgram& compiler, const std::string& name);

// The shared libraries of a program, as its loader lists them: clang's driver is a thin one.
std::vector<std::filesystem::path> libraries_of(const std::filesystem::path& program);

}  // namespace tessera::jit
