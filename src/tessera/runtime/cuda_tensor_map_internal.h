// Tensor maps: windows on device memory in the form that the copy engine takes.
#pragma once

#include <string>

#include "tessera/families/launch.h"
#include "tessera/runtime/gpu_device_internal.h"

namespace tessera::runtime::gpu {

inline constexpr std::size_t kTensorMapBytes = 128;

// Writes the driver's encoding of the window, which begins at `base`, to `to`, an address that is a
// multiple of 64. Each thread remembers its last few maps. Throws Error{launch_failed} naming the
// kernel and the window when the driver refuses.
void encode(Gpu& gpu, const TensorMap& map, const void* base, const std::string& kernel, void* to);

}  // namespace tessera::runtime::gpu
