// Which fields of attention the peers know.
#pragma once

#include "tessera/tools.hpp"

namespace tessera::peers {

// Whether the problem asks for nothing that no peer was taught. A field that is new has its default
// here, so that a problem with a new feature has no peer until one computes it.
bool has_known_fields(const FmhaProblem& problem);

}  // namespace tessera::peers
