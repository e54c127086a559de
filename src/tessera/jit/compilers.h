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

// What a compiler writes: a file of this name, which is an ELF file of this type and machine.
struct BinaryKind {
  std::string_view file;
  unsigned elf_type;
  unsigned elf_machine;
};

struct CompilerRow {
  std::string_view backend;  // Target::backend
  std::string_view title;    // for people
  // Throws Error{compile_failed} that says where it looked. `memo` is a folder that remembers what
  // was found; empty: only this process does.
  Toolchain (*find)(const BuildOptions& options, const std::filesystem::path& memo);
  // The argument vector that turns a source into its binary, in the folder where both lie.
  std::vector<std::string> (*command)(const Toolchain&, const Target&, const Source&);
  BinaryKind binary;  // of a kernel
  // What the compiler's log says of the kernel `name`; null: logs say nothing.
  std::map<std::string, std::int64_t> (*facts)(std::string_view log, std::string_view name);
  bool host_runs;  // kernels are libraries that a process loads: the worker tries it first
};

std::span<const CompilerRow> compilers();

// The row of the target's backend. Throws Error{unsupported}, whose sentence begins with `who`,
// for a target whose kernels are built elsewhere.
const CompilerRow& compiler_for(const Target& target, std::string_view who);
inline const CompilerRow& compiler_for(const Target& target) {
  return compiler_for(target, target.name);
}

}  // namespace tessera::jit
