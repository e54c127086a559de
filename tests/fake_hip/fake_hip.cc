// A library with the entry points of AMD's HIP runtime that pretends to be a few GPUs. Their memory
// is the host's, a kernel is what the test gave it, and calls are checked like HIP checks them. As
// built it is HIP 6; with FAKE_HIP_5 it is HIP 5, and with FAKE_HIP_OLD one that lacks functions.
#include "fake_hip.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace fake_hip;

namespace {

using Result = int;
constexpr int kMaxDevices = 8;
constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                 kInvalidDevice = 101, kInvalidImage = 200, kInvalidHandle = 400, kNotFound = 500,
                 kNotReady = 600;

struct Module {
  int device;
  std::map<std::string, int*> abi;
};
struct Function {
  Module* module;
  std::string name;
};
struct Event {
  int device;
  void* stream = nullptr;
  double milliseconds = -1;
};
struct Block {
  std::size_t bytes;
  int device;
  bool of_host;
};

struct World {
  std::recursive_mutex mutex;
  Settings settings;
  Counters counters{};
  std::vector<LaunchRecord> records;
  std::map<std::uintptr_t, Block> memory;
  std::set<Module*> modules;
  std::set<Function*> functions;
  std::set<Event*> events;
  std::map<void*, Result> pending;  // by stream: what shows when it is waited for
  Result lost = 0;
  double now = 0;
  pid_t process = 0;  // that used it first
};

World& world() {
  static World* const instance = [] {
    auto* made = new World;
    const auto read = [](const char* name, int& value) {
      if (const char* text = std::getenv(name)) value = std::atoi(text);
    };
    read("FAKE_HIP_DEVICES", made->settings.devices);
    read("FAKE_HIP_FAULT_CALL", made->settings.fault_call);
    if (const char* text = std::getenv("FAKE_HIP_ARCHITECTURE")) {
      for (auto& architecture : made->settings.architecture) {
        std::strncpy(architecture, text, sizeof(architecture) - 1);
      }
    }
    return made;
  }();
  return *instance;
}

struct Locked {
  World& w = world();
  std::lock_guard<std::recursive_mutex> lock{w.mutex};
};

thread_local int t_device = 0;
thread_local Result t_last = 0;

// What HIP remembers for hipGetLastError.
Result said(Result result) {
  if (result != 0) t_last = result;
  return result;
}

// A failure that is due at this call, and what every call fails with.
Result fault_at(const char* function) {
  const Locked l;
  const int call = ++l.w.counters.calls;
  if (l.w.settings.fault_call == 0 || call != l.w.settings.fault_call) return 0;
  std::strncpy(l.w.counters.fault_hit, function, sizeof(l.w.counters.fault_hit) - 1);
  return said(l.w.settings.fault_result);
}

// HIP works in the process that used it first, and in none of its forked children.
Result usable(World& w) {
  if (w.process == 0) w.process = getpid();
  return said(w.process == getpid() ? w.lost : kNotInitialized);
}

bool is_device(const World& w, int ordinal) {
  return ordinal >= 0 && ordinal < std::min(w.settings.devices, kMaxDevices);
}

const Block* block_of(const World& w, const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = w.memory.upper_bound(address);
  if (after == w.memory.begin()) return nullptr;
  --after;
  return address + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}

// The parts of the structs that programs read here; the rest is left as it was.
struct Properties5 {
  char name[256];
  std::size_t memory_bytes;
  char between1[72];
  int units;
  int l2_bytes;
  char between2[52];
  char architecture[256];
  char rest[140];
};
static_assert(sizeof(Properties5) == 792 && offsetof(Properties5, architecture) == 396);
static_assert(offsetof(Properties5, units) == 336);
struct Properties6 {
  char name[256];
  char between1[32];
  std::size_t memory_bytes;
  char between2[92];
  int units;
  char between3[224];
  int l2_bytes;
  char between4[540];
  char architecture[256];
  char rest[56];
};
static_assert(sizeof(Properties6) == 1472 && offsetof(Properties6, architecture) == 1160);
static_assert(offsetof(Properties6, units) == 388 && offsetof(Properties6, l2_bytes) == 616);

template <class Properties>
Result fill_properties(void* to, int ordinal) {
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (!is_device(l.w, ordinal)) return said(kInvalidDevice);
  auto* const properties = static_cast<Properties*>(to);
  std::memset(properties, 0x5a, sizeof(*properties));
  std::strcpy(properties->name, ("Fake Instinct " + std::to_string(ordinal)).c_str());
  std::strcpy(properties->architecture, l.w.settings.architecture[ordinal]);
  properties->memory_bytes = l.w.settings.memory_bytes;
  properties->units = 304;
  properties->l2_bytes = 4 << 20;
  return 0;
}

void destroy(World& w, Module* module) {
  std::erase_if(w.functions, [&](Function* function) {
    const std::unique_ptr<Function> owner(function->module == module ? function : nullptr);
    return owner != nullptr;
  });
  for (const auto& [name, value] : module->abi) {
    w.memory.erase(reinterpret_cast<std::uintptr_t>(value));
    std::free(value);
  }
  delete module;
}

}  // namespace

#define FAULT_HERE \
  if (const Result fault = fault_at(__func__)) return fault

EXPORT Settings* fake_hip_settings() { return &world().settings; }
EXPORT Counters* fake_hip_counters() { return &world().counters; }
EXPORT const LaunchRecord* fake_hip_record(int index) {
  return &world().records.at(static_cast<std::size_t>(index));
}
EXPORT Held fake_hip_held() {
  const Locked l;
  return {static_cast<int>(l.w.modules.size()), static_cast<int>(l.w.functions.size()),
          static_cast<int>(l.w.memory.size()), static_cast<int>(l.w.events.size())};
}
EXPORT void fake_hip_pin(void* memory, std::size_t bytes) {
  const Locked l;
  l.w.memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, 0, true};
}
EXPORT void fake_hip_reset() {
  const Locked l;
  l.w.settings = Settings{};
  l.w.counters = Counters{};
  l.w.records.clear();
  l.w.pending.clear();
  l.w.lost = 0;
  t_last = 0;
}
EXPORT const char* tessera_emulator_finding() { return world().settings.finding; }

EXPORT Result hipInit(unsigned) {
  FAULT_HERE;
  const Locked l;
  ++l.w.counters.inits;
  if (l.w.settings.init_result != 0) return said(l.w.settings.init_result);
  if (l.w.settings.devices == 0) return said(kNoDevice);
  return usable(l.w);
}
EXPORT Result hipRuntimeGetVersion(int* version) {
  FAULT_HERE;
#if defined(FAKE_HIP_OLD)
  *version = 40421401;
#elif defined(FAKE_HIP_5)
  *version = 50221153;
#else
  *version = 60241134;
#endif
  return 0;
}
EXPORT Result hipGetDeviceCount(int* count) {
  FAULT_HERE;
  const Locked l;
  *count = l.w.settings.devices;
  return usable(l.w);
}
EXPORT Result hipSetDevice(int ordinal) {
  FAULT_HERE;
  const Locked l;
  if (!is_device(l.w, ordinal)) return said(kInvalidDevice);
  ++l.w.counters.set_devices;
  t_device = ordinal;
  return 0;
}
EXPORT Result hipGetDevice(int* ordinal) {
  FAULT_HERE;
  *ordinal = t_device;
  return 0;
}
EXPORT Result hipGetDeviceProperties(void* properties, int ordinal) {
  FAULT_HERE;
  return fill_properties<Properties5>(properties, ordinal);
}
#ifndef FAKE_HIP_5
EXPORT Result hipGetDevicePropertiesR0600(void* properties, int ordinal) {
  FAULT_HERE;
  return fill_properties<Properties6>(properties, ordinal);
}
#endif

EXPORT Result hipModuleLoadData(Module** module, const void* image) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (l.w.settings.load_result != 0) return said(l.w.settings.load_result);
  if (std::memcmp(image, "\177ELF", 4) != 0) return said(kInvalidImage);
  ++l.w.counters.modules;
  *module = new Module{.device = t_device, .abi = {}};
  l.w.modules.insert(*module);
  return 0;
}
EXPORT Result hipModuleUnload(Module* module) {
  FAULT_HERE;
  const Locked l;
  if (l.w.modules.erase(module) == 0) return said(kInvalidHandle);
  ++l.w.counters.unloads;
  destroy(l.w, module);
  return 0;
}
EXPORT Result hipModuleGetFunction(Function** function, Module* module, const char* name) {
  FAULT_HERE;
  const Locked l;
  if (l.w.modules.count(module) == 0) return said(kInvalidHandle);
  if (l.w.settings.fail_symbol != 0) return said(kNotFound);
  *function = new Function{.module = module, .name = name};
  l.w.functions.insert(*function);
  return 0;
}
EXPORT Result hipModuleGetGlobal(void** address, std::size_t* bytes, Module* module,
                                 const char* name) {
  FAULT_HERE;
  const Locked l;
  if (l.w.modules.count(module) == 0) return said(kInvalidHandle);
  if (l.w.settings.abi_version < 0) return said(kNotFound);
  int*& value = module->abi[name];
  if (value == nullptr) value = static_cast<int*>(std::malloc(sizeof(int)));
  *value = l.w.settings.abi_version;
  *address = value;
  *bytes = sizeof(int);
  l.w.memory[reinterpret_cast<std::uintptr_t>(value)] = {sizeof(int), module->device, false};
  return 0;
}

// The arguments come as {1, address, 2, address of their size, 3}.
EXPORT Result hipModuleLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y,
                                    unsigned grid_z, unsigned block_x, unsigned block_y,
                                    unsigned block_z, unsigned shared_bytes, void* stream,
                                    void** parameters, void** extra) {
  FAULT_HERE;
  LaunchRecord record{};
  void (*kernel)(const LaunchRecord&) = nullptr;
  {
    const Locked l;
    if (const Result result = usable(l.w)) return result;
    if (l.w.functions.count(function) == 0) return said(kInvalidHandle);
    if (function->module->device != t_device) return said(kInvalidHandle);
    if (l.w.settings.launch_result != 0) return said(l.w.settings.launch_result);
    const auto word = [&](int i) { return reinterpret_cast<std::uintptr_t>(extra[i]); };
    if (parameters != nullptr || extra == nullptr || word(0) != 1 || word(2) != 2 || word(4) != 3) {
      return said(kInvalidValue);
    }
    constexpr Result kInvalidConfiguration = 9;
    if (std::uint64_t{grid_x} * block_x > UINT32_MAX) return said(kInvalidConfiguration);
    std::strncpy(record.kernel, function->name.c_str(), sizeof(record.kernel) - 1);
    record.device = t_device;
    record.stream = stream;
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    std::copy_n(grid, 3, record.grid);
    std::copy_n(block, 3, record.block);
    record.shared_bytes = shared_bytes;
    record.bytes = *static_cast<std::size_t*>(extra[3]);
    std::memcpy(record.arguments, extra[1], std::min(record.bytes, sizeof(record.arguments)));
    ++l.w.counters.launches;
    l.w.records.push_back(record);
    if (l.w.settings.async_result != 0) l.w.pending[stream] = l.w.settings.async_result;
    l.w.now += 1;
    kernel = l.w.settings.kernel;
  }
  if (kernel != nullptr) kernel(record);
  return 0;
}
EXPORT Result hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int,
                                                                 std::size_t) {
  FAULT_HERE;
  const Locked l;
  ++l.w.counters.occupancy_queries;
  *blocks = l.w.settings.blocks_per_unit;
  return 0;
}

EXPORT Result hipMalloc(void** address, std::size_t bytes) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  std::size_t used = 0;
  for (const auto& [pointer, block] : l.w.memory) used += block.bytes;
  if (bytes > l.w.settings.memory_bytes || used > l.w.settings.memory_bytes - bytes) {
    return said(kOutOfMemory);
  }
  *address = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*address, 0xcd, bytes);
  l.w.memory[reinterpret_cast<std::uintptr_t>(*address)] = {bytes, t_device, false};
  ++l.w.counters.allocations;
  return 0;
}
EXPORT Result hipFree(void* address) {
  FAULT_HERE;
  const Locked l;
  if (l.w.memory.erase(reinterpret_cast<std::uintptr_t>(address)) == 0) return said(kInvalidValue);
  ++l.w.counters.frees;
  std::free(address);
  return 0;
}
EXPORT Result hipMemcpyHtoDAsync(void* to, const void* from, std::size_t bytes, void*) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (block_of(l.w, to, bytes) == nullptr) return said(kInvalidValue);
  std::memcpy(to, from, bytes);
  return 0;
}
EXPORT Result hipMemcpyDtoHAsync(void* to, const void* from, std::size_t bytes, void*) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (block_of(l.w, from, bytes) == nullptr) return said(kInvalidValue);
  std::memcpy(to, from, bytes);
  return 0;
}
EXPORT Result hipMemsetD8Async(void* to, unsigned char value, std::size_t bytes, void*) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (block_of(l.w, to, bytes) == nullptr) return said(kInvalidValue);
  ++l.w.counters.fills;
  l.w.now += 0.25;
  std::memset(to, value, bytes);
  return 0;
}

struct PointerFacts {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned flags;
};
EXPORT Result hipPointerGetAttributes(PointerFacts* facts, const void* pointer) {
  FAULT_HERE;
  const Locked l;
  ++l.w.counters.pointer_queries;
  *facts = {};
  const Block* const block = block_of(l.w, pointer, 1);
#ifdef FAKE_HIP_5
  constexpr int kHost = 0, kDevice = 1;
  if (block == nullptr) return said(kInvalidValue);
#else
  constexpr int kHost = 1, kDevice = 2;
  if (block == nullptr) {
    facts->device = -2;
    return 0;
  }
#endif
  facts->type = block->of_host ? kHost : kDevice;
  facts->device = block->device;
  return 0;
}

EXPORT Result hipStreamSynchronize(void* stream) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  const auto found = l.w.pending.find(stream);
  if (found == l.w.pending.end()) return 0;
  const Result result = found->second;
  l.w.pending.erase(found);
  if (l.w.settings.async_lasts != 0) l.w.lost = result;
  return said(result);
}
#ifndef FAKE_HIP_OLD
EXPORT Result hipStreamIsCapturing(void*, int* status) {
  FAULT_HERE;
  *status = world().settings.capturing;
  return 0;
}
#endif
EXPORT Result hipEventCreateWithFlags(Event** event, unsigned) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  *event = new Event{.device = t_device};
  l.w.events.insert(*event);
  return 0;
}
EXPORT Result hipEventDestroy(Event* event) {
  FAULT_HERE;
  const Locked l;
  if (l.w.events.erase(event) == 0) return said(kInvalidHandle);
  delete event;
  return 0;
}
// Time passes by one millisecond a launch and a quarter of one a fill.
EXPORT Result hipEventRecord(Event* event, void* stream) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (l.w.events.count(event) == 0 || event->device != t_device) return said(kInvalidHandle);
  event->milliseconds = l.w.now;
  event->stream = stream;
  ++l.w.counters.event_records;
  return 0;
}
EXPORT Result hipEventQuery(Event* event) {
  FAULT_HERE;
  const Locked l;
  if (l.w.events.count(event) == 0) return said(kInvalidHandle);
  const bool is_busy = event->stream != nullptr && event->stream == l.w.settings.busy_stream;
  return said(is_busy && event->milliseconds >= 0 ? kNotReady : 0);
}
EXPORT Result hipEventSynchronize(Event* event) {
  FAULT_HERE;
  const Locked l;
  if (const Result result = usable(l.w)) return result;
  if (l.w.events.count(event) == 0) return said(kInvalidHandle);
  for (const auto& [stream, result] : l.w.pending) return said(result);
  return 0;
}
EXPORT Result hipEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  FAULT_HERE;
  const Locked l;
  if (l.w.events.count(begin) == 0 || l.w.events.count(end) == 0) return said(kInvalidHandle);
  *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds);
  return 0;
}

EXPORT const char* hipGetErrorName(Result result) {
  static const std::map<Result, const char*> names = {
      {1, "hipErrorInvalidValue"},     {2, "hipErrorOutOfMemory"},
      {3, "hipErrorNotInitialized"},   {100, "hipErrorNoDevice"},
      {101, "hipErrorInvalidDevice"},  {200, "hipErrorInvalidImage"},
      {209, "hipErrorNoBinaryForGpu"}, {400, "hipErrorInvalidHandle"},
      {500, "hipErrorNotFound"},       {700, "hipErrorIllegalAddress"},
      {719, "hipErrorLaunchFailure"},  {999, "hipErrorUnknown"}};
  const auto found = names.find(result);
  return found == names.end() ? nullptr : found->second;
}
EXPORT const char* hipGetErrorString(Result) { return "as the test wished"; }
EXPORT Result hipGetLastError() { return std::exchange(t_last, 0); }
