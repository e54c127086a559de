// Shared by the rankers, choose() and explain().
#pragma once

#include <string>
#include <vector>

#include "tessera/select/select.h"

namespace tessera {

// Times that differ by less than this share are equal: the last bit of a sum never decides.
inline constexpr double kNearTie = 1e-6;

// "812 ns", "41.2 us", "3.05 ms", "1.20 s".
std::string format_seconds(double seconds);

// Best first; predictions that differ by less than one part in a million count as equal and keep
// the order of their indices, which is the order of their names.
void sort_best_first(std::vector<Ranked>& ranked);

}  // namespace tessera
