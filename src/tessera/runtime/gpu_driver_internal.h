// The drivers of GPUs, loaded with dlopen at the first use: our own declarations of the functions
// that we call, and their failures as sentences. The functions have the shapes of NVIDIA's driver;
// AMD's HIP, which was made after it, is brought into them by hip_driver.cc. What else differs
// between the two is in a Vendor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/spec/target.h"

namespace tessera::runtime::gpu {

// The driver's handles. A pointer to device memory is a 64-bit number.
using Result = int;
using Device = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using EventHandle = struct EventTag*;
using Pointer = std::uint64_t;

// The results that the code distinguishes. HIP's results have the same numbers.
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

// Structs with the layout of NVIDIA's driver.
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

struct Vendor;

// The functions. Those for tensor maps, clusters and attributes of functions are null where the
// vendor has none.
struct Driver {
  const Vendor* vendor;
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
  Result (*context_pop)(Context* context);  // takes the context that was current before
  Result (*module_load)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_function)(Function* function, Module module, const char* name);
  Result (*module_global)(Pointer* address, std::size_t* bytes, Module module, const char* name);
  Result (*function_set)(Function function, int attribute, int value);
  Result (*function_get)(int* value, int attribute, Function function);
  // `extra` for a vendor with arguments_in_buffer, `parameters` for others; the other one is null.
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
  std::string file;    // "libcuda.so.1", or what the vendor's variable names
  std::string reason;  // why it cannot be used; empty when it can
};

// A kind of GPU by its number (NVIDIA) or name (AMD), and whether a target's kernels run there.
struct Capability {
  int major = 0;
  int minor = 0;
};

// What a target's kernels are built for: "sm_90a" or "gfx942".
struct Architecture {
  std::string name;
  Capability capability;  // NVIDIA's
  bool exact = false;     // the name ends in "a": kernels run on this capability only
};

// The properties of a device that never change.
struct DeviceFacts {
  int ordinal = 0;
  Device device = 0;
  std::string name;
  Capability capability;     // NVIDIA's
  std::string architecture;  // AMD's: "gfx942:sramecc+:xnack-"
  std::string kind;          // "compute capability 9.0", "gfx942:sramecc+:xnack-"
  std::string brief;         // "9.0", "gfx942:sramecc+:xnack-"
  std::string note;          // " (...)": what keeps any kernel from running there; mostly empty
  int units = 0;
  std::size_t l2_bytes = 0;
  std::size_t memory_bytes = 0;  // of an AMD GPU
  std::string label() const;     // "device 0 (NVIDIA H200, compute capability 9.0)"
};

// How far a vendor's driver is in this process.
struct DriverState {
  std::atomic<bool> begun = false;  // whether initialising has begun; false again when it failed
  std::atomic<bool> initialised = false;
  std::atomic<bool> forked = false;  // whether this is a child that was forked after that
  std::mutex mutex;                  // held while the driver is initialised
};

// What differs between the makers of GPUs.
struct Vendor {
  int index;                    // into tables with a row for each
  std::string_view backend;     // Target::backend
  std::string_view api;         // "CUDA"
  std::string_view driver;      // "NVIDIA's driver"
  std::string_view gpu;         // "an NVIDIA GPU"
  std::string_view visibility;  // what tells which devices are visible
  std::string_view binary;      // "cubin"
  std::string_view stream_owner;
  std::string_view lost;                    // what to do when a device stays unusable
  bool arguments_in_buffer;                 // the driver takes a kernel's arguments as one buffer
  std::span<const Result> lost_results;     // after which a context is of no use
  std::span<const Result> machine_results;  // for which no kernel is to blame
  const DriverLibrary& (*library)();        // loads it at the first call and never throws
  std::string (*init_failure)(const DriverLibrary& library, Result result);
  std::string (*describe)(const Driver& driver, Result result);
  DeviceFacts (*facts)(const Driver& driver, int ordinal);
  // The devices as far as they are known without initialising the driver; unset: not at all. Null
  // where nothing but the driver knows them.
  std::optional<std::vector<DeviceFacts>> (*probe)();
  Architecture (*architecture_of)(const Target& target);    // throws Error{unsupported}
  std::string (*wanted)(const Architecture& architecture);  // "compute capability 9.0"
  // A clause that says why kernels for the architecture do not run on a device; empty: they do.
  std::string (*why_not)(const Architecture& architecture, const DeviceFacts& device);
  std::string (*words_of)(const Architecture& architecture);  // "sm_90a (compute capability 9.0)"
  // What is wrong with a kernel's file; empty when nothing is.
  std::string (*binary_damage)(const Architecture& architecture, std::string_view binary);
  // What to do when the driver does not take a binary.
  std::string (*load_hint)(const Driver& driver);
  // Whether the launch that has just failed had run: an emulator works at once. Null: never.
  bool (*has_run)();
  DriverState& (*state)();
};

const Vendor& cuda_vendor();
const Vendor& hip_vendor();

// The driver. The first call that succeeds initialises it. Throws Error{unsupported} when that
// fails, and in a child that was forked after the initialisation.
const Driver& driver(const Vendor& vendor);
// Whether driver() has succeeded in this process; false in a forked child.
bool is_usable(const Vendor& vendor) noexcept;

// The facts of all devices; initialises the driver and throws what driver() throws.
std::vector<DeviceFacts> list_devices(const Vendor& vendor);

// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
std::string describe(const Vendor& vendor, Result result);
// The same of a result's name and text, either of which may be null.
std::string describe(Result result, const char* name, const char* text);

// Whether this result means that the context is lost: every later call then returns the result too.
bool is_sticky(const Vendor& vendor, Result result);

// The code of the error for a result: out_of_memory; unsupported when the machine is at fault and
// not a kernel (the device is gone or busy); otherwise launch_failed.
ErrorCode code_of(const Vendor& vendor, Result result);

// Throws Error{code_of(result)} "<what>: <describe(result)>" unless the call succeeded.
void check(const Vendor& vendor, Result result, std::string_view what);

}  // namespace tessera::runtime::gpu
