// What tests of a family's CPU kernels share: the targets of this machine, and kernels that a
// second run need not compile.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::testing_support {

inline std::vector<Target> targets_here() {
  std::vector<Target> targets;
  for (const char* name : {"avx512", "avx2", "generic"}) {
    Target row = name == host_target().name ? host_target() : load_target(name);
    if (runtime::backend_for(row).unavailable_reason(row).empty()) targets.push_back(row);
  }
  return targets;
}

// One for the process; the folder <name>_kernels of the working directory outlives it.
inline Registry& registry_in(const std::string& name) {
  static Registry& instance = [&]() -> Registry& {
    jit::BuildOptions options;
    options.cache.folder = std::filesystem::current_path() / (name + "_kernels");
    options.worker = TESSERA_WORKER;
    static Registry made(name, options);
    for (const Target& target : targets_here()) made.add_target(target);
    return made;
  }();
  return instance;
}

}  // namespace tessera::testing_support
