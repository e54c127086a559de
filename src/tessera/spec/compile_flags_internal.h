// Which words a target row may hand to a compiler.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Empty when the flag only chooses instructions or how code is made for them. Else what it must be
// instead. A row may come from anybody: a flag that names a file, a folder or a program, or that is
// followed by a word of its own, is none of these.
std::string compile_flag_damage(std::string_view backend, std::string_view flag);

}  // namespace tessera
