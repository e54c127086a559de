// A problem as bytes, to hash and to compare.
#pragma once

#include <cstddef>

#include "tessera/spec/problem.h"

namespace tessera {

// No problem has more bytes.
inline constexpr std::size_t kMostProblemBytes = 2048;

// Writes the problem's fields, without what pads them, and returns how many bytes they are. Equal
// problems of one operation have equal bytes, and others have not. Allocates nothing.
std::size_t write_bytes(const Problem& problem, char* to);

}  // namespace tessera
