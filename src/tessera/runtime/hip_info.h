// Facts about AMD's HIP runtime and GPUs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::runtime {

struct HipDevice {
  std::string name;
  std::string architecture;  // "gfx942:sramecc+:xnack-"
  int units = 0;
  std::int64_t memory_bytes = 0;
};

struct HipInfo {
  std::string library;      // the runtime's file
  std::string version;      // "6.2.41134"
  std::string unavailable;  // a sentence when nothing can run; empty otherwise
  std::vector<HipDevice> devices;
};

// Initialises HIP, so a process that forks later cannot use it in the child.
HipInfo hip_info();

// The row of these names whose kernels run on a device of this architecture: the row of its first
// word. Throws Error{unsupported}, which names the nearest relative, when there is no such row.
std::string row_for(std::string_view architecture, std::span<const std::string> rows);

}  // namespace tessera::runtime
