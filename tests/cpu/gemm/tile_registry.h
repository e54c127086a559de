// A registry of kernels for this machine's targets and for one with tiles of AMX, which are
// emulated where the machine has none.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cpu/gemm/tile_emulator.h"
#include "cpu/kernel_folder.h"

namespace tessera::tile_registry {

inline const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list = testing_support::targets_here();
    if (host_target().name == "avx512") list.push_back(tile_emulator::target(host_target()));
    return list;
  }();
  return all;
}

inline const Target& target_named(const std::string& name) {
  return *std::find_if(targets().begin(), targets().end(),
                       [&](const Target& target) { return target.name == name; });
}

// One for the process; the folder outlives it. Tiles are emulated in this process alone, so that no
// worker loads kernels first.
inline Registry& registry() {
  static Registry& instance = []() -> Registry& {
    jit::BuildOptions options;
    options.cache.folder = std::filesystem::current_path() / "tile_test_kernels";
    static Registry made("tile_test", options);
    for (const Target& target : targets()) made.add_target(target);
    return made;
  }();
  return instance;
}

}  // namespace tessera::tile_registry
