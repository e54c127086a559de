// The part of HIP's interface that CK Tile's headers need when only device code is compiled. It
// stands for ROCm's header in tests; nothing of it runs on the host.
#pragma once
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
// Without these attributes clang plans for 1024 threads and spills; its own launch_bounds has no
// effect on AMD.
#define MINI_PICK(A, B, NAME, ...) NAME
#define MINI_BOUNDS_1(T) __attribute__((amdgpu_flat_work_group_size(1, T)))
#define MINI_BOUNDS_2(T, W) \
  __attribute__((amdgpu_flat_work_group_size(1, T), amdgpu_waves_per_eu(W)))
#define __launch_bounds__(...) MINI_PICK(__VA_ARGS__, MINI_BOUNDS_2, MINI_BOUNDS_1)(__VA_ARGS__)
#define HIP_VERSION_MAJOR 7
#define HIP_VERSION_MINOR 0
#define HIP_VERSION_PATCH 0
#define HIP_VERSION 70000000

struct dim3 {
  std::uint32_t x, y, z;
  __host__ __device__ constexpr dim3(std::uint32_t x_ = 1, std::uint32_t y_ = 1,
                                     std::uint32_t z_ = 1)
      : x(x_), y(y_), z(z_) {}
};
#define MINI_VECTORS(T, NAME)                                                            \
  struct alignas(2 * sizeof(T)) NAME##2 {                                                \
    T x, y;                                                                              \
  };                                                                                     \
  struct NAME##3 {                                                                       \
    T x, y, z;                                                                           \
  };                                                                                     \
  struct alignas(4 * sizeof(T)) NAME##4 {                                                \
    T x, y, z, w;                                                                        \
  };                                                                                     \
  __host__ __device__ inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }         \
  __host__ __device__ inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; } \
  __host__ __device__ inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
MINI_VECTORS(int, int)
MINI_VECTORS(unsigned, uint)
MINI_VECTORS(float, float)

// Indices and sizes are read where they are converted to a number.
namespace mini_hip {
__device__ __forceinline__ const std::uint32_t* sizes() {
  return (const std::uint32_t*)__builtin_amdgcn_implicitarg_ptr();
}
#define MINI_FIELD(NAME, VALUE)                                                 \
  struct NAME##Field {                                                          \
    __device__ __forceinline__ operator std::uint32_t() const { return VALUE; } \
  } NAME;
struct Thread {
  MINI_FIELD(x, __builtin_amdgcn_workitem_id_x())
  MINI_FIELD(y, __builtin_amdgcn_workitem_id_y())
  MINI_FIELD(z, __builtin_amdgcn_workitem_id_z())
};
struct Block {
  MINI_FIELD(x, __builtin_amdgcn_workgroup_id_x())
  MINI_FIELD(y, __builtin_amdgcn_workgroup_id_y())
  MINI_FIELD(z, __builtin_amdgcn_workgroup_id_z())
};
struct Grid {
  MINI_FIELD(x, sizes()[0])
  MINI_FIELD(y, sizes()[1])
  MINI_FIELD(z, sizes()[2])
};
struct BlockSize {
  MINI_FIELD(x, sizes()[3] & 0xffff)
  MINI_FIELD(y, sizes()[3] >> 16)
};
}  // namespace mini_hip
static __device__ constexpr mini_hip::Thread threadIdx{};
static __device__ constexpr mini_hip::Block blockIdx{};
static __device__ constexpr mini_hip::Grid gridDim{};
static __device__ constexpr mini_hip::BlockSize blockDim{};

#define MINI_DEVICE __device__ __forceinline__
MINI_DEVICE unsigned __lane_id() {
  return __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
}
MINI_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
extern "C" {
MINI_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
MINI_DEVICE float __expf(float x) { return __builtin_exp2f(x * 1.44269504F); }
MINI_DEVICE float __logf(float x) { return __builtin_log2f(x) * 0.69314718F; }
MINI_DEVICE unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
// Copies sizes that the compiler knows: it replaces such calls by moves.
MINI_DEVICE void* memcpy(void* to, const void* from, std::size_t bytes) {
  return __builtin_memcpy(to, from, bytes);
}
__device__ int printf(const char*, ...);
// The host's library declares these for the host only. Those without a body are never called.
#define MINI_MATH(NAME)            \
  __device__ float NAME##f(float); \
  __device__ double NAME(double)
MINI_MATH(acos);
MINI_MATH(acosh);
MINI_MATH(asin);
MINI_MATH(asinh);
MINI_MATH(atan);
MINI_MATH(atanh);
MINI_MATH(cos);
MINI_MATH(cosh);
MINI_MATH(expm1);
MINI_MATH(sin);
MINI_MATH(sinh);
MINI_MATH(tan);
MINI_MATH(tanh);
#define MINI_BUILTIN(NAME)                                              \
  MINI_DEVICE float NAME##f(float x) { return __builtin_##NAME##f(x); } \
  MINI_DEVICE double NAME(double x) { return __builtin_##NAME(x); }     \
  static_assert(true)
MINI_BUILTIN(ceil);
MINI_BUILTIN(floor);
MINI_BUILTIN(exp2);
MINI_BUILTIN(exp);
MINI_BUILTIN(log);
MINI_BUILTIN(log2);
MINI_BUILTIN(sqrt);
MINI_BUILTIN(fabs);
MINI_BUILTIN(rint);
MINI_BUILTIN(trunc);
__device__ float powf(float, float);
__device__ double pow(double, double);
__device__ float rsqrtf(float);
__device__ double rsqrt(double);
MINI_DEVICE int abs(int x) { return x < 0 ? -x : x; }
MINI_DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
MINI_DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ float __ocml_exp_f32(float);
__device__ _Float16 __ocml_log_f16(_Float16);
__device__ _Float16 __ocml_exp_f16(_Float16);
__device__ _Float16 __ocml_floor_f16(_Float16);
__device__ _Float16 __ocml_ceil_f16(_Float16);
__device__ _Float16 __ocml_sin_f16(_Float16);
}
MINI_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
MINI_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
MINI_DEVICE int max(int a, int b) { return a > b ? a : b; }
MINI_DEVICE int min(int a, int b) { return a < b ? a : b; }
MINI_DEVICE bool isnan(float x) { return x != x; }
MINI_DEVICE bool isnan(double x) { return x != x; }
MINI_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
template <class T, class V>
MINI_DEVICE T atomicAdd(T* p, V v) {
  return __hip_atomic_fetch_add(p, static_cast<T>(v), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
MINI_DEVICE T atomicCAS(T* p, T expected, T v) {
  __hip_atomic_compare_exchange_strong(p, &expected, v, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}
namespace std {
using ::acosf, ::acoshf, ::asinf, ::asinhf, ::atanf, ::atanhf, ::ceilf, ::cosf, ::coshf, ::exp2f;
using ::expf, ::expm1f, ::floorf, ::logf, ::powf, ::sinf, ::sinhf, ::tanf, ::tanhf;
}  // namespace std

// What the host's side of CK Tile names.
typedef int hipError_t;
typedef int hipDevice_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
struct hipDeviceProp_t {
  int major, minor, multiProcessorCount, warpSize;
  char gcnArchName[256];
};
inline constexpr hipError_t hipSuccess = 0;
enum hipMemcpyKind {
  hipMemcpyHostToHost,
  hipMemcpyHostToDevice,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice
};
hipError_t hipEventCreate(hipEvent_t*);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventElapsedTime(float*, hipEvent_t, hipEvent_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipDeviceSynchronize();
template <class T>
hipError_t hipMalloc(T**, std::size_t);
hipError_t hipFree(void*);
hipError_t hipMemcpy(void*, const void*, std::size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync(void*, const void*, std::size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemset(void*, int, std::size_t);
hipError_t hipMemsetAsync(void*, int, std::size_t, hipStream_t);
hipError_t hipMemset2DAsync(void*, std::size_t, int, std::size_t, std::size_t, hipStream_t);
hipError_t hipGetDevice(int*);
hipError_t hipGetDeviceProperties(hipDeviceProp_t*, int);
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
const char* hipGetErrorString(hipError_t);
const char* hipGetErrorName(hipError_t);
hipError_t hipExtStreamGetCUMask(hipStream_t, std::uint32_t, std::uint32_t*);
template <class F>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int*, F, int, std::size_t);
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, std::size_t = 0, hipStream_t = nullptr);
extern "C" hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, std::size_t, hipStream_t);
