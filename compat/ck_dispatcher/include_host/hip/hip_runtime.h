// The part of HIP's host interface that programs around a dispatcher call, for machines without
// ROCm: memory is where Tessera's kernels run, and a stream is always at its end. A compiler that
// finds ROCm's own header must not be given this folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_memory.hpp"

enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2 };
enum hipMemcpyKind {
  hipMemcpyHostToHost,
  hipMemcpyHostToDevice,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice,
  hipMemcpyDefault
};
using hipStream_t = struct ihipStream_t*;
using hipEvent_t = std::chrono::steady_clock::time_point*;

inline const char* hipGetErrorString(hipError_t error) {
  constexpr const char* kTexts[] = {"no error", "an argument is invalid", "there is no memory"};
  return kTexts[static_cast<std::size_t>(error)];
}
inline hipError_t hipGetLastError() { return hipSuccess; }

namespace ck_tile::dispatcher::host_hip {

template <class Work>
hipError_t guarded(hipError_t failure, const Work& work) {
  try {
    work();
    return hipSuccess;
  } catch (const std::exception&) {
    return failure;
  }
}

inline void copy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) {
  const backends::MemoryKind memory = backends::memory_here();
  if (kind == hipMemcpyHostToDevice) return backends::copy_in(memory, to, from, bytes);
  if (kind == hipMemcpyDeviceToHost) return backends::copy_out(memory, to, from, bytes);
  if (kind == hipMemcpyHostToHost || memory == backends::MemoryKind::Host) {
    return backends::copy_in(backends::MemoryKind::Host, to, from, bytes);
  }
  std::vector<char> between(bytes);
  backends::copy_out(memory, between.data(), from, bytes);
  backends::copy_in(memory, to, between.data(), bytes);
}

}  // namespace ck_tile::dispatcher::host_hip

template <class T>
hipError_t hipMalloc(T** data, std::size_t bytes) {
  namespace backends = ck_tile::dispatcher::backends;
  return ck_tile::dispatcher::host_hip::guarded(hipErrorOutOfMemory, [&] {
    *data = static_cast<T*>(backends::allocate(backends::memory_here(), bytes));
  });
}
inline hipError_t hipFree(void* data) {
  namespace backends = ck_tile::dispatcher::backends;
  if (data != nullptr) backends::release(backends::memory_here(), data);
  return hipSuccess;
}
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) {
  return ck_tile::dispatcher::host_hip::guarded(
      hipErrorInvalidValue, [&] { ck_tile::dispatcher::host_hip::copy(to, from, bytes, kind); });
}
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                                 hipStream_t = nullptr) {
  return hipMemcpy(to, from, bytes, kind);
}
inline hipError_t hipMemset(void* data, int value, std::size_t bytes) {
  const std::vector<char> filled(bytes, static_cast<char>(value));
  return hipMemcpy(data, filled.data(), bytes, hipMemcpyHostToDevice);
}
inline hipError_t hipMemsetAsync(void* data, int value, std::size_t bytes, hipStream_t = nullptr) {
  return hipMemset(data, value, bytes);
}

inline hipError_t hipSetDevice(int number) {
  return number == 0 ? hipSuccess : hipErrorInvalidValue;
}
inline hipError_t hipGetDeviceCount(int* count) { return *count = 1, hipSuccess; }
inline hipError_t hipDeviceSynchronize() { return hipSuccess; }
inline hipError_t hipStreamCreate(hipStream_t* stream) { return *stream = nullptr, hipSuccess; }
inline hipError_t hipStreamDestroy(hipStream_t) { return hipSuccess; }
inline hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }

inline hipError_t hipEventCreate(hipEvent_t* event) {
  return *event = new std::chrono::steady_clock::time_point(), hipSuccess;
}
inline hipError_t hipEventDestroy(hipEvent_t event) { return delete event, hipSuccess; }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t = nullptr) {
  return *event = std::chrono::steady_clock::now(), hipSuccess;
}
inline hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
inline hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  return *ms = std::chrono::duration<float, std::milli>(*stop - *start).count(), hipSuccess;
}
