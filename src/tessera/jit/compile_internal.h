// One run of the compiler in an entry's folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/jit/cache.h"
#include "tessera/jit/compilers.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {

struct CompileJob {
  const Source* source = nullptr;
  std::vector<Artifact> objects;  // of the source's objects, in their order
  const Target* target = nullptr;
  const CompilerRow* compiler = nullptr;
  const Toolchain* toolchain = nullptr;
  std::filesystem::path worker;  // the worker program, which loads a CPU kernel first; empty: no
                                 // check
  double timeout_seconds = 0;
  std::filesystem::path cache;  // the folder of a failed build is moved below it
  std::string key;
};

// Fills the folder with source, headers, objects to link, command.txt, log.txt and the binary. When
// the compiler fails, or its output is not whole or cannot be loaded, moves the folder to
// <cache>/failed and throws Error{compile_failed}, or Error{timeout} when the compiler took too
// long. The error's context() is the compiler's whole output.
void compile(const CompileJob& job, const std::filesystem::path& folder);

}  // namespace tessera::jit
