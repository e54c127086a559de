// The code that CPU kernels share: explicit instantiations of templates in src/tessera/device/cpu/.
// Each is compiled once and linked into every kernel that needs it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::tile {

// result function<arguments>(parameters)
struct Instantiation {
  std::string result;
  std::string function;
  std::string arguments;
  std::string parameters;
};

struct CpuObject {
  std::string_view header;  // below src/tessera/device/cpu/
  std::vector<Instantiation> functions;
};

// Adds objects and their declarations to a kernel; each object once.
void add_objects(std::span<const CpuObject> objects, Source& source);

// The multiply-accumulate struct of src/tessera/device/cpu/words.h for words of `per_word`
// operands, or of tile_block.h for tiles with `per_word` of them in a row.
std::string_view math_type(DType operand, int per_word);

}  // namespace tessera::tile
