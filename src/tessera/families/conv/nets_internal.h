// Layers of published nets, as data/nets/convolutions.txt holds them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tessera/families/facts.h"

namespace tessera::conv {

// A net, and its layers as forward convolutions of one image. A transposed layer is the
// convolution whose gradient by x it computes.
struct Net {
  std::string_view name, domain;
  ProblemSide side{};
  std::vector<ConvProblem> layers;
};

// The nets of such a text. The names are parts of it.
std::vector<Net> read_nets(std::string_view text);

// All nets of the file, each with all of its layers.
std::span<const Net> nets();

// The nets that a side draws from, without layers that both sides have: these are learned.
std::span<const Net> nets_of(ProblemSide side);

}  // namespace tessera::conv
