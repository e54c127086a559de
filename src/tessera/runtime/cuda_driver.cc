#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <vector>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/runtime/cuda_driver_internal.h"
#include "tessera/runtime/cuda_probe_internal.h"

namespace tessera::runtime::gpu {
namespace {

constexpr const char* kDefaultDriver = "libcuda.so.1";

// Fills the table; returns the names that the library lacks.
std::vector<std::string> load_functions(void* handle, Driver& d) {
  d.vendor = &cuda_vendor();
  std::vector<std::string> missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) missing.emplace_back(name);
  };
  load(d.init, "cuInit");
  load(d.driver_version, "cuDriverGetVersion");
  load(d.device_count, "cuDeviceGetCount");
  load(d.device_get, "cuDeviceGet");
  load(d.device_name, "cuDeviceGetName");
  load(d.device_total_memory, "cuDeviceTotalMem_v2");
  load(d.device_attribute, "cuDeviceGetAttribute");
  load(d.context_retain, "cuDevicePrimaryCtxRetain");
  load(d.context_release, "cuDevicePrimaryCtxRelease_v2");
  load(d.context_state, "cuDevicePrimaryCtxGetState");
  load(d.context_get_current, "cuCtxGetCurrent");
  load(d.context_push, "cuCtxPushCurrent_v2");
  load(d.context_pop, "cuCtxPopCurrent_v2");
  load(d.module_load, "cuModuleLoadData");
  load(d.module_unload, "cuModuleUnload");
  load(d.module_function, "cuModuleGetFunction");
  load(d.module_global, "cuModuleGetGlobal_v2");
  load(d.function_set, "cuFuncSetAttribute");
  load(d.function_get, "cuFuncGetAttribute");
  load(d.launch, "cuLaunchKernelEx");
  load(d.blocks_per_unit, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  load(d.max_clusters, "cuOccupancyMaxActiveClusters");
  load(d.encode_tiled, "cuTensorMapEncodeTiled");
  load(d.encode_im2col, "cuTensorMapEncodeIm2col");
  load(d.allocate, "cuMemAlloc_v2");
  load(d.free, "cuMemFree_v2");
  load(d.copy_to_device, "cuMemcpyHtoDAsync_v2");
  load(d.copy_to_host, "cuMemcpyDtoHAsync_v2");
  load(d.fill, "cuMemsetD8Async");
  load(d.pointer_attribute, "cuPointerGetAttribute");
  load(d.stream_synchronize, "cuStreamSynchronize");
  load(d.stream_is_capturing, "cuStreamIsCapturing");
  load(d.event_create, "cuEventCreate");
  load(d.event_destroy, "cuEventDestroy_v2");
  load(d.event_record, "cuEventRecord");
  load(d.event_query, "cuEventQuery");
  load(d.event_synchronize, "cuEventSynchronize");
  load(d.event_elapsed, "cuEventElapsedTime");
  load(d.error_name, "cuGetErrorName");
  load(d.error_string, "cuGetErrorString");
  return missing;
}

DriverLibrary open_driver() {
  DriverLibrary library;
  const std::string wanted = environment("TESSERA_CUDA_DRIVER");
  library.file = wanted.empty() ? kDefaultDriver : wanted;
  library.handle = dlopen(library.file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    const char* why = dlerror();
    library.reason = fmt::format(
        "NVIDIA's driver {} cannot be loaded{}: {}; install the NVIDIA driver (580 or later for "
        "CUDA 13), and in a container start it with the GPU made visible",
        library.file, wanted.empty() ? "" : ", which TESSERA_CUDA_DRIVER names",
        why != nullptr ? why : "the loader gave no reason");
    return library;
  }
  const std::vector<std::string> missing = load_functions(library.handle, library.functions);
  if (!missing.empty()) {
    int version = 0;
    if (library.functions.driver_version != nullptr) library.functions.driver_version(&version);
    library.reason = fmt::format(
        "NVIDIA's driver {} is too old: it supports CUDA {} and lacks {}, CUDA 12.0 or later is "
        "needed; update the driver",
        library.file, version_text(version), join(missing, ", "));
  }
  return library;
}

std::string cuda_init_failure(const DriverLibrary& library, Result result) {
  switch (result) {
    case kNoDevice:
      return fmt::format(
          "no CUDA device: the driver {} finds none; check that the GPU is visible (nvidia-smi, "
          "CUDA_VISIBLE_DEVICES)",
          library.file);
    case kSystemDriverMismatch:
      return fmt::format(
          "NVIDIA's driver {} does not fit the kernel module that is loaded: {}; reboot, or "
          "install one version of both",
          library.file, describe(cuda_vendor(), result));
    case kNotInitialized:
      return fmt::format(
          "NVIDIA's driver {} cannot be initialised: {}; a process forked after its parent used "
          "the driver cannot use it: start the child with exec, or fork earlier",
          library.file, describe(cuda_vendor(), result));
    default:
      return fmt::format("NVIDIA's driver {} cannot be initialised: {}", library.file,
                         describe(cuda_vendor(), result));
  }
}

const DriverLibrary& cuda_library() {
  static const Forever<DriverLibrary> library(open_driver());
  return *library;
}

std::string cuda_describe(const Driver& d, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (d.error_name != nullptr) d.error_name(result, &name);
  if (d.error_string != nullptr) d.error_string(result, &text);
  return describe(result, name, text);
}

DriverState& cuda_state() {
  static constinit DriverState state;
  return state;
}

// CUDA_ERROR_ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTAINED, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT,
// CONTEXT_IS_DESTROYED, ASSERT, HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS,
// INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED, TENSOR_MEMORY_LEAK, MPS_CLIENT_TERMINATED,
// EXTERNAL_DEVICE_ERROR.
constexpr std::array<Result, 16> kLost = {214, 220, 226, 700, 702, 709, 710, 714,
                                          715, 716, 717, 718, 719, 721, 810, 911};

// CUDA_ERROR_NOT_INITIALIZED, DEINITIALIZED, DEVICE_UNAVAILABLE, NO_DEVICE, INVALID_DEVICE,
// DEVICE_NOT_LICENSED, ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTEXT_IS_DESTROYED,
// SYSTEM_NOT_READY, SYSTEM_DRIVER_MISMATCH, MPS_CLIENT_TERMINATED.
constexpr std::array<Result, 12> kOfTheMachine = {3,   4,   46,  100, 101, 102,
                                                  214, 220, 709, 802, 803, 810};

DeviceFacts cuda_facts(const Driver& driver, int ordinal) {
  const std::string what = fmt::format("cannot ask the driver about device {}", ordinal);
  const auto check_call = [&](Result result) { check(cuda_vendor(), result, what); };
  DeviceFacts facts;
  facts.ordinal = ordinal;
  std::array<char, 128> name{};
  check_call(driver.device_get(&facts.device, ordinal));
  check_call(driver.device_name(name.data(), static_cast<int>(name.size()) - 1, facts.device));
  facts.name = name.data();
  const auto ask = [&](DeviceAttribute which) {
    int value = 0;
    check_call(driver.device_attribute(&value, which, facts.device));
    return value;
  };
  facts.capability = {ask(kCapabilityMajor), ask(kCapabilityMinor)};
  facts.brief = to_string(facts.capability);
  facts.kind = "compute capability " + facts.brief;
  facts.units = ask(kMultiprocessors);
  facts.l2_bytes = static_cast<std::size_t>(ask(kL2Bytes));
  return facts;
}

Architecture cuda_architecture_of(const Target& target) {
  for (const std::string& feature : target.features) {
    int number = 0;
    const char* const end = feature.data() + feature.size();
    if (!feature.starts_with("sm_")) continue;
    const auto [rest, error] = std::from_chars(feature.data() + 3, end, number);
    if (error != std::errc() || number < 10 || end - rest > 1 || (rest != end && *rest != 'a')) {
      continue;
    }
    return {feature, {number / 10, number % 10}, rest != end};
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("target '{}' must name its architecture among its features, as in "
                          "\"sm_90a\"",
                          target.name));
}

std::string cuda_words_of(const Architecture& architecture) {
  return fmt::format("{} (compute capability {})", architecture.name,
                     to_string(architecture.capability));
}

std::string cuda_why_not(const Architecture& architecture, const DeviceFacts& device) {
  return runs_on(architecture, device.capability) ? "" : "does not run";
}

std::string cubin_damage(const Architecture&, std::string_view binary) {
  return binary.starts_with("\177ELF") ? "" : "must be a cubin (an ELF file), but is not";
}

std::string cuda_load_hint(const Driver& driver) {
  int version = 0;
  driver.driver_version(&version);
  return fmt::format(
      "the driver supports CUDA {}: a cubin of a later CUDA needs a later driver, or "
      "build it with an earlier NVRTC (TESSERA_NVRTC)",
      version_text(version));
}

std::string cuda_wanted(const Architecture& architecture) {
  return "compute capability " + to_string(architecture.capability);
}

std::optional<std::vector<DeviceFacts>> cuda_probe() {
  const auto probed = probe_devices();
  if (!probed) return std::nullopt;
  std::vector<DeviceFacts> devices(probed->size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    devices[i].name = (*probed)[i].name;
    devices[i].capability = (*probed)[i].capability;
    devices[i].brief = to_string(devices[i].capability);
  }
  return devices;
}

constexpr Vendor kCuda = {
    .index = 0,
    .backend = "cuda",
    .api = "CUDA",
    .driver = "NVIDIA's driver",
    .gpu = "an NVIDIA GPU",
    .visibility = "nvidia-smi, CUDA_VISIBLE_DEVICES",
    .binary = "cubin",
    .stream_owner = "this device's primary context",
    .lost =
        "its context cannot be rebuilt, because another part of this process holds it too; "
        "restart the process",
    .arguments_in_buffer = false,
    .lost_results = kLost,
    .machine_results = kOfTheMachine,
    .library = cuda_library,
    .init_failure = cuda_init_failure,
    .describe = cuda_describe,
    .facts = cuda_facts,
    .probe = cuda_probe,
    .architecture_of = cuda_architecture_of,
    .wanted = cuda_wanted,
    .why_not = cuda_why_not,
    .words_of = cuda_words_of,
    .binary_damage = cubin_damage,
    .load_hint = cuda_load_hint,
    .has_run = nullptr,
    .state = cuda_state,
};

}  // namespace

const Vendor& cuda_vendor() { return kCuda; }

std::string to_string(Capability capability) {
  return fmt::format("{}.{}", capability.major, capability.minor);
}

bool runs_on(const Architecture& architecture, Capability capability) {
  const Capability& wanted = architecture.capability;
  if (wanted.major != capability.major) return false;
  return architecture.exact ? wanted.minor == capability.minor : wanted.minor <= capability.minor;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace tessera::runtime::gpu
