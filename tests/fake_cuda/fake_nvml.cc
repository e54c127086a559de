// NVML's entry points: the fake driver's devices, asked without cuInit. NVML numbers them in the
// other order when FAKE_NVML_REVERSED is set.
#include "world.h"

using namespace fake_cuda;

EXPORT Result cuDeviceGetName(char* name, int size, int device);

EXPORT int nvmlInit_v2() { return fault_at(__func__); }
EXPORT int nvmlShutdown() { return fault_at(__func__); }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (const Result fault = fault_at(__func__)) return fault;
  *count = static_cast<unsigned>(world().settings.devices);
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (const Result fault = fault_at(__func__)) return fault;
  const bool reversed = std::getenv("FAKE_NVML_REVERSED") != nullptr;
  const unsigned last = static_cast<unsigned>(world().settings.devices) - 1;
  *device = reinterpret_cast<void*>(std::uintptr_t{reversed ? last - index : index} + 1);
  return 0;
}
EXPORT int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  if (const Result fault = fault_at(__func__)) return fault;
  return cuDeviceGetName(name, static_cast<int>(size),
                         static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1);
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (const Result fault = fault_at(__func__)) return fault;
  const std::uintptr_t index = reinterpret_cast<std::uintptr_t>(device) - 1;
  *major = world().settings.major[index];
  *minor = world().settings.minor[index];
  return 0;
}
