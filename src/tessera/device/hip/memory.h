// Access to memory: buffers, whose ends the hardware checks, and LDS.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

// A number that is the same in all lanes, in scalar registers.
__device__ __forceinline__ u64 uniform(u64 x) {
  const u32 low = __builtin_amdgcn_readfirstlane(static_cast<u32>(x));
  return u64{static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<u32>(x >> 32)))} << 32 |
         low;
}

// Whether x, the same in all lanes, is not 0. The compiler can't decide it ahead, so that it stays
// a scalar branch.
__device__ __forceinline__ bool is_set(u32 x) {
  asm volatile("" : "+s"(x));
  return x != 0;
}

// Waits until at most `loads` of the wave's last loads are under way.
template <int kLoads>
__device__ __forceinline__ void wait_for_loads() {
#if defined(__GFX12__)
  asm volatile("s_wait_loadcnt %0" ::"n"(kLoads) : "memory");
#elif defined(__GFX11__)
  __builtin_amdgcn_s_waitcnt(kLoads << 10 | 0x03f7);
#else
  __builtin_amdgcn_s_waitcnt((kLoads & 15) | (kLoads >> 4) << 14 | 0x0f70);
#endif
}

// ---- plain memory ----

template <class T>
using Global = const __attribute__((address_space(1))) T*;

// ---- buffers: past the end they read zeros ----

__device__ Chunk raw_buffer_load_16(Chunk buffer, int offset, int scalar,
                                    int flags) __asm("llvm.amdgcn.raw.buffer.load.v4i32");
__device__ u32 raw_buffer_load_4(Chunk buffer, int offset, int scalar,
                                 int flags) __asm("llvm.amdgcn.raw.buffer.load.i32");

inline constexpr int kNowhere = 0x7fffffff;  // an offset past the end of every buffer
// The last word of a descriptor: elements of 32 bits, and on RDNA a range check by bytes.
#if defined(__GFX11__) || defined(__GFX12__)
inline constexpr u32 kBufferWord = 0x31004000U;
#else
inline constexpr u32 kBufferWord = 0x00027000U;
#endif
inline constexpr u32 kMostRecords = 0x7fffffff - 63;  // bytes of a buffer at most

// The descriptor of `bytes` bytes from `base` on. Both must be the same in all lanes.
__device__ __forceinline__ Chunk make_buffer(u64 base, i64 bytes) {
  // Compared in halves, because the scalar unit compares no 64 bits.
  const int high = static_cast<int>(bytes >> 32);
  const u32 low = static_cast<u32>(bytes);
  const u32 size = high < 0 ? 0 : high > 0 || low > kMostRecords ? kMostRecords : low;
  return Chunk{static_cast<u32>(base), static_cast<u32>(base >> 32) & 0xffffU, size, kBufferWord};
}

// ---- arguments ----

// The kernel's first parameter, whose loads the compiler can't move to before this call. It would
// otherwise load all of them when the kernel starts and run out of scalar registers.
template <class Arguments>
__device__ __forceinline__ const Arguments& fresh_arguments() {
  using Constant = const __attribute__((address_space(4))) Arguments;
  u64 from = (u64)__builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(from));
  return *(const Arguments*)(Constant*)from;
}
// The same number, of which the compiler can't compute anything ahead of this call.
__device__ __forceinline__ int not_ahead(int lane_value) {
  asm volatile("" : "+v"(lane_value));
  return lane_value;
}
// The thread's number in this way.
template <int kThreads>
__device__ __forceinline__ int fresh_thread() {
  const int thread = not_ahead(static_cast<int>(__builtin_amdgcn_workitem_id_x()));
  return static_cast<int>(static_cast<u32>(thread) % kThreads);
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

__device__ void raw_buffer_load_lds(Chunk buffer, Shared* to, int size, int offset, int scalar,
                                    int immediate,
                                    int flags) __asm("llvm.amdgcn.raw.buffer.load.lds");

// gfx950: each lane copies 16 bytes to LDS, lane l to 16 * l after `to`. It has happened when the
// load has been waited for.
__device__ __forceinline__ void copy_to_shared(Chunk buffer, Shared* to, int offset) {
  raw_buffer_load_lds(buffer, to, 16, offset, 0, 0, 0);
}

// All waves of the workgroup have done their accesses to LDS. Loads into registers stay under way.
__device__ __forceinline__ void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The same while copies to LDS may be under way. The compiler would make a fence wait for them all.
__device__ __forceinline__ void barrier_between_copies() {
  asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory");
}

// The same for the lanes of one wave, which run together: only the compiler must keep the order.
__device__ __forceinline__ void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

}  // namespace tessera::device
