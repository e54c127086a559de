// Which GPUs a machine has, asked without initialising the driver: a process may still fork.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/runtime/gpu_driver_internal.h"

namespace tessera::runtime::gpu {

struct ProbedDevice {
  std::string name;
  Capability capability;
};

// Asks NVML, NVIDIA's management library, which comes with the driver. Unset when NVML does not
// answer. NVML ignores CUDA_VISIBLE_DEVICES and may number devices in another order than the
// driver.
std::optional<std::vector<ProbedDevice>> probe_devices();

}  // namespace tessera::runtime::gpu
