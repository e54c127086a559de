// Stages: what the steps of a kernel's launch do, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
namespace tessera {

// One step of a launch.
struct Stage {
  std::string name;        // "check pages"
  std::string entry;       // the function that it runs: the kernel's name and a suffix
  std::int64_t parts = 1;  // into which it cuts the longest sums, which it then merges
};

// The stages of a legal kernel on a problem that it supports, in the order of their steps; none
// where there is nothing to compute.
std::vector<Stage> stages_of(const KernelSpec& spec, const Problem& problem, const Target& target);

}  // namespace tessera
#pragma GCC visibility pop
