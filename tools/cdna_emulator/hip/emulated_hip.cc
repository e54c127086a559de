// The functions of libamdhip64 that Tessera calls, over the emulator. Everything runs at once, in
// the order of the calls, so that streams and events have nothing to wait for. Clocks of events
// tell the time of the emulation, which says nothing about a GPU.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "cdna_emulator/facts.h"
#include "tessera/runtime/hip_driver_internal.h"
#include "world.h"

#define TESSERA_EXPORT extern "C" __attribute__((visibility("default")))

namespace tessera::runtime::hip {
struct HipEventTag {
  std::chrono::steady_clock::time_point at;
};
}  // namespace tessera::runtime::hip

namespace {

using namespace tessera::cdna_emulator;
using namespace tessera::runtime::hip;

constexpr int kVersion = 60'200'000;  // HIP 6.2
constexpr int kMemoryOfDevice6 = 2;
constexpr u64 kMemoryBytes = u64{16} << 30;

// What the device says it has. CMake writes the rows from the targets' rows.
struct DeviceFacts {
  std::string_view name;
  int units, l2_bytes;
};
constexpr DeviceFacts kDevices[] = {TESSERA_EMULATED_DEVICES};

Result keep_finding(World& w, const Finding& finding) {
  ++w.findings;
  w.finding = finding.text;
  return finding.kind == Finding::Kind::outside ? kIllegalAddress : kLaunchFailure;
}

thread_local Result last_result = kSuccess;
Result done(Result result) {
  if (result != kSuccess) last_result = result;
  return result;
}

Result copy(void* to, const void* from, std::size_t bytes, u64 device) {
  const std::scoped_lock lock(world().mutex);
  if (!holds(world(), device, bytes)) return done(kInvalidValue);
  std::memcpy(to, from, bytes);
  return kSuccess;
}

// The arguments' bytes: kArgumentBuffer, their address, kArgumentBytes, their size's address, end.
std::span<const u8> arguments_of(void** extra) {
  const u8* address = nullptr;
  std::size_t bytes = 0;
  for (int n = 0; extra != nullptr && extra[n] != kArgumentsEnd; n += 2) {
    if (extra[n] == kArgumentBuffer) address = static_cast<const u8*>(extra[n + 1]);
    if (extra[n] == kArgumentBytes) std::memcpy(&bytes, extra[n + 1], sizeof bytes);
  }
  return {address, address == nullptr ? 0 : bytes};
}

struct Name {
  Result result;
  const char* name;
  const char* text;
};
constexpr Name kNames[] = {
    {kSuccess, "hipSuccess", "no error"},
    {kInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {kNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {kInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {kNoBinaryForGpu, "hipErrorNoBinaryForGpu", "no kernel image is available for the device"},
    {kInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {kNotFound, "hipErrorNotFound", "named symbol not found"},
    {kIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {kLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
};
const Name& name_of(Result result) {
  static constexpr Name kUnknown{-1, "hipErrorUnknown", "unknown error"};
  for (const Name& n : kNames) {
    if (n.result == result) return n;
  }
  return kUnknown;
}

void set_text(u8* to, const std::string& text) { std::memcpy(to, text.c_str(), text.size() + 1); }
template <class T>
void set_number(u8* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// A text that lives until the thread's next call.
const char* lasting(std::string text) {
  static thread_local std::string* kept = new std::string;
  *kept = std::move(text);
  return kept->c_str();
}

}  // namespace

// ---- the device ----
TESSERA_EXPORT Result hipInit(unsigned) {
  return done(world().target == nullptr ? kNoDevice : kSuccess);
}
TESSERA_EXPORT Result hipRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
TESSERA_EXPORT Result hipGetDeviceCount(int* count) {
  *count = world().target == nullptr ? 0 : 1;
  return done(*count == 0 ? kNoDevice : kSuccess);
}
TESSERA_EXPORT Result hipSetDevice(int ordinal) {
  return done(ordinal == 0 ? kSuccess : kInvalidDevice);
}
TESSERA_EXPORT Result hipGetDevice(int* ordinal) {
  *ordinal = 0;
  return kSuccess;
}
TESSERA_EXPORT Result hipGetDevicePropertiesR0600(void* properties, int ordinal) {
  if (ordinal != 0 || world().target == nullptr) return done(kInvalidDevice);
  u8* to = static_cast<u8*>(properties);
  std::memset(to, 0, kProperties6.bytes);
  const std::string name(world().target->name);
  const auto* device = std::find_if(std::begin(kDevices), std::end(kDevices),
                                    [&](const DeviceFacts& d) { return d.name == name; });
  set_text(to + kProperties6.name, "Emulated " + name);
  set_text(to + kProperties6.architecture, name + ":sramecc+:xnack-");
  set_number(to + kProperties6.memory_bytes, std::size_t{kMemoryBytes});
  set_number(to + kProperties6.units, device->units);
  set_number(to + kProperties6.l2_bytes, device->l2_bytes);
  return kSuccess;
}

// ---- modules and launches ----
TESSERA_EXPORT Result hipModuleLoadData(Module* module, const void* image) {
  World& w = world();
  const std::scoped_lock lock(w.mutex);
  w.finding.clear();
  try {
    *module = reinterpret_cast<Module>(load(w, image));
    return kSuccess;
  } catch (const Finding& finding) {
    keep_finding(w, finding);
    return done(kInvalidImage);
  }
}
TESSERA_EXPORT Result hipModuleUnload(Module module) {
  World& w = world();
  const std::scoped_lock lock(w.mutex);
  const auto found = w.modules.find(reinterpret_cast<LoadedModule*>(module));
  if (found == w.modules.end()) return done(kInvalidHandle);
  const Image& image = found->second->image;
  for (const CodeObject::Segment& s : found->second->program.object.segments) {
    w.memory.remove(image.address + s.address);
  }
  w.modules.erase(found);
  return kSuccess;
}
TESSERA_EXPORT Result hipModuleGetFunction(Function* function, Module module, const char* name) {
  const std::scoped_lock lock(world().mutex);
  auto* loaded = reinterpret_cast<LoadedModule*>(module);
  const auto found = loaded->kernels.find(name);
  if (found == loaded->kernels.end()) return done(kNotFound);
  *function = reinterpret_cast<Function>(&found->second);
  return kSuccess;
}
TESSERA_EXPORT Result hipModuleGetGlobal(Pointer* address, std::size_t* bytes, Module module,
                                         const char* name) {
  const std::scoped_lock lock(world().mutex);
  const auto* loaded = reinterpret_cast<const LoadedModule*>(module);
  for (const Symbol& s : loaded->program.object.symbols) {
    if (s.name != name) continue;
    if (address != nullptr) *address = loaded->image.address + s.address;
    if (bytes != nullptr) *bytes = s.bytes;
    return kSuccess;
  }
  return done(kNotFound);
}
TESSERA_EXPORT Result hipModuleLaunchKernel(Function function, unsigned grid_x, unsigned grid_y,
                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                            unsigned block_z, unsigned shared_bytes, Stream,
                                            void** parameters, void** extra) {
  World& w = world();
  const std::scoped_lock lock(w.mutex);
  const auto* kernel = reinterpret_cast<const LoadedKernel*>(function);
  if (parameters != nullptr) return done(kInvalidValue);  // Tessera passes `extra`
  Launch launch;
  launch.grid = {grid_x, grid_y, grid_z};
  launch.block = {block_x, block_y, block_z};
  launch.dynamic_lds_bytes = shared_bytes;
  launch.arguments = arguments_of(extra);
  w.finding.clear();
  const Outcome outcome =
      run(kernel->module->program, kernel->module->image, *kernel->kernel, w.memory, launch);
  w.statistics.add(outcome.statistics);
  if (outcome.finding.kind == Finding::Kind::none) return kSuccess;
  return done(keep_finding(w, outcome.finding));
}
// As many as registers and LDS allow: a unit has four SIMDs, each with 512 registers a lane, or of
// RDNA two with 1536.
TESSERA_EXPORT Result hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                         Function function,
                                                                         int threads,
                                                                         std::size_t shared_bytes) {
  const auto* loaded = reinterpret_cast<const LoadedKernel*>(function);
  const Kernel& k = *loaded->kernel;
  const Target& target = *world().target;
  const bool is_rdna = target.rdna != 0;
  const int simds = is_rdna ? 2 : 4, vgprs = is_rdna ? 1536 : 512;
  const int most = is_rdna ? 16 : 8, lanes = static_cast<int>(target.lanes);
  const int registers = std::max(8, static_cast<int>(k.vgprs + 7) / 8 * 8);
  const int waves = simds * std::min(most, vgprs / registers);
  const int by_waves = waves / std::max(1, (threads + lanes - 1) / lanes);
  const u64 lds = k.lds_bytes + shared_bytes;
  const u64 by_lds = lds == 0 ? ~u64{0} : target.lds_bytes / lds;
  *blocks = static_cast<int>(std::min<u64>(static_cast<u64>(by_waves), by_lds));
  return kSuccess;
}

// ---- memory ----
TESSERA_EXPORT Result hipMalloc(Pointer* address, std::size_t bytes) {
  const std::scoped_lock lock(world().mutex);
  *address = allocate(world(), bytes);
  return done(*address == 0 ? kOutOfMemory : kSuccess);
}
TESSERA_EXPORT Result hipFree(Pointer address) {
  const std::scoped_lock lock(world().mutex);
  return done(address == 0 || release(world(), address) ? kSuccess : kInvalidValue);
}
TESSERA_EXPORT Result hipMemcpyHtoDAsync(Pointer to, const void* from, std::size_t bytes, Stream) {
  return copy(reinterpret_cast<void*>(to), from, bytes, to);
}
TESSERA_EXPORT Result hipMemcpyDtoHAsync(void* to, Pointer from, std::size_t bytes, Stream) {
  return copy(to, reinterpret_cast<const void*>(from), bytes, from);
}
TESSERA_EXPORT Result hipMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, Stream) {
  const std::scoped_lock lock(world().mutex);
  if (!holds(world(), to, bytes)) return done(kInvalidValue);
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return kSuccess;
}
TESSERA_EXPORT Result hipPointerGetAttributes(PointerFacts* facts, const void* pointer) {
  const std::scoped_lock lock(world().mutex);
  *facts = {};
  if (!holds(world(), reinterpret_cast<u64>(pointer), 1)) return kSuccess;  // unregistered: 0
  facts->type = kMemoryOfDevice6;
  facts->device_pointer = const_cast<void*>(pointer);
  return kSuccess;
}

// ---- streams and events ----
TESSERA_EXPORT Result hipStreamSynchronize(Stream) { return kSuccess; }
TESSERA_EXPORT Result hipStreamIsCapturing(Stream, int* status) {
  *status = 0;
  return kSuccess;
}
TESSERA_EXPORT Result hipEventCreateWithFlags(EventHandle* event, unsigned) {
  *event = new HipEventTag{};
  return kSuccess;
}
TESSERA_EXPORT Result hipEventDestroy(EventHandle event) {
  delete event;
  return kSuccess;
}
TESSERA_EXPORT Result hipEventRecord(EventHandle event, Stream) {
  event->at = std::chrono::steady_clock::now();
  return kSuccess;
}
TESSERA_EXPORT Result hipEventQuery(EventHandle) { return kSuccess; }
TESSERA_EXPORT Result hipEventSynchronize(EventHandle) { return kSuccess; }
TESSERA_EXPORT Result hipEventElapsedTime(float* milliseconds, EventHandle begin, EventHandle end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return kSuccess;
}

// ---- errors ----
TESSERA_EXPORT const char* hipGetErrorName(Result result) { return name_of(result).name; }
TESSERA_EXPORT const char* hipGetErrorString(Result result) { return name_of(result).text; }
TESSERA_EXPORT Result hipGetLastError() {
  const Result result = last_result;
  last_result = kSuccess;
  return result;
}

// ---- what AMD's library does not have ----
TESSERA_EXPORT int tessera_emulator_select(const char* target) {
  World& w = world();
  const std::scoped_lock lock(w.mutex);
  if (find_target(std::string_view(target)) == nullptr) return 0;
  w.target = find_target(std::string_view(target));
  w.finding.clear();
  return 1;
}
TESSERA_EXPORT const char* tessera_emulator_describe(const void* bytes, std::size_t count) {
  World& w = world();
  const std::scoped_lock lock(w.mutex);
  try {
    const Program program = read_program({static_cast<const u8*>(bytes), count});
    std::string json;
    for (const Kernel& k : program.object.kernels) {
      json += (json.empty() ? "" : ", ") + to_json(facts_of(program, k), listing_of(program, k));
    }
    return lasting("{\"kernels\": [" + json + "]}");
  } catch (const Finding& finding) {
    keep_finding(w, finding);
    return "";
  }
}
TESSERA_EXPORT const char* tessera_emulator_finding() {
  const std::scoped_lock lock(world().mutex);
  return lasting(world().finding);
}
TESSERA_EXPORT const char* tessera_emulator_report() {
  const std::scoped_lock lock(world().mutex);
  return lasting(to_json(world().statistics, world().findings));
}
