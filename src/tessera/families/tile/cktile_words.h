// Kernels in the words of CK Tile's dispatcher: the names and the fields of its data files.
#pragma once

#include <span>
#include <string_view>

#include "tessera/families/instances.h"

namespace tessera::tile {

// A part of a kernel's name, and the field that it stands for; without a key it says nothing.
struct CktileWord {
  std::string_view word, key, value;
};

// Adds to a row what its kernel's name says. `head` begins the name, `own` are the parts that only
// names of this operation have. A name without the head, or a row without a name, adds nothing.
// Throws Error{parse_error} for an unknown part, and where name and fields differ.
void read_cktile_name(ProblemWords& row, std::string_view head, std::span<const CktileWord> own);

// Takes a kernel's fields out of a row. Throws Error{parse_error} for one that is missing or
// unknown, and for a tile that does not divide over the waves.
InstanceRow take_cktile_kernel(ProblemWords& row);

}  // namespace tessera::tile
