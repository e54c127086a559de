// Instructions of the flash kernels that C++ cannot express.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// Without a branch: behind one the compiler no longer sees that the threads of a warp go the same
// way.
__device__ __forceinline__ void store_shared_if(u32 to, int x, bool stores) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.shared.s32 [%0], %1;\n}" ::"r"(to),
               "r"(x), "r"(static_cast<u32>(stores))
               : "memory");
}
__device__ __forceinline__ void barrier_arrive_if(u32 barrier, bool arrives) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
      "r"(static_cast<u32>(arrives))
      : "memory");
}

__device__ __forceinline__ void store_shared(u32 to, int x, int y, int z, int w) {
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
// Zeros where it does not load.
__device__ __forceinline__ void load_shared_if(u32 from, int (&x)[4], bool loads) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(x[0]), "=&r"(x[1]), "=&r"(x[2]), "=&r"(x[3])
      : "r"(from), "r"(static_cast<u32>(loads))
      : "memory");
}

__device__ __forceinline__ void load_words(u32 from, u32 (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_words(u32 to, const u32* x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}

__device__ __forceinline__ void store_word(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared_half(u32 to, u16 x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}
__device__ __forceinline__ void store_shared_byte(u32 to, u32 x) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void store_words(u32 to, u32 x, u32 y) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void load_floats(u32 from, float* x) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_floats(u32 to, const float* x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

// Adds two numbers to two others, rounded to nearest.
__device__ __forceinline__ u32 add_bf16(u32 x, u32 y) {
  u32 sum;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(x), "r"(y));
  return sum;
}

// Loads two floats that another block may have stored before a fence.
__device__ __forceinline__ void load_global(const void* from, float& x, float& y) {
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(from) : "memory");
}

// A number in device memory by which blocks hand on what they stored.
__device__ __forceinline__ u32 load_acquired(const u32* from) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
// These order nothing else: a fence between what they touch does.
__device__ __forceinline__ u32 load_relaxed(const u32* from) {
  u32 x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
__device__ __forceinline__ void store_relaxed(u32* to, u32 x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

}  // namespace tessera::device
