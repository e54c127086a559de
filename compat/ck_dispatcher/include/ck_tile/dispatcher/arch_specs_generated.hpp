// The limits of AMD's targets as the original's tables say them, and of Tessera's rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher::arch_specs {

enum class GpuArch : std::uint8_t {
  GFX_908,
  GFX_90A,
  GFX_942,
  GFX_950,
  GFX_1100,
  GFX_1200,
  GFX_1201,
  GFX_1250,
  UNKNOWN
};

namespace detail {
inline constexpr const char* kArchs[] = {"gfx908",  "gfx90a",  "gfx942",  "gfx950", "gfx1100",
                                         "gfx1200", "gfx1201", "gfx1250", "unknown"};
// Shared memory of a unit in KiB; an unknown target has the least that any has.
inline constexpr std::size_t kSharedKib[] = {64, 64, 64, 160, 64, 64, 64, 320, 64};
}  // namespace detail

inline std::string arch_to_string(GpuArch arch) {
  return dispatcher::detail::word_of(detail::kArchs, arch);
}
inline GpuArch string_to_arch(const std::string& word) {
  return dispatcher::detail::from_word(detail::kArchs, word, GpuArch::UNKNOWN);
}

// Bytes.
inline float element_size(DataType type) {
  constexpr float kBytes[] = {2, 2, 4, 8, 1, 1, 1, 0.5F, 4, 2, 4};
  return kBytes[static_cast<std::size_t>(type)];
}

using WarpConfig = std::array<int, 3>;

// Grids of waves, {m, n, k}; empty for a target whose grids nobody has said.
inline std::vector<WarpConfig> get_supported_warp_configs(GpuArch arch) {
  std::vector<WarpConfig> all = {{1, 4, 1}, {2, 2, 1}, {4, 1, 1}};
  if (arch >= GpuArch::GFX_1250) return {};
  if (arch >= GpuArch::GFX_1100) return {{2, 4, 1}, {1, 8, 1}, {8, 1, 1}, {4, 2, 1}};
  if (arch >= GpuArch::GFX_942) {
    for (const WarpConfig& more : {WarpConfig{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {2, 1, 2}}) {
      all.push_back(more);
    }
  }
  if (arch == GpuArch::GFX_950) all.push_back({8, 2, 1}), all.push_back({4, 4, 1});
  return all;
}

// Bytes of shared memory of a unit.
inline std::size_t get_lds_total_capacity(GpuArch arch) {
  return detail::kSharedKib[static_cast<std::size_t>(arch)] << 10;
}

// Pipelines with two buffers for A and B whatever the key says.
inline bool has_two_buffers(Pipeline pipeline) {
  switch (pipeline) {
    case Pipeline::CompV4:
    case Pipeline::CompV6:
    case Pipeline::PreShuffleV1:
    case Pipeline::PreShuffleV2:
      return true;
    default:
      return false;
  }
}

// Bytes that the tiles of A and B may take, once.
inline std::size_t get_lds_capacity(GpuArch arch, Pipeline pipeline, bool double_buffer = false) {
  const std::size_t total = get_lds_total_capacity(arch);
  return double_buffer || has_two_buffers(pipeline) ? total / 2 : total;
}
// Where no target is named: what every one of them has.
inline std::size_t get_lds_capacity(Pipeline pipeline) {
  return get_lds_capacity(GpuArch::UNKNOWN, pipeline);
}

inline bool is_trait_unsupported(Pipeline pipeline, Epilogue, Scheduler scheduler) {
  return scheduler == Scheduler::Interwave &&
         (pipeline == Pipeline::CompV3 || pipeline == Pipeline::CompV4);
}

}  // namespace ck_tile::dispatcher::arch_specs
