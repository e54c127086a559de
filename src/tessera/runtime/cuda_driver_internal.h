// What only NVIDIA's GPUs have: compute capabilities.
#pragma once

#include <string>

#include "tessera/runtime/gpu_driver_internal.h"

namespace tessera::runtime::gpu {

std::string to_string(Capability capability);  // "9.0"
bool runs_on(const Architecture& architecture, Capability capability);

// 13000 is CUDA 13.0: "13.0".
std::string version_text(int version);

}  // namespace tessera::runtime::gpu
