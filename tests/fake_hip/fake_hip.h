// How tests tell the fake HIP runtime (fake_hip.cc) what to pretend, and see what it was asked. The
// library that pretends is another object than the test: it is reached through dlsym.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace fake_hip {

// The ABI number of every kernel, unless Settings say otherwise.
inline constexpr int kAbi = 5;

// One launch as the runtime was given it.
struct LaunchRecord {
  char kernel[160];
  int device;
  void* stream;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  std::size_t bytes;  // of the arguments
  unsigned char arguments[4096];
};

// What can be pretended. A failure is a result of HIP, 0 for none.
struct Settings {
  int devices = 1;
  char architecture[8][64] = {"gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack-"};
  int init_result = 0;
  int load_result = 0;     // of hipModuleLoadData
  int launch_result = 0;   // of the next launches
  int async_result = 0;    // shows when the next launch is waited for
  int async_lasts = 0;     // so do all later calls
  int fail_symbol = 0;     // modules lack the kernel
  int abi_version = kAbi;  // what <name>_abi holds; -1: there is no such symbol
  std::size_t memory_bytes = std::size_t{1} << 30;
  int blocks_per_unit = 2;
  int capturing = 0;                              // every stream is being captured
  void* busy_stream = nullptr;                    // what is enqueued on it does not end
  char finding[200] = {};                         // an emulator's
  void (*kernel)(const LaunchRecord&) = nullptr;  // run at each launch
  // The fault_call-th call since reset(), counted from 1, returns fault_result. 0: none.
  int fault_call = 0;
  int fault_result = 999;
};

// What happened since reset().
struct Counters {
  int inits, modules, unloads, launches, allocations, frees, fills, pointer_queries,
      occupancy_queries, event_records, set_devices;
  int calls;           // that a fault may hit
  char fault_hit[64];  // the function that failed
};

// What the runtime holds for the process.
struct Held {
  int modules, functions, blocks, events;
  bool operator==(const Held&) const = default;
};

// The library's own, by name.
class Control {
 public:
  explicit Control(const char* library) : handle_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  Settings& settings() const { return *get<Settings*()>("fake_hip_settings")(); }
  const Counters& counters() const { return *get<Counters*()>("fake_hip_counters")(); }
  // The launches since reset(), oldest first.
  LaunchRecord record(int index) const {
    return *get<const LaunchRecord*(int)>("fake_hip_record")(index);
  }
  Held held() const { return get<Held()>("fake_hip_held")(); }
  // The calling thread's device and last failure, as HIP tells them.
  int device() const {
    int ordinal = -1;
    get<int(int*)>("hipGetDevice")(&ordinal);
    return ordinal;
  }
  void set_device(int ordinal) const { get<int(int)>("hipSetDevice")(ordinal); }
  int last_error() const { return get<int()>("hipGetLastError")(); }
  // Memory of the host that HIP knows.
  void pin(void* memory, std::size_t bytes) const {
    get<void(void*, std::size_t)>("fake_hip_pin")(memory, bytes);
  }
  // Forgets launches, counts, settings and failures; memory stays.
  void reset() const { get<void()>("fake_hip_reset")(); }

 private:
  template <class Signature>
  Signature* get(const char* name) const {
    auto* function = reinterpret_cast<Signature*>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(name);
    return function;
  }
  void* handle_;
};

}  // namespace fake_hip
