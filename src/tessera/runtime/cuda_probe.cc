#include "tessera/runtime/cuda_probe_internal.h"

#include <dlfcn.h>

#include <array>

#include "tessera/base/files.h"

namespace tessera::runtime::gpu {
namespace {

using NvmlResult = int;
using NvmlDevice = void*;

struct Nvml {
  NvmlResult (*init)();
  NvmlResult (*shutdown)();
  NvmlResult (*count)(unsigned* count);
  NvmlResult (*device)(unsigned index, NvmlDevice* device);
  NvmlResult (*name)(NvmlDevice device, char* name, unsigned size);
  NvmlResult (*capability)(NvmlDevice device, int* major, int* minor);
};

// When TESSERA_CUDA_DRIVER names another driver, that library answers for NVML too.
void* open_nvml() {
  if (!environment("TESSERA_CUDA_DRIVER").empty()) return cuda_vendor().library().handle;
  return dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
}

std::optional<Nvml> load_nvml() {
  void* const handle = open_nvml();
  if (handle == nullptr) return std::nullopt;
  Nvml nvml{};
  bool complete = true;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    complete = complete && function != nullptr;
  };
  load(nvml.init, "nvmlInit_v2");
  load(nvml.shutdown, "nvmlShutdown");
  load(nvml.count, "nvmlDeviceGetCount_v2");
  load(nvml.device, "nvmlDeviceGetHandleByIndex_v2");
  load(nvml.name, "nvmlDeviceGetName");
  load(nvml.capability, "nvmlDeviceGetCudaComputeCapability");
  return complete ? std::optional(nvml) : std::nullopt;
}

std::optional<std::vector<ProbedDevice>> ask(const Nvml& nvml) {
  unsigned count = 0;
  if (nvml.count(&count) != 0) return std::nullopt;
  std::vector<ProbedDevice> found;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    Capability capability;
    std::array<char, 128> name{};
    if (nvml.device(i, &device) != 0) continue;  // not visible from this container
    if (nvml.capability(device, &capability.major, &capability.minor) != 0) continue;
    if (nvml.name(device, name.data(), name.size() - 1) != 0) continue;
    found.push_back({name.data(), capability});
  }
  if (found.empty() && count > 0) return std::nullopt;  // then the driver is asked
  return found;
}

}  // namespace

std::optional<std::vector<ProbedDevice>> probe_devices() {
  static const std::optional<Nvml> nvml = load_nvml();
  if (!nvml || nvml->init() != 0) return std::nullopt;
  const auto found = ask(*nvml);
  nvml->shutdown();
  return found;
}

}  // namespace tessera::runtime::gpu
