// A GPU's binary as a kernel. The file is read when the kernel is loaded, and given to a device at
// the first launch there.
#pragma once

#include <memory>

#include "tessera/runtime/gpu_device_internal.h"
#include "tessera/runtime/runtime.h"

namespace tessera::runtime::gpu {

// Touches no device. Throws Error{load_failed} naming the kernel for a file that is no such
// binary.
std::shared_ptr<const LoadedKernel> load_kernel(const Vendor& vendor, const jit::Artifact& artifact,
                                                const Architecture& architecture);

}  // namespace tessera::runtime::gpu
