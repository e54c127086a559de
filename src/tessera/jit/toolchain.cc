#include "tessera/jit/toolchain.h"

#include <fmt/format.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"
#include "tessera/jit/compiler_program_internal.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

constexpr std::string_view kHowToGetOne =
    "install one ('apt install g++') or name one with TESSERA_CXX";

// A compiler that the user names is used or is an error; no other one replaces it. CXX is only a
// hint, because people set it for other purposes.
CompilerProgram locate_any(const std::string& wanted) {
  const std::string own = environment("TESSERA_CXX");
  const std::string named = wanted.empty() ? own : wanted;
  if (!named.empty()) {
    if (const std::optional<CompilerProgram> found = locate_compiler(named)) return *found;
    fail_toolchain(fmt::format(
        "the C++ compiler '{}'{} is not an executable file (PATH is '{}'); {}", named,
        wanted.empty() ? ", named by TESSERA_CXX," : "", environment("PATH"), kHowToGetOne));
  }
  const std::string hint = environment("CXX");
  for (const std::string& name :
       {hint, std::string("g++"), std::string("c++"), std::string("clang++")}) {
    if (const std::optional<CompilerProgram> found = locate_compiler(name)) return *found;
  }
  fail_toolchain(
      fmt::format("no C++ compiler was found: looked at TESSERA_CXX (not set), CXX ({}), and for "
                  "g++, c++ and clang++ on PATH '{}'; {}",
                  hint.empty() ? "not set" : "'" + hint + "'", environment("PATH"), kHowToGetOne));
}

// All programs whose content can change a kernel's bytes.
std::vector<fs::path> parts_of(const CompilerProgram& compiler) {
  std::vector<fs::path> parts = {compiler.path};
  const fs::path backend = ask_program(compiler, "cc1plus");
  for (const char* name : {"as", "ld"}) parts.push_back(ask_program(compiler, name));
  if (backend.empty()) {
    for (fs::path& library : libraries_of(compiler.path)) parts.push_back(std::move(library));
  } else {
    parts.push_back(backend);
  }
  std::erase_if(parts, [](const fs::path& part) { return part.empty(); });
  return parts;
}

ToolchainMemo probe(const CompilerProgram& compiler) {
  ToolchainMemo memo = stamp_parts(parts_of(compiler));
  memo.toolchain.path = compiler.path;
  memo.toolchain.version = ask_version(compiler, "the C++ compiler", "TESSERA_CXX");
  memo.toolchain.arguments = compiler.arguments;
  return memo;
}

}  // namespace

Toolchain find_toolchain(const std::string& wanted, const fs::path& memo_folder) {
  const CompilerProgram compiler = locate_any(wanted);
  std::string id = compiler.path.string();
  for (const std::string& argument : compiler.arguments) id += '\n' + argument;
  return remembered(id, memo_folder, [&compiler] { return probe(compiler); });
}

}  // namespace tessera::jit
