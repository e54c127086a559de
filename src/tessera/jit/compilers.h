// The compilers of kernels: one row for each backend whose kernels can be built here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/build.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {

// A kind of binary: the name of its file, and the type and machine of the ELF file.
struct BinaryKind {
  std::string_view file;
  unsigned elf_type;
  unsigned elf_machine;
};

struct CompilerRow {
  std::string_view backend;  // Target::backend
  std::string_view title;    // for people
  // The compiler for a target of this backend. Throws Error{compile_failed} that says where it
  // looked. The result is remembered in the folder `memo`; with an empty path, in this process
  // only.
  Toolchain (*find)(const BuildOptions& options, const Target& target,
                    const std::filesystem::path& memo);
  // The argument vector that turns a source into its binary, in the folder where both lie.
  std::vector<std::string> (*command)(const Toolchain&, const Target&, const Source&);
  BinaryKind binary;  // the kind of a kernel's binary
  // The numbers that the compiler states about the kernel `name`, in its log or in the binary; null
  // when it states none.
  std::map<std::string, std::int64_t> (*facts)(std::string_view log, std::string_view binary,
                                               std::string_view name);
  bool host_runs;  // a process loads the kernels as libraries; the worker tries that first
};

std::span<const CompilerRow> compilers();

// The row of the target's backend. Throws Error{unsupported}, whose sentence begins with `who`,
// for a target whose kernels are built elsewhere.
const CompilerRow& compiler_for(const Target& target, std::string_view who);
inline const CompilerRow& compiler_for(const Target& target) {
  return compiler_for(target, target.name);
}

}  // namespace tessera::jit
