// A library with the entry points of NVIDIA's driver and NVML that pretends to be a few GPUs. Their
// memory is the host's, a kernel is what the test gave it, and every call is checked like the
// driver checks it: a current context, memory of the right device, a known handle.
#include "tensor_maps.h"
#include "world.h"

using namespace fake_cuda;

EXPORT Settings* fake_cuda_settings() { return &world().settings; }
EXPORT Counters* fake_cuda_counters() { return &world().counters; }
EXPORT const LaunchRecord* fake_cuda_record(int index) {
  return &world().records.at(static_cast<std::size_t>(index));
}
EXPORT Held fake_cuda_held() {
  const Locked l;
  return {static_cast<int>(l.w.modules.size()), static_cast<int>(l.w.functions.size()),
          static_cast<int>(l.w.memory.size()), static_cast<int>(l.w.events.size()), t_stack.size};
}
// Lets time pass on the device, as other libraries' kernels do.
EXPORT void fake_cuda_pass(double milliseconds) {
  const Locked l;
  l.w.now += milliseconds;
}
// As cuDevicePrimaryCtxReset, called by another part of the process.
EXPORT void fake_cuda_reset_context(int device) {
  const Locked l;
  if (l.w.contexts[device] != nullptr) destroy_context(l.w, device);
}
// The call after so many more returns the result, however many threads call.
EXPORT void fake_cuda_arm(int calls, Result result) {
  const Locked l;
  l.w.settings.fault_result = result;
  l.w.settings.fault_call = l.w.counters.calls + calls;
}
EXPORT void fake_cuda_unwind() { t_stack.size = 0; }
EXPORT void fake_cuda_reset() {
  const Locked l;
  l.w.settings = Settings{};
  l.w.counters = Counters{};
  l.w.records.clear();
  l.w.pending.clear();
}

EXPORT Result cuInit(unsigned) {
  ++Locked().w.counters.inits_begun;
  if (const char* text = std::getenv("FAKE_CUDA_INIT_MS")) {
    usleep(static_cast<unsigned>(1000 * std::atoi(text)));
  }
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  ++l.w.counters.inits;
  if (l.w.settings.init_result != 0) return l.w.settings.init_result;
  if (l.w.settings.devices == 0) return kNoDevice;
  if (l.w.process != 0 && l.w.process != getpid()) return kNotInitialized;
  l.w.process = getpid();
  return 0;
}
EXPORT Result cuDriverGetVersion(int* version) {
  if (const Result fault = fault_at(__func__)) return fault;
  *version = world().settings.cuda_version;
  return 0;
}
EXPORT Result cuDeviceGetCount(int* count) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  *count = l.w.settings.devices;
  return 0;
}
EXPORT Result cuDeviceGet(int* device, int ordinal) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  if (ordinal < 0 || ordinal >= std::min(l.w.settings.devices, kMaxDevices)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
EXPORT Result cuDeviceGetName(char* name, int size, int device) {
  if (const Result fault = fault_at(__func__)) return fault;
  const std::string text = "Fake GPU " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(size));
  return 0;
}
EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  if (const Result fault = fault_at(__func__)) return fault;
  *bytes = world().settings.memory_bytes;
  return 0;
}
EXPORT Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const Result fault = fault_at(__func__)) return fault;
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
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.process != getpid()) return kNotInitialized;
  Context*& primary = l.w.contexts[device];
  if (primary == nullptr) {
    primary = l.w.made.emplace_back(new Context{.device = device}).get();
    ++l.w.counters.contexts;
  }
  *context = primary;
  if (primary->lost == 0) ++primary->holders;
  return primary->lost;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int device) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context*& primary = l.w.contexts[device];
  if (primary == nullptr) return kInvalidContext;
  ++l.w.counters.releases;
  --primary->holders;
  destroy_unless_held(l.w, device);
  return 0;
}
EXPORT Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  *flags = 0;
  destroy_unless_held(l.w, device);
  *active = l.w.contexts[device] != nullptr ? 1 : 0;
  return 0;
}
EXPORT Result cuCtxGetCurrent(Context** context) {
  if (const Result fault = fault_at(__func__)) return fault;
  if (world().process != getpid()) return kNotInitialized;
  *context = t_stack.top();
  return 0;
}
EXPORT Result cuCtxPushCurrent_v2(Context* context) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (context == nullptr) return kInvalidContext;
  if (context->lost == kContextIsDestroyed) return kContextIsDestroyed;
  ++l.w.counters.pushes;
  if (t_stack.size == Stack::kMost) return kOutOfMemory;
  t_stack.contexts[t_stack.size++] = context;
  return 0;
}
EXPORT Result cuCtxPopCurrent_v2(Context** context) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (t_stack.size == 0) return kInvalidContext;
  ++l.w.counters.pops;
  *context = t_stack.contexts[--t_stack.size];
  return 0;
}

EXPORT Result cuModuleLoadData(Module** module, const void* image) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (l.w.settings.load_result != 0) return l.w.settings.load_result;
  if (std::memcmp(image, "\177ELF", 4) != 0) return kInvalidImage;
  ++l.w.counters.modules;
  *module = new Module{.context = context, .number = number_of(image), .abi = {}};
  l.w.modules.insert(*module);
  return 0;
}
EXPORT Result cuModuleUnload(Module* module) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.modules.erase(module) == 0) return kInvalidHandle;
  ++l.w.counters.unloads;
  destroy(l.w, module);
  return 0;
}
EXPORT Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.modules.count(module) == 0) return kInvalidHandle;
  if (l.w.settings.fail_symbol != 0) return kNotFound;
  const std::string missing = l.w.settings.missing_entry;
  if (!missing.empty() && std::string(name).ends_with(missing)) return kNotFound;
  *function = new Function{.context = module->context, .module = module, .name = name};
  l.w.functions.insert(*function);
  return 0;
}
EXPORT Result cuModuleGetGlobal_v2(Pointer* address, std::size_t* bytes, Module* module,
                                   const char* name) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.modules.count(module) == 0) return kInvalidHandle;
  const int wanted = l.w.settings.abi_version;
  if (wanted < 0) return kNotFound;
  int*& value = module->abi[name];
  if (value == nullptr) {
    value = static_cast<int*>(std::malloc(sizeof(int)));
    const int said = wanted > 0 ? wanted : module->number;
    *value = said > 0 ? said : kAbi;
  }
  *address = reinterpret_cast<Pointer>(value);
  *bytes = sizeof(int);
  l.w.memory[*address] = {sizeof(int), module->context->device};
  return 0;
}
EXPORT Result cuFuncSetAttribute(Function* function, int attribute, int value) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.functions.count(function) == 0) return kInvalidHandle;
  ++l.w.counters.function_sets;
  constexpr int kMostShared = 232448;
  if (attribute == 8 && value > kMostShared) return kInvalidValue;
  (attribute == 8 ? function->max_shared_bytes : function->any_cluster) = value;
  return 0;
}
EXPORT Result cuFuncGetAttribute(int* value, int, Function*) {
  if (const Result fault = fault_at(__func__)) return fault;
  *value = 0;
  return 0;
}

#ifndef FAKE_CUDA_OLD
EXPORT Result cuLaunchKernelEx(const Config* config, Function* function, void** parameters,
                               void**) {
  if (const Result fault = fault_at(__func__)) return fault;
  LaunchRecord record{};
  void (*kernel)(const LaunchRecord&) = nullptr;
  {
    const Locked l;
    Context* context = nullptr;
    if (const Result result = current(l.w, context); result != 0) return result;
    if (l.w.functions.count(function) == 0) return kInvalidHandle;
    if (function->context != context) return kInvalidContext;
    if (is_gone(l.w, config->stream)) return kInvalidHandle;
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
    std::memcpy(record.last_word, static_cast<char*>(parameters[0]) + 4088, 8);
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
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  ++l.w.counters.occupancy_queries;
  *blocks = l.w.settings.blocks_per_unit;
  return 0;
}
EXPORT Result cuOccupancyMaxActiveClusters(int* clusters, Function*, const Config*) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  ++l.w.counters.occupancy_queries;
  *clusters = l.w.settings.max_clusters;
  return 0;
}

#ifndef FAKE_CUDA_OLD
// The encoding is a few of the arguments, so that tests can read them: see EncodedMap.
EXPORT Result cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* base,
                                     const std::uint64_t* sizes, const std::uint64_t* strides,
                                     const unsigned* box, const unsigned* steps, int interleave,
                                     int swizzle, int promotion, int fill) {
  if (const Result fault = fault_at(__func__)) return fault;
  EncodedMap words{};
  std::copy_n(box, std::min(rank, 5U), words.box);
  return encode(map, words,
                {type, rank, base, sizes, strides, steps, interleave, swizzle, promotion, fill});
}
EXPORT Result cuTensorMapEncodeIm2col(void* map, int type, unsigned rank, void* base,
                                      const std::uint64_t* sizes, const std::uint64_t* strides,
                                      const int* low, const int* high, unsigned channels,
                                      unsigned pixels, const unsigned* steps, int interleave,
                                      int swizzle, int promotion, int fill) {
  if (const Result fault = fault_at(__func__)) return fault;
  if (rank < 3) return kInvalidValue;
  EncodedMap words{};
  words.pixels = pixels;
  words.channels = static_cast<std::uint16_t>(channels);
  std::copy_n(low, std::min(rank, 5U) - 2, words.low);
  std::copy_n(high, std::min(rank, 5U) - 2, words.high);
  return encode(map, words,
                {type, rank, base, sizes, strides, steps, interleave, swizzle, promotion, fill});
}
#endif

EXPORT Result cuMemAlloc_v2(Pointer* address, std::size_t bytes) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  std::size_t used = 0;
  for (const auto& [pointer, block] : l.w.memory) used += block.bytes;
  if (bytes == 0) return kInvalidValue;
  if (bytes > l.w.settings.memory_bytes || used > l.w.settings.memory_bytes - bytes) {
    return kOutOfMemory;
  }
  void* memory = nullptr;
  if (const auto spare = l.w.spare.find(rounded(bytes)); spare != l.w.spare.end()) {
    memory = reinterpret_cast<void*>(spare->second);
    l.w.spare.erase(spare);
  } else {
    memory = std::aligned_alloc(512, rounded(bytes));
  }
  std::memset(memory, 0xcd, bytes);
  *address = reinterpret_cast<Pointer>(memory);
  l.w.memory[*address] = {bytes, context->device};
  ++l.w.counters.allocations;
  l.w.counters.allocated_bytes += bytes;
  return 0;
}
EXPORT Result cuMemFree_v2(Pointer address) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.memory.erase(address) == 0) return kInvalidValue;
  ++l.w.counters.frees;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
EXPORT Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, void* stream) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (is_gone(l.w, stream)) return kInvalidHandle;
  if (block_of(l.w, to, bytes) == nullptr) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, void* stream) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (is_gone(l.w, stream)) return kInvalidHandle;
  if (block_of(l.w, from, bytes) == nullptr) return kInvalidValue;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
EXPORT Result cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, void* stream) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (is_gone(l.w, stream)) return kInvalidHandle;
  if (block_of(l.w, to, bytes) == nullptr) return kInvalidValue;
  ++l.w.counters.fills;
  l.w.now += 0.25;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
EXPORT Result cuPointerGetAttribute(void* value, int attribute, Pointer pointer) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  ++l.w.counters.pointer_queries;
  const Block* block = block_of(l.w, pointer, 1);
  if (block == nullptr) return kInvalidValue;
  constexpr int kMemoryOfDevice = 2;
  *static_cast<int*>(value) = attribute == 2 ? kMemoryOfDevice : attribute == 9 ? block->device : 0;
  return 0;
}

EXPORT Result cuStreamSynchronize(void* stream) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (is_gone(l.w, stream)) return kInvalidHandle;
  const auto found = l.w.pending.find(stream);
  if (found == l.w.pending.end()) return 0;
  const Result result = found->second;
  l.w.pending.erase(found);
  if (is_sticky(result)) context->lost = result;
  return result;
}
EXPORT Result cuStreamIsCapturing(void* stream, int* status) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (is_gone(l.w, stream)) return kInvalidHandle;
  *status = world().settings.capturing;
  return 0;
}
EXPORT Result cuEventCreate(Event** event, unsigned) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  *event = new Event{.context = context};
  l.w.events.insert(*event);
  return 0;
}
EXPORT Result cuEventDestroy_v2(Event* event) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.events.erase(event) == 0) return kInvalidHandle;
  delete event;
  return 0;
}
// Time passes by one millisecond a launch and a quarter of one a fill.
EXPORT Result cuEventRecord(Event* event, void* stream) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (l.w.events.count(event) == 0 || is_gone(l.w, stream)) return kInvalidHandle;
  event->milliseconds = l.w.now;
  event->stream = stream;
  ++l.w.counters.event_records;
  return 0;
}
EXPORT Result cuEventQuery(Event* event) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.events.count(event) == 0) return kInvalidHandle;
  constexpr Result kNotReady = 600;
  const bool is_busy = event->milliseconds >= 0 && event->stream == l.w.settings.busy_stream;
  return is_busy && event->stream != nullptr ? kNotReady : 0;
}
EXPORT Result cuEventSynchronize(Event* event) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  Context* context = nullptr;
  if (const Result result = current(l.w, context); result != 0) return result;
  if (l.w.events.count(event) == 0) return kInvalidHandle;
  for (const auto& [stream, result] : l.w.pending) {
    if (is_sticky(result)) context->lost = result;
    return result;
  }
  return 0;
}
EXPORT Result cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  if (const Result fault = fault_at(__func__)) return fault;
  const Locked l;
  if (l.w.events.count(begin) == 0 || l.w.events.count(end) == 0) return kInvalidHandle;
  *milliseconds = static_cast<float>(end->milliseconds - begin->milliseconds);
  return 0;
}

EXPORT Result cuGetErrorName(Result result, const char** name) {
  if (const Result fault = fault_at(__func__)) return fault;
  static const std::map<Result, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},          {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},        {100, "CUDA_ERROR_NO_DEVICE"},
      {200, "CUDA_ERROR_INVALID_IMAGE"},        {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},    {400, "CUDA_ERROR_INVALID_HANDLE"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
  const auto found = names.find(result);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : 0;
}
EXPORT Result cuGetErrorString(Result, const char** text) {
  if (const Result fault = fault_at(__func__)) return fault;
  *text = "as the test wished";
  return 0;
}
