// NVIDIA's driver, loaded with dlopen at the first use: our own declarations of the functions that
// we call, and its failures as sentences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::runtime::cuda {

// The driver's handles. A pointer to device memory is a 64-bit number.
using Result = int;
using Device = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using EventHandle = struct EventTag*;
using Pointer = std::uint64_t;

// The results that the code distinguishes.
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kUnsupportedPtx = 222;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kSystemDriverMismatch = 803;

enum DeviceAttribute : int {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
};
enum FunctionAttribute : int { kMaxDynamicSharedBytes = 8, kNonPortableCluster = 14 };
enum PointerAttribute : int {
  kMemoryType = 2,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kAccessFlags = 16,
};
inline constexpr int kMemoryOfHost = 1;

// Structs with the driver's layout.
struct LaunchAttribute {
  int id;
  alignas(8) unsigned value[16];
};
inline constexpr int kClusterDimension = 4;
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchAttribute) == 72);
static_assert(offsetof(LaunchConfig, stream) == 32 && offsetof(LaunchConfig, num_attributes) == 48);

// The functions, by the names that the driver exports.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  Result (*device_count)(int* count);
  Result (*device_get)(Device* device, int ordinal);
  Result (*device_name)(char* name, int size, Device device);
  Result (*device_total_memory)(std::size_t* bytes, Device device);
  Result (*device_attribute)(int* value, int attribute, Device device);
  Result (*context_retain)(Context* context, Device device);
  Result (*context_release)(Device device);
  Result (*context_state)(Device device, unsigned* flags, int* active);
  Result (*context_get_current)(Context* context);
  Result (*context_push)(Context context);
  Result (*context_pop)(Context* context);
  Result (*module_load)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_function)(Function* function, Module module, const char* name);
  Result (*module_global)(Pointer* address, std::size_t* bytes, Module module, const char* name);
  Result (*function_set)(Function function, int attribute, int value);
  Result (*function_get)(int* value, int attribute, Function function);
  Result (*launch)(const LaunchConfig* config, Function function, void** parameters, void** extra);
  Result (*blocks_per_unit)(int* blocks, Function function, int threads, std::size_t shared_bytes);
  Result (*max_clusters)(int* clusters, Function function, const LaunchConfig* config);
  Result (*encode_tiled)(void* map, int type, unsigned rank, void* base, const std::uint64_t* sizes,
                         const std::uint64_t* strides, const unsigned* box, const unsigned* steps,
                         int interleave, int swizzle, int l2_promotion, int fill);
  Result (*encode_im2col)(void* map, int type, unsigned rank, void* base,
                          const std::uint64_t* sizes, const std::uint64_t* strides, const int* low,
                          const int* high, unsigned channels, unsigned pixels,
                          const unsigned* steps, int interleave, int swizzle, int l2_promotion,
                          int fill);
  Result (*allocate)(Pointer* address, std::size_t bytes);
  Result (*free)(Pointer address);
  Result (*copy_to_device)(Pointer to, const void* from, std::size_t bytes, Stream stream);
  Result (*copy_to_host)(void* to, Pointer from, std::size_t bytes, Stream stream);
  Result (*fill)(Pointer to, unsigned char value, std::size_t bytes, Stream stream);
  Result (*pointer_attribute)(void* value, int attribute, Pointer pointer);
  Result (*stream_synchronize)(Stream stream);
  Result (*stream_is_capturing)(Stream stream, int* status);
  Result (*event_create)(EventHandle* event, unsigned flags);
  Result (*event_destroy)(EventHandle event);
  Result (*event_record)(EventHandle event, Stream stream);
  Result (*event_query)(EventHandle event);
  Result (*event_synchronize)(EventHandle event);
  Result (*event_elapsed)(float* milliseconds, EventHandle begin, EventHandle end);
  Result (*error_name)(Result result, const char** name);
  Result (*error_string)(Result result, const char** text);
};

// A loaded driver, initialised or not.
struct DriverLibrary {
  Driver functions{};
  void* handle = nullptr;
  std::string file;    // "libcuda.so.1", or what TESSERA_CUDA_DRIVER names
  std::string reason;  // why it cannot be used; empty when it can
};

// Loads the driver at the first call and never throws; does not initialise it.
const DriverLibrary& driver_library();

// The driver. The first call that succeeds initialises it (cuInit). Throws Error{unsupported} when
// that fails, and in a child that was forked after the initialisation.
const Driver& driver();
// Whether driver() has succeeded in this process; false in a forked child.
bool is_usable() noexcept;

// 13000 is CUDA 13.0: "13.0".
std::string version_text(int version);

// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
std::string describe(Result result);

// Whether this result means that the context is lost: every later call then returns the result too.
bool is_sticky(Result result);

// The code of the error for a result: out_of_memory; unsupported when the machine is at fault and
// not a kernel (the device is gone or busy); otherwise launch_failed.
ErrorCode code_of(Result result);

// Throws Error{code_of(result)} "<what>: <describe(result)>" unless the call succeeded.
void check(Result result, std::string_view what);

}  // namespace tessera::runtime::cuda
