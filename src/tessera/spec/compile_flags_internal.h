// The flags that a target row may pass to a compiler.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Empty when the flag only chooses instructions or the way of making code. Otherwise what it must
// be instead. A row may come from anybody, so flags that name a file, a folder or a program, and
// flags that take a further word, are refused.
std::string compile_flag_damage(std::string_view backend, std::string_view flag);

}  // namespace tessera
