// AMD's HIP runtime, libamdhip64, loaded with dlopen at the first use: our own declarations of the
// functions that we call. The numbers come from HIP 5.0 to 7.0, which agree in all but what is
// noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::runtime::hip {

// HIP's handles. A pointer to device memory is a 64-bit number.
using Result = int;
using Module = struct HipModuleTag*;
using Function = struct HipFunctionTag*;
using Stream = struct HipStreamTag*;
using EventHandle = struct HipEventTag*;
using Pointer = std::uint64_t;

// The results that the code distinguishes.
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kInvalidKernelFile = 218;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kLaunchFailure = 719;

// What the words of hipModuleLaunchKernel's last argument mean: {kArgumentBuffer, address,
// kArgumentBytes, address of a std::size_t, kArgumentsEnd}.
inline void* const kArgumentBuffer = reinterpret_cast<void*>(1);
inline void* const kArgumentBytes = reinterpret_cast<void*>(2);
inline void* const kArgumentsEnd = reinterpret_cast<void*>(3);

inline constexpr unsigned kEventWithoutTime = 2;  // hipEventDisableTiming

// Where a device's properties lie in the struct that hipGetDeviceProperties (HIP 5, and for old
// programs later) or hipGetDevicePropertiesR0600 (from HIP 6 on) fills.
struct PropertyLayout {
  std::size_t bytes;         // of the struct
  std::size_t name;          // char[256]
  std::size_t memory_bytes;  // std::size_t
  std::size_t units;         // int: compute units
  std::size_t l2_bytes;      // int
  std::size_t architecture;  // char[256]: "gfx942:sramecc+:xnack-"
};
inline constexpr PropertyLayout kProperties5 = {792, 0, 256, 336, 340, 396};
inline constexpr PropertyLayout kProperties6 = {1472, 0, 288, 388, 616, 1160};

// What hipPointerGetAttributes fills. The numbers of `type` differ: see kMemoryOfHost5 and 6.
struct PointerFacts {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned flags;
};
static_assert(sizeof(PointerFacts) == 32);
// HIP 5: host 0, device 1, array 2, unified 3, managed 4; kInvalidValue for memory that HIP does
// not know. HIP 6 and 7: unregistered 0, host 1, device 2, managed 3, array 10, unified 11.
inline constexpr int kMemoryOfHost5 = 0;
inline constexpr int kMemoryOfHost6 = 1;
inline constexpr int kUnregistered6 = 0;

// The functions, by the names that the library exports.
struct Functions {
  Result (*init)(unsigned flags);                                  // hipInit
  Result (*runtime_version)(int* version);                         // hipRuntimeGetVersion
  Result (*device_count)(int* count);                              // hipGetDeviceCount
  Result (*set_device)(int ordinal);                               // hipSetDevice
  Result (*get_device)(int* ordinal);                              // hipGetDevice
  Result (*properties6)(void* properties, int ordinal);            // hipGetDevicePropertiesR0600
  Result (*properties5)(void* properties, int ordinal);            // hipGetDeviceProperties
  Result (*module_load)(Module* module, const void* image);        // hipModuleLoadData
  Result (*module_unload)(Module module);                          // hipModuleUnload
  Result (*module_function)(Function*, Module, const char* name);  // hipModuleGetFunction
  Result (*module_global)(Pointer* address, std::size_t* bytes,    // hipModuleGetGlobal
                          Module module, const char* name);
  Result (*launch)(Function function, unsigned grid_x, unsigned grid_y,  // hipModuleLaunchKernel
                   unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared_bytes, Stream stream, void** parameters, void** extra);
  // hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
  Result (*blocks_per_unit)(int* blocks, Function function, int threads, std::size_t shared_bytes);
  Result (*allocate)(Pointer* address, std::size_t bytes);                   // hipMalloc
  Result (*free)(Pointer address);                                           // hipFree
  Result (*copy_to_device)(Pointer to, const void* from, std::size_t bytes,  // hipMemcpyHtoDAsync
                           Stream stream);
  Result (*copy_to_host)(void* to, Pointer from, std::size_t bytes,  // hipMemcpyDtoHAsync
                         Stream stream);
  Result (*fill)(Pointer to, unsigned char value, std::size_t bytes,  // hipMemsetD8Async
                 Stream stream);
  Result (*pointer_facts)(PointerFacts* facts, const void* pointer);  // hipPointerGetAttributes
  Result (*stream_synchronize)(Stream stream);                        // hipStreamSynchronize
  Result (*stream_is_capturing)(Stream stream, int* status);          // hipStreamIsCapturing
  Result (*event_create)(EventHandle* event, unsigned flags);         // hipEventCreateWithFlags
  Result (*event_destroy)(EventHandle event);                         // hipEventDestroy
  Result (*event_record)(EventHandle event, Stream stream);           // hipEventRecord
  Result (*event_query)(EventHandle event);                           // hipEventQuery
  Result (*event_synchronize)(EventHandle event);                     // hipEventSynchronize
  Result (*event_elapsed)(float* milliseconds, EventHandle begin,     // hipEventElapsedTime
                          EventHandle end);
  const char* (*error_name)(Result result);    // hipGetErrorName
  const char* (*error_string)(Result result);  // hipGetErrorString
  Result (*last_error)();                      // hipGetLastError

  // What an emulated HIP exports besides; null in AMD's. The sentence of the last finding on this
  // process's device, empty when there was none; and a JSON text of totals.
  const char* (*emulator_finding)();  // tessera_emulator_finding
  const char* (*emulator_report)();   // tessera_emulator_report
  // Makes the device one of this target; false for one that the emulator does not know.
  int (*emulator_select)(const char* target);  // tessera_emulator_select
  // A code object's facts and listings as JSON; empty, with a finding, when it cannot be read.
  const char* (*emulator_describe)(const void* bytes,  // tessera_emulator_describe
                                   std::size_t count);
};

// Names the library to load, and the target that it emulates, before the first use of HIP. What the
// process uses already, when that is something else; empty otherwise.
std::string choose_library(const std::string& file, const std::string& emulated_target);
// The functions of the library, which is loaded at the first call.
const Functions& loaded_functions();

// 50221153 is HIP 5.2.21153: "5.2.21153".
std::string version_text(int version);

}  // namespace tessera::runtime::hip
