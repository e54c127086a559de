// The limits of targets under the original's names, read from Tessera's rows.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tessera_ck/kernel_decl.hpp"

namespace tessera_ck::arch_specs {

enum class GpuArch { GFX90A, GFX942, GFX950, SM90A, UNKNOWN };

inline std::string arch_to_string(GpuArch arch) {
  constexpr std::array kNames = {"gfx90a", "gfx942", "gfx950", "sm90a", "unknown"};
  return kNames[static_cast<std::size_t>(arch)];
}
inline GpuArch string_to_arch(const std::string& name) {
  for (int i = 0; i < static_cast<int>(GpuArch::UNKNOWN); ++i) {
    if (arch_to_string(static_cast<GpuArch>(i)) == name) return static_cast<GpuArch>(i);
  }
  return GpuArch::UNKNOWN;
}

// Bytes.
inline float element_size(DataType type) {
  return static_cast<float>(tessera::size_of(tessera::parse_dtype(detail::word(type))));
}

// The grids of waves of GEMM kernels, {m, n, k}. Empty for an unknown target.
inline std::vector<std::array<int, 3>> get_supported_warp_configs(GpuArch arch) {
  std::vector<std::array<int, 3>> found;
  if (arch == GpuArch::UNKNOWN) return found;
  const auto& spaces = machine_for(arch_to_string(arch))->dispatcher->target().spaces;
  const auto space = spaces.find(tessera::Op::gemm);
  if (space == spaces.end()) return found;
  for (const tessera::Shape3& wave : space->second.waves) {
    found.push_back({wave.m, wave.n, wave.k});
  }
  return found;
}

// Bytes of shared memory of a block; 0 for an unknown target.
inline std::size_t get_lds_capacity(GpuArch arch) {
  if (arch == GpuArch::UNKNOWN) return 0;
  return static_cast<std::size_t>(
      machine_for(arch_to_string(arch))->dispatcher->target().shared_memory_bytes);
}

// interwave is for the pipeline mem alone, on every target.
inline bool is_trait_unsupported(Pipeline pipeline, Scheduler scheduler) {
  return scheduler == Scheduler::Interwave && pipeline != Pipeline::Mem;
}

}  // namespace tessera_ck::arch_specs
