// Access to memory: buffers, whose ends the hardware checks, and LDS.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

// ---- buffers: past the end they read zeros ----

__device__ Chunk raw_buffer_load_16(Chunk buffer, int offset, int scalar,
                                    int flags) __asm("llvm.amdgcn.raw.buffer.load.v4i32");
__device__ u32 raw_buffer_load_4(Chunk buffer, int offset, int scalar,
                                 int flags) __asm("llvm.amdgcn.raw.buffer.load.i32");

inline constexpr int kNowhere = 0x7fffffff;           // an offset past the end of every buffer
inline constexpr int kMostRecords = 0x7fffffff - 63;  // bytes of a buffer at most

// The descriptor of `bytes` bytes from `base` on. Both must be the same in all lanes.
__device__ __forceinline__ Chunk make_buffer(u64 base, i64 bytes) {
  const u32 size = bytes < 0 ? 0 : bytes < kMostRecords ? static_cast<u32>(bytes) : kMostRecords;
  Chunk buffer;
  buffer.x = __builtin_amdgcn_readfirstlane(static_cast<u32>(base));
  buffer.y = __builtin_amdgcn_readfirstlane(static_cast<u32>(base >> 32) & 0xffffU);
  buffer.z = __builtin_amdgcn_readfirstlane(size);
  buffer.w = 0x00027000U;
  return buffer;
}

// ---- LDS ----

using Shared = __attribute__((address_space(3))) u8;

template <class T>
__device__ __forceinline__ T load_shared(const Shared* from) {
  return *reinterpret_cast<const __attribute__((address_space(3))) T*>(from);
}
template <class T>
__device__ __forceinline__ void store_shared(Shared* to, const T& value) {
  *reinterpret_cast<__attribute__((address_space(3))) T*>(to) = value;
}

// All waves of the workgroup have done their accesses to LDS. Loads into registers stay under way.
__device__ __forceinline__ void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The same for the lanes of one wave, which run together: only the compiler must keep the order.
__device__ __forceinline__ void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

}  // namespace tessera::device
