#include "tessera/runtime/cuda_info.h"

#include <fmt/format.h>

#include "tessera/runtime/cuda_driver_internal.h"

namespace tessera::runtime {
namespace {

using namespace gpu;

CudaDevice device_info(const Driver& driver, const DeviceFacts& facts) {
  std::size_t bytes = 0;
  check(cuda_vendor(), driver.device_total_memory(&bytes, facts.device),
        fmt::format("cannot ask the driver about device {}", facts.ordinal));
  return {facts.name, facts.capability.major, facts.capability.minor, facts.units,
          static_cast<std::int64_t>(bytes)};
}

}  // namespace

CudaInfo cuda_info() {
  const DriverLibrary& library = cuda_vendor().library();
  CudaInfo info{.library = library.file, .cuda = {}, .unavailable = library.reason, .devices = {}};
  if (library.functions.driver_version != nullptr) {
    int version = 0;
    library.functions.driver_version(&version);
    info.cuda = version_text(version);
  }
  if (!library.reason.empty()) return info;
  try {
    for (const DeviceFacts& facts : list_devices(cuda_vendor())) {
      info.devices.push_back(device_info(library.functions, facts));
    }
  } catch (const Error& error) {
    info.unavailable = error.what();
  }
  return info;
}

}  // namespace tessera::runtime
