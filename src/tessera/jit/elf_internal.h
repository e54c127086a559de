// Checks that a compiler wrote a whole file of the right kind.
#pragma once

#include <string>
#include <string_view>

#include "tessera/jit/compilers.h"

namespace tessera::jit {

// What is wrong with the content of an entry's binary of this kind: "has 100 bytes, but its section
// 3 has 40 at byte 28776". Empty when the headers fit the kind and everything that they name lies
// within the file.
std::string elf_damage(const BinaryKind& kind, std::string_view content);

}  // namespace tessera::jit
