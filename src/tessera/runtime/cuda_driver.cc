#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/text.h"
#include "tessera/runtime/cuda_driver_internal.h"

namespace tessera::runtime::cuda {
namespace {

constexpr const char* kDefaultDriver = "libcuda.so.1";

// Fills the table; returns the names that the library lacks.
std::vector<std::string> load_functions(void* handle, Driver& d) {
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

std::atomic<bool> g_begun = false;  // whether initialising has begun; false again when it failed
std::atomic<bool> g_initialised = false;
std::atomic<bool> g_forked = false;  // whether this is a child that was forked after that

void note_fork() {
  if (g_begun.load()) g_forked.store(true);
}

std::string init_failure(Result result) {
  const DriverLibrary& library = driver_library();
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
          library.file, describe(result));
    case kNotInitialized:
      return fmt::format(
          "NVIDIA's driver {} cannot be initialised: {}; a process forked after its parent used "
          "the driver cannot use it: start the child with exec, or fork earlier",
          library.file, describe(result));
    default:
      return fmt::format("NVIDIA's driver {} cannot be initialised: {}", library.file,
                         describe(result));
  }
}

}  // namespace

const DriverLibrary& driver_library() {
  static const Forever<DriverLibrary> library(open_driver());
  return *library;
}

const Driver& driver() {
  const DriverLibrary& library = driver_library();
  if (is_usable()) return library.functions;
  if (g_forked.load()) {
    throw Error(ErrorCode::unsupported,
                "this process was forked after its parent had used a GPU, and NVIDIA's driver does "
                "not work in such a child: fork before the first launch, or start the child with "
                "exec");
  }
  if (!library.reason.empty()) throw Error(ErrorCode::unsupported, library.reason);

  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at_fork_in_child(note_fork);
  g_begun.store(true);
  if (const Result result = library.functions.init(0); result != kSuccess) {
    g_begun.store(false);
    throw Error(ErrorCode::unsupported, init_failure(result));
  }
  g_initialised.store(true, std::memory_order_release);
  return library.functions;
}

bool is_usable() noexcept {
  return g_initialised.load(std::memory_order_acquire) && !g_forked.load(std::memory_order_relaxed);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string describe(Result result) {
  const Driver& d = driver_library().functions;
  const char* name = nullptr;
  const char* text = nullptr;
  if (d.error_name != nullptr) d.error_name(result, &name);
  if (d.error_string != nullptr) d.error_string(result, &text);
  if (name == nullptr) return fmt::format("the driver's error {}", result);
  return text == nullptr ? std::string(name) : fmt::format("{} ({})", name, text);
}

namespace {

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

bool is_one_of(Result result, std::span<const Result> results) {
  return std::find(results.begin(), results.end(), result) != results.end();
}

}  // namespace

bool is_sticky(Result result) { return is_one_of(result, kLost); }

ErrorCode code_of(Result result) {
  if (result == kOutOfMemory) return ErrorCode::out_of_memory;
  return is_one_of(result, kOfTheMachine) ? ErrorCode::unsupported : ErrorCode::launch_failed;
}

void check(Result result, std::string_view what) {
  if (result == kSuccess) return;
  throw Error(code_of(result), fmt::format("{}: {}", what, describe(result)));
}

}  // namespace tessera::runtime::cuda
