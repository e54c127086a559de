// How tests tell the fake driver (fake_cuda.cc) what to pretend, and see what it was asked. The
// library that pretends is another object than the test: it is reached through dlsym.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace fake_cuda {

// The ABI number of kernels whose binary says none.
inline constexpr int kAbi = 5;

// One launch as the driver was given it.
struct LaunchRecord {
  char kernel[160];
  int device;
  void* stream;
  unsigned grid[3];
  unsigned block[3];
  unsigned cluster[3];
  unsigned shared_bytes;
  int max_shared_bytes;  // that the function was allowed
  int any_cluster;
  unsigned char arguments[1024];  // of the first parameter
  unsigned char last_word[8];     // of 4096 bytes of it
  void* second_parameter;         // of pack kernels
};

// A tensor map as the fake driver encodes it.
struct EncodedMap {
  std::uint64_t base;
  std::uint32_t sizes[5];
  std::uint32_t strides[4];
  std::uint16_t box[5], steps[5];  // as many as the rank
  std::int8_t low[3], high[3];     // im2col
  std::uint16_t channels;
  std::uint32_t pixels;
  std::uint8_t rank, type, interleave, swizzle, promotion, fill;
};
static_assert(sizeof(EncodedMap) <= 128);

// What can be pretended. A failure is a result of the driver, 0 for none.
struct Settings {
  int devices = 1;
  int major[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  int minor[8] = {};
  int cuda_version = 13000;
  int init_result = 0;
  int load_result = 0;    // of cuModuleLoadData
  int launch_result = 0;  // of the next launches
  int async_result = 0;   // shows when the next launch is waited for, and from then on
  int encode_result = 0;
  char missing_entry[48] = {};  // modules lack the kernels whose names end so
  int fail_symbol = 0;          // modules lack the kernel
  int abi_version =
      0;  // what <name>_abi holds; 0: the binary's number; -1: there is no such symbol
  std::size_t memory_bytes = std::size_t{1} << 30;
  int blocks_per_unit = 2;
  int max_clusters = 60;
  int capturing = 0;                              // every stream is being captured
  int other_holder = 0;                           // someone else holds the primary contexts
  void* gone_stream = nullptr;                    // no longer a stream
  void* busy_stream = nullptr;                    // what is enqueued on it does not end
  void (*kernel)(const LaunchRecord&) = nullptr;  // run at each launch
  // The fault_call-th call since reset(), counted from 1, returns fault_result. It is the call of
  // any function, or of the named one. 0: none.
  int fault_call = 0;
  int fault_result = 999;
  int fault_lasts = 0;  // so do all calls after it
  char fault_name[48] = {};
};

// What happened since reset().
struct Counters {
  int inits_begun, inits, contexts, releases, modules, unloads, launches, encodes, allocations,
      frees, fills;
  int pointer_queries, function_sets, occupancy_queries, pushes, pops, event_records;
  std::size_t allocated_bytes;
  int calls;           // of the functions that a fault is wanted for
  char fault_hit[48];  // the function that failed
};

// What the driver holds for the process, of all contexts, and the contexts this thread has pushed.
struct Held {
  int modules, functions, blocks, events, pushed;
  bool operator==(const Held&) const = default;
};

// The library's own, by name.
class Control {
 public:
  explicit Control(const char* library) : handle_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  Settings& settings() const { return *get<Settings*()>("fake_cuda_settings")(); }
  const Counters& counters() const { return *get<Counters*()>("fake_cuda_counters")(); }
  // The launches since reset(), oldest first.
  LaunchRecord record(int index) const {
    return *get<const LaunchRecord*(int)>("fake_cuda_record")(index);
  }
  Held held() const { return get<Held()>("fake_cuda_held")(); }
  // What another part of the process may do: reset a device's primary context.
  void reset_context(int device) const { get<void(int)>("fake_cuda_reset_context")(device); }
  // The calls-th call from now returns the result.
  void arm(int calls, int result) const { get<void(int, int)>("fake_cuda_arm")(calls, result); }
  // Pops all contexts of this thread.
  void unwind() const { get<void()>("fake_cuda_unwind")(); }
  // Forgets launches, counts and settings; contexts and memory stay.
  void reset() const { get<void()>("fake_cuda_reset")(); }

 private:
  template <class Signature>
  Signature* get(const char* name) const {
    auto* function = reinterpret_cast<Signature*>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(name);
    return function;
  }
  void* handle_;
};

}  // namespace fake_cuda
