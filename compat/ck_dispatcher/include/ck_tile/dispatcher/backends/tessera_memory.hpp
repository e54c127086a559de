// Memory where kernels run: the host's for CPUs, the device's for GPUs, by AMD's HIP runtime or
// NVIDIA's driver, which are loaded when a GPU's memory is first asked for.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "ck_tile/dispatcher/backends/tessera_machine.hpp"

namespace ck_tile::dispatcher::backends {

enum class MemoryKind { Host, Hip, Cuda };

// The kind of a machine's memory; programs without a target use this machine's.
inline MemoryKind memory_kind(const Machine& machine) {
  const std::string backend = machine.backend();
  if (backend == "cpu") return MemoryKind::Host;
  return backend == "hip" ? MemoryKind::Hip : MemoryKind::Cuda;
}
inline MemoryKind memory_here() {
  static const MemoryKind kind = memory_kind(*machine_for());
  return kind;
}

// A GPU's library and its functions, all of which return 0 for success.
class DeviceLibrary {
 public:
  explicit DeviceLibrary(MemoryKind kind) : is_hip_(kind == MemoryKind::Hip) {
    const char* named = std::getenv(is_hip_ ? "TESSERA_HIP" : "TESSERA_CUDA_DRIVER");
    const char* usual = is_hip_ ? "libamdhip64.so" : "libcuda.so.1";
    const char* file = named != nullptr ? named : usual;
    library_ = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr) throw DispatcherError(std::string(file) + ": " + dlerror());
    if (is_hip_) return;
    call<unsigned>("cuInit", 0U);
    call<void**, int>("cuDevicePrimaryCtxRetain", &context_, 0);
    call<void*>("cuCtxPushCurrent_v2", context_);
  }
  void* allocate(std::size_t bytes) const {
    void* data = nullptr;
    call<void**, std::size_t>(is_hip_ ? "hipMalloc" : "cuMemAlloc_v2", &data, bytes);
    return data;
  }
  void release(void* data) const { call<void*>(is_hip_ ? "hipFree" : "cuMemFree_v2", data); }
  void to_device(void* device, const void* host, std::size_t bytes) const {
    copy(is_hip_ ? "hipMemcpyHtoDAsync" : "cuMemcpyHtoDAsync_v2", device, host, bytes);
  }
  void to_host(void* host, const void* device, std::size_t bytes) const {
    copy(is_hip_ ? "hipMemcpyDtoHAsync" : "cuMemcpyDtoHAsync_v2", host, device, bytes);
  }

 private:
  // On the default stream, behind what was launched there.
  void copy(const char* name, void* to, const void* from, std::size_t bytes) const {
    call<void*, const void*, std::size_t, void*>(name, to, from, bytes, nullptr);
    call<void*>(is_hip_ ? "hipStreamSynchronize" : "cuStreamSynchronize", nullptr);
  }
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    void* const symbol = dlsym(library_, name);
    if (symbol == nullptr) throw DispatcherError(std::string("there is no function ") + name);
    const int result = reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
    if (result != 0) {
      throw DispatcherError(std::string(name) + " failed with the number " +
                            std::to_string(result));
    }
  }

  bool is_hip_;
  void* library_ = nullptr;
  void* context_ = nullptr;
};

inline const DeviceLibrary& device_library(MemoryKind kind) {
  static const DeviceLibrary hip_or_cuda(kind);  // a process has the GPUs of one vendor
  return hip_or_cuda;
}

inline void* allocate(MemoryKind kind, std::size_t bytes) {
  if (kind != MemoryKind::Host) return device_library(kind).allocate(bytes);
  constexpr std::size_t kLine = 256;
  void* const data = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  if (data == nullptr) {
    throw DispatcherError("there is no memory for " + std::to_string(bytes) + " bytes");
  }
  return data;
}
inline void release(MemoryKind kind, void* data) {
  if (kind == MemoryKind::Host) return std::free(data);
  device_library(kind).release(data);
}
inline void copy_in(MemoryKind kind, void* there, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  if (kind == MemoryKind::Host) {
    std::memcpy(there, host, bytes);
  } else {
    device_library(kind).to_device(there, host, bytes);
  }
}
inline void copy_out(MemoryKind kind, void* host, const void* there, std::size_t bytes) {
  if (bytes == 0) return;
  if (kind == MemoryKind::Host) {
    std::memcpy(host, there, bytes);
  } else {
    device_library(kind).to_host(host, there, bytes);
  }
}

// Memory that gives itself back.
class Block {
 public:
  Block() = default;
  Block(MemoryKind kind, std::size_t bytes)
      : kind_(kind), bytes_(bytes), data_(bytes > 0 ? allocate(kind, bytes) : nullptr) {}
  ~Block() {
    if (data_ != nullptr) release(kind_, data_);
  }
  Block(Block&& other) noexcept
      : kind_(other.kind_),
        bytes_(std::exchange(other.bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(kind_, other.kind_), std::swap(bytes_, other.bytes_), std::swap(data_, other.data_);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void from_host(const void* host) { copy_in(kind_, data_, host, bytes_); }
  void to_host(void* host) const { copy_out(kind_, host, data_, bytes_); }

 private:
  MemoryKind kind_ = MemoryKind::Host;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace ck_tile::dispatcher::backends
