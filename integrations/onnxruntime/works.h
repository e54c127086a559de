// What Tessera does for a node: whether it takes it, and its launches for the shapes of a call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "node.h"

namespace tessera_ort {

// Where an operand lies: in an input of the node, or in its output (-1), so many bytes further on.
struct Place {
  std::string operand;
  int input = -1;
  int64_t offset = 0;
};

struct Launch {
  std::string line;  // the problem
  std::vector<Place> places;
};

struct Work {
  Shape out;
  std::vector<Launch> launches;  // none: the output is zeros, or has no elements
};

// Why the provider leaves a node to others; "" where it takes it.
std::string why_not(const Node& node);

// The launches of a node that it takes. Throws std::runtime_error for shapes that do not fit.
Work work_of(const Node& node, const std::vector<Shape>& inputs);

}  // namespace tessera_ort
