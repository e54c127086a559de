// The shipped rows that list kernels of an operation.
#pragma once

#include <string>
#include <vector>

#include "tessera/targets/targets.h"

namespace tessera {

inline std::vector<std::string> targets_with(Op op) {
  std::vector<std::string> names;
  for (const std::string& name : target_names()) {
    if (load_target(name).spaces.contains(op)) names.push_back(name);
  }
  return names;
}

}  // namespace tessera
