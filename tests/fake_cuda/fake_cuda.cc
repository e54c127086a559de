// A library with the entry points of NVIDIA's driver and NVML that pretends to be a few GPUs. Their
// memory is the host's, a kernel is what the test gave it, and every call is checked like the
// driver checks it: a current context, memory of the right device, a known handle.
#include "fake_cuda.h"

#include "fake_gemm.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {
namespace {

using Result = int;
using Pointer = std::uint64_t;
constexpr int kMaxDevices = 8;

struct Context {
  int device;
  int holders = 0;
  Result lost = 0;
};
struct Module {
  Context* context;
  std::map<std::string, int*> abi;
};
struct Function {
  Context* context;
  std::string name;
  int max_shared_bytes = 0;
  int any_cluster = 0;
};
struct Block {
  std::size_t bytes;
  int device;
};
struct Event {
  double milliseconds = -1;
};
struct Config {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  struct Attribute {
    int id;
    alignas(8) unsigned value[16];
  } * attributes;
  unsigned num_attributes;
};

// Never returns from kernels whose name holds FAKE_CUDA_HANG_ON.
void run_gemm_or_hang(const LaunchRecord& record) {
  const char* which = std::getenv("FAKE_CUDA_HANG_ON");
  while (which != nullptr && std::strstr(record.kernel, which) != nullptr) pause();
  run_gemm(record);
}

// All of it, under one lock.
struct World {
  std::recursive_mutex mutex;
  Settings settings;
  Counters counters{};
  std::vector<LaunchRecord> records;
  std::map<int, Context*> contexts;  // by device
  std::vector<Context*> destroyed;
  std::map<Pointer, Block> memory;
  std::set<Module*> modules;
  std::set<Function*> functions;
  std::set<Event*> events;
  std::map<void*, Result> pending;  // by stream: what shows when it is waited for
  double now = 0;
  pid_t process = 0;  // that called cuInit
};

World& world() {
  static World* instance = [] {
    auto* made = new World;
#ifdef FAKE_CUDA_OLD
    made->settings.cuda_version = 11070;
#endif
    if (const char* text = std::getenv("FAKE_CUDA_DEVICES"))
      made->settings.devices = std::atoi(text);
    if (const char* text = std::getenv("FAKE_CUDA_MAJOR")) {
      std::fill_n(made->settings.major, kMaxDevices, std::atoi(text));
    }
    const char* kernel = std::getenv("FAKE_CUDA_KERNEL");
    const std::string wanted = kernel == nullptr ? "" : kernel;
    if (wanted == "gemm") made->settings.kernel = run_gemm;
    if (wanted == "wrong") made->settings.kernel = run_wrong_gemm;
    if (wanted == "hang") made->settings.kernel = run_gemm_or_hang;
    if (wanted == "crash") made->settings.async_result = 700;
    return made;
  }();
  return *instance;
}

thread_local std::vector<Context*> t_stack;

struct Locked {
  World& w = world();
  std::lock_guard<std::recursive_mutex> lock{w.mutex};
};

constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                 kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
                 kInvalidHandle = 400, kNotFound = 500;

bool is_sticky(Result result) { return result >= 700 && result <= 720 && result != 701; }

Result current(World& w, Context*& context) {
  if (w.process != getpid()) return kNotInitialized;
  if (t_stack.empty() || t_stack.back() == nullptr) return kInvalidContext;
  context = t_stack.back();
  return context->lost;
}

// Writes outside of device memory are what a real device would stop for.
const Block* block_of(World& w, Pointer pointer, std::size_t bytes) {
  auto after = w.memory.upper_bound(pointer);
  if (after == w.memory.begin()) return nullptr;
  --after;
  return pointer + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}

void destroy(World& w, Module* module) {
  for (const auto& [name, value] : module->abi) {
    w.memory.erase(reinterpret_cast<Pointer>(value));
    std::free(value);
  }
  delete module;
}

void destroy_unless_held(World& w, int device) {
  Context*& primary = w.contexts[device];
  if (primary == nullptr || primary->holders > 0 || w.settings.other_holder != 0) return;
  std::erase_if(w.modules, [&](Module* module) {
    if (module->context != primary) return false;
    destroy(w, module);
    return true;
  });
  std::erase_if(w.memory, [&](const auto& item) {
    if (item.second.device != device) return false;
    std::free(reinterpret_cast<void*>(item.first));
    return true;
  });
  w.destroyed.push_back(primary);  // not deleted: someone may still compare with it
  primary = nullptr;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

EXPORT Settings* fake_cuda_settings() { return &world().settings; }
EXPORT Counters* fake_cuda_counters() { return &world().counters; }
EXPORT const LaunchRecord* fake_cuda_record(int index) {
  return &world().records.at(static_cast<std::size_t>(index));
}
EXPORT void fake_cuda_reset() {
  const Locked l;
  l.w.settings = Settings{};
  l.w.counters = Counters{};
  l.w.records.clear();
  l.w.pending.clear();
}

EXPORT Result cuInit(unsigned) {
  const Locked l;
  ++l.w.counters.inits;
  if (l.w.settings.init_result != 0) return l.w.settings.init_result;
  if (l.w.settings.devices == 0) return kNoDevice;
  if (l.w.process != 0 && l.w.process != getpid()) return kNotInitialized;
  l.w.process = getpid();
  return 0;
}
EXPORT Result cuDriverGetVersion(int* version) {
  *version = world().settings.cuda_version;
  return 0;
}
EXPORT Result cuDeviceGetCount(int* count) {
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  *count = l.w.settings.devices;
  return 0;
}
EXPORT Result cuDeviceGet(int* device, int ordinal) {
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  if (ordinal < 0 || ordinal >= std::min(l.w.settings.devices, kMaxDevices)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
EXPORT Result cuDeviceGetName(char* name, int size, int device) {
  const std::string text = "Fake GPU " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(size));
  return 0;
}
EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = world().settings.memory_bytes;
  return 0;
}
EXPORT Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Locked l;
  switch (attribute) {
    case 16:
      *value = 132;
      return 0;
    case 38:
      *value = 1 << 20;
      return 0;
    case 75:
      *value = l.w.settings.major[device];
      return 0;
    case 76:
      *value = l.w.settings.minor[device];
      return 0;
    default:
      return kInvalidValue;
  }
}

EXPORT Result cuDevicePrimaryCtxRetain(Context** context, int device) {
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  Context*& primary = l.w.contexts[device];
  if (primary == nullptr) {
    primary = new Context{.device = device};
    ++l.w.counters.contexts;
  }
  ++primary->holders;
  *context = primary;
  return primary->lost;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int device) {
  const Locked l;
  Context*& primary = l.w.contexts[device];
  if (primary == nullptr) return kInvalidContext;
  ++l.w.counters.releases;
  --primary->holders;
  destroy_unless_held(l.w, device);
  return 0;
}
EXPORT Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  const Locked l;
  *flags = 0;
  destroy_unless_held(l.w, device);
  *active = l.w.contexts[device] != nullptr ? 1 : 0;
  return 0;
}
EXPORT Result cuCtxGetCurrent(Context** context) {
  if (world().process != getpid()) return kNotInitialized;
  *context = t_stack.empty() ? nullptr : t_stack.back();
  return 0;
}
EXPORT Result cuCtxPushCurrent_v2(Context* context) {
  const Locked l;
  if (context == nullptr) return kInvalidContext;
  ++l.w.counters.pushes;
  t_stack.push_back(context);
  return 0;
}
EXPORT Result cuCtxPopCurrent_v2(Context** context) {
  const Locked l;
  if (t_stack.empty()) return kInvalidContext;
  ++l.w.counters.pops;
  *context = t_stack.back();
  t_stack.pop_back();
  return 0;
}

EXPORT Result cuModuleLoadData(Module** module, const void* image) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (l.w.settings.load_result != 0) return l.w.settings.load_result;
  if (std::memcmp(image, "\177ELF", 4) != 0) return kInvalidImage;
  ++l.w.counters.modules;
  *module = new Module{.context = context, .abi = {}};
  l.w.modules.insert(*module);
  return 0;
}
EXPORT Result cuModuleUnload(Module* module) {
  const Locked l;
  if (l.w.modules.erase(module) == 0) return kInvalidHandle;
  ++l.w.counters.unloads;
  destroy(l.w, module);
  return 0;
}
EXPORT Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const Locked l;
  if (l.w.modules.count(module) == 0) return kInvalidHandle;
  if (l.w.settings.fail_symbol != 0) return kNotFound;
  *function = new Function{.context = module->context, .name = name};
  l.w.functions.insert(*function);
  return 0;
}
EXPORT Result cuModuleGetGlobal_v2(Pointer* address, std::size_t* bytes, Module* module,
                                   const char* name) {
  const Locked l;
  if (l.w.modules.count(module) == 0) return kInvalidHandle;
  if (l.w.settings.abi_version == 0) return kNotFound;
  int*& value = module->abi[name];
  if (value == nullptr) {
    value = static_cast<int*>(std::malloc(sizeof(int)));
    *value = l.w.settings.abi_version;
  }
  *address = reinterpret_cast<Pointer>(value);
  *bytes = sizeof(int);
  l.w.memory[*address] = {sizeof(int), module->context->device};
  return 0;
}
EXPORT Result cuFuncSetAttribute(Function* function, int attribute, int value) {
  const Locked l;
  if (l.w.functions.count(function) == 0) return kInvalidHandle;
  ++l.w.counters.function_sets;
  constexpr int kMostShared = 232448;
  if (attribute == 8 && value > kMostShared) return kInvalidValue;
  (attribute == 8 ? function->max_shared_bytes : function->any_cluster) = value;
  return 0;
}
EXPORT Result cuFuncGetAttribute(int* value, int, Function*) {
  *value = 0;
  return 0;
}

#ifndef FAKE_CUDA_OLD
EXPORT Result cuLaunchKernelEx(const Config* config, Function* function, void** parameters,
                               void**) {
  LaunchRecord record{};
  void (*kernel)(const LaunchRecord&) = nullptr;
  {
    const Locked l;
    Context* context = nullptr;
    if (const Result result = current(l.w, context); result != 0) return result;
    if (l.w.functions.count(function) == 0) return kInvalidHandle;
    if (function->context != context) return kInvalidContext;
    if (l.w.settings.launch_result != 0) {
      if (is_sticky(l.w.settings.launch_result)) context->lost = l.w.settings.launch_result;
      return l.w.settings.launch_result;
    }
    std::strncpy(record.kernel, function->name.c_str(), sizeof(record.kernel) - 1);
    record.device = context->device;
    record.stream = config->stream;
    std::copy_n(config->grid, 3, record.grid);
    std::copy_n(config->block, 3, record.block);
    std::fill_n(record.cluster, 3, 1U);
    for (unsigned i = 0; i < config->num_attributes; ++i) {
      if (config->attributes[i].id == 4)
        std::copy_n(config->attributes[i].value, 3, record.cluster);
    }
    record.shared_bytes = config->shared_bytes;
    record.max_shared_bytes = function->max_shared_bytes;
    record.any_cluster = function->any_cluster;
    std::memcpy(record.arguments, parameters[0], sizeof(record.arguments));
    const bool is_pack = function->name.ends_with("_pack");
    if (is_pack) record.second_parameter = *static_cast<void**>(parameters[1]);
    ++l.w.counters.launches;
    l.w.records.push_back(record);
    if (l.w.settings.async_result != 0) l.w.pending[config->stream] = l.w.settings.async_result;
    l.w.now += 1;
    // The kernel that follows reads the operands themselves.
    if (!function->name.ends_with("_prepare")) kernel = l.w.settings.kernel;
  }
  if (kernel != nullptr) kernel(record);
  return 0;
}
#endif
EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int,
                                                          std::size_t) {
  const Locked l;
  ++l.w.counters.occupancy_queries;
  *blocks = l.w.settings.blocks_per_unit;
  return 0;
}
EXPORT Result cuOccupancyMaxActiveClusters(int* clusters, Function*, const Config*) {
  const Locked l;
  ++l.w.counters.occupancy_queries;
  *clusters = l.w.settings.max_clusters;
  return 0;
}

#ifndef FAKE_CUDA_OLD
// The encoding is the arguments, one after the other, so that tests can read them.
EXPORT Result cuTensorMapEncodeTiled(std::uint64_t* map, int type, unsigned rank, void* base,
                                     const std::uint64_t* sizes, const std::uint64_t* strides,
                                     const unsigned* box, const unsigned* steps, int interleave,
                                     int swizzle, int promotion, int fill) {
  const Locked l;
  ++l.w.counters.encodes;
  if (l.w.settings.encode_result != 0) return l.w.settings.encode_result;
  if (reinterpret_cast<std::uintptr_t>(base) % 16 != 0 || rank != 3) return kInvalidValue;
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0) return kInvalidValue;
  if (strides[0] % 16 != 0 || strides[1] % 16 != 0) return kInvalidValue;
  const std::uint64_t words[16] = {reinterpret_cast<std::uint64_t>(base),
                                   static_cast<std::uint64_t>(type),
                                   sizes[0],
                                   sizes[1],
                                   sizes[2],
                                   strides[0],
                                   strides[1],
                                   box[0],
                                   box[1],
                                   box[2],
                                   steps[0] + steps[1] + steps[2],
                                   static_cast<std::uint64_t>(interleave),
                                   static_cast<std::uint64_t>(swizzle),
                                   static_cast<std::uint64_t>(promotion),
                                   static_cast<std::uint64_t>(fill),
                                   0};
  std::memcpy(map, words, sizeof(words));
  return 0;
}
#endif

EXPORT Result cuMemAlloc_v2(Pointer* address, std::size_t bytes) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  std::size_t used = 0;
  for (const auto& [pointer, block] : l.w.memory) used += block.bytes;
  if (bytes == 0) return kInvalidValue;
  if (bytes > l.w.settings.memory_bytes || used > l.w.settings.memory_bytes - bytes) {
    return kOutOfMemory;
  }
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(memory, 0xcd, bytes);
  *address = reinterpret_cast<Pointer>(memory);
  l.w.memory[*address] = {bytes, context->device};
  ++l.w.counters.allocations;
  l.w.counters.allocated_bytes += bytes;
  return 0;
}
EXPORT Result cuMemFree_v2(Pointer address) {
  const Locked l;
  if (l.w.memory.erase(address) == 0) return kInvalidValue;
  ++l.w.counters.frees;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
EXPORT Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, void*) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (block_of(l.w, to, bytes) == nullptr) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, void*) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (block_of(l.w, from, bytes) == nullptr) return kInvalidValue;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
EXPORT Result cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, void*) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (block_of(l.w, to, bytes) == nullptr) return kInvalidValue;
  ++l.w.counters.fills;
  l.w.now += 0.25;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
EXPORT Result cuPointerGetAttribute(void* value, int attribute, Pointer pointer) {
  const Locked l;
  ++l.w.counters.pointer_queries;
  const Block* block = block_of(l.w, pointer, 1);
  if (block == nullptr) return kInvalidValue;
  constexpr int kMemoryOfDevice = 2;
  *static_cast<int*>(value) = attribute == 2 ? kMemoryOfDevice : attribute == 9 ? block->device : 0;
  return 0;
}

EXPORT Result cuStreamSynchronize(void* stream) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  const auto found = l.w.pending.find(stream);
  if (found == l.w.pending.end()) return 0;
  const Result result = found->second;
  l.w.pending.erase(found);
  if (is_sticky(result)) context->lost = result;
  return result;
}
EXPORT Result cuStreamIsCapturing(void*, int* status) {
  *status = world().settings.capturing;
  return 0;
}
EXPORT Result cuEventCreate(Event** event, unsigned) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  *event = new Event;
  l.w.events.insert(*event);
  return 0;
}
EXPORT Result cuEventDestroy_v2(Event* event) {
  const Locked l;
  if (l.w.events.erase(event) == 0) return kInvalidHandle;
  delete event;
  return 0;
}
// Time passes by one millisecond a launch and a quarter of one a fill.
EXPORT Result cuEventRecord(Event* event, void*) {
  const Locked l;
  event->milliseconds = l.w.now;
  return 0;
}
EXPORT Result cuEventSynchronize(Event*) {
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  for (const auto& [stream, result] : l.w.pending) {
    if (is_sticky(result)) context->lost = result;
    return result;
  }
  return 0;
}
EXPORT Result cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds);
  return 0;
}

EXPORT Result cuGetErrorName(Result result, const char** name) {
  static const std::map<Result, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                      {100, "CUDA_ERROR_NO_DEVICE"},
                                                      {200, "CUDA_ERROR_INVALID_IMAGE"},
                                                      {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                                                      {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
  const auto found = names.find(result);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : 0;
}
EXPORT Result cuGetErrorString(Result, const char** text) {
  *text = "as the test wished";
  return 0;
}

// NVML: the same devices, asked without cuInit.
EXPORT int nvmlInit_v2() { return 0; }
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(world().settings.devices);
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return 0;
}
EXPORT int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  return cuDeviceGetName(name, static_cast<int>(size),
                         static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1);
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const std::uintptr_t index = reinterpret_cast<std::uintptr_t>(device) - 1;
  *major = world().settings.major[index];
  *minor = world().settings.minor[index];
  return 0;
}
