// AMD's HIP runtime as a driver of the shape that gpu_driver_internal.h asks for. A device is its
// own context here: HIP has a current device for each thread, and makes what it needs there.
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/runtime/gpu_driver_internal.h"
#include "tessera/runtime/hip_driver_internal.h"

namespace tessera::runtime::hip {
namespace {

using gpu::Architecture;
using gpu::Context;
using gpu::DeviceFacts;
using gpu::Driver;
using gpu::DriverLibrary;

// Set when the library is loaded, before anything else is called.
constinit Functions g_hip{};

// ---- The functions that are not as CUDA's ----

// HIP remembers each thread's last failure for whoever asks. What is no failure to us, or fails
// while something is cleaned up, is not left there; hip_describe() clears the rest.
Result forget(Result result) {
  if (result != kSuccess) g_hip.last_error();
  return result;
}

Context context_of(int ordinal) {
  return reinterpret_cast<Context>(static_cast<std::uintptr_t>(ordinal) + 1);
}
int ordinal_of(Context context) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
}

Result get_same_device(int* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
Result retain(Context* context, int device) {
  *context = context_of(device);
  return kSuccess;
}
Result keep(int) { return kSuccess; }
Result is_always_active(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
Result get_current(Context* context) {
  int ordinal = 0;
  const Result result = forget(g_hip.get_device(&ordinal));
  if (result == kSuccess) *context = context_of(ordinal);
  return result;
}
Result make_current(Context context) { return g_hip.set_device(ordinal_of(context)); }
Result go_back(Context* before) {
  return *before == nullptr ? kSuccess : forget(g_hip.set_device(ordinal_of(*before)));
}

Result find_function(gpu::Function* function, gpu::Module module, const char* name) {
  return forget(g_hip.module_function(reinterpret_cast<Function*>(function),
                                      reinterpret_cast<Module>(module), name));
}
Result find_global(gpu::Pointer* address, std::size_t* bytes, gpu::Module module,
                   const char* name) {
  return forget(g_hip.module_global(address, bytes, reinterpret_cast<Module>(module), name));
}
Result unload(gpu::Module module) {
  return forget(g_hip.module_unload(reinterpret_cast<Module>(module)));
}
Result free_memory(gpu::Pointer address) { return forget(g_hip.free(address)); }
Result destroy_event(gpu::EventHandle event) {
  return forget(g_hip.event_destroy(reinterpret_cast<EventHandle>(event)));
}
Result record_event(gpu::EventHandle event, gpu::Stream stream) {
  return forget(
      g_hip.event_record(reinterpret_cast<EventHandle>(event), reinterpret_cast<Stream>(stream)));
}
Result query_event(gpu::EventHandle event) {
  return forget(g_hip.event_query(reinterpret_cast<EventHandle>(event)));
}

Result launch(const gpu::LaunchConfig* config, gpu::Function function, void**, void** extra) {
  const unsigned* const grid = config->grid;
  const unsigned* const block = config->block;
  return g_hip.launch(reinterpret_cast<Function>(function), grid[0], grid[1], grid[2], block[0],
                      block[1], block[2], config->shared_bytes,
                      reinterpret_cast<Stream>(config->stream), nullptr, extra);
}

// From HIP 6 on, memory that HIP does not know is a type of its own, and the types have other
// numbers.
Result pointer_attribute(void* value, int attribute, gpu::Pointer pointer) {
  PointerFacts facts{};
  const bool is_6 = g_hip.properties6 != nullptr;
  const Result result = forget(g_hip.pointer_facts(&facts, reinterpret_cast<const void*>(pointer)));
  if (result != kSuccess) return result;
  if (is_6 && facts.type == kUnregistered6) return kInvalidValue;
  const bool of_host = facts.type == (is_6 ? kMemoryOfHost6 : kMemoryOfHost5);
  constexpr int kOfDevice = 2;
  int& answer = *static_cast<int*>(value);
  answer = 0;
  if (attribute == gpu::kMemoryType) answer = of_host ? gpu::kMemoryOfHost : kOfDevice;
  if (attribute == gpu::kDeviceOrdinal) answer = facts.device;
  if (attribute == gpu::kAccessFlags || attribute == gpu::kIsManaged) answer = facts.is_managed;
  return kSuccess;
}

// ---- Loading ----

std::vector<std::string> load_functions(void* handle, Functions& hip) {
  std::vector<std::string> missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
  };
  const auto load = [&](auto& function, const char* name) {
    find(function, name);
    if (function == nullptr) missing.emplace_back(name);
  };
  load(hip.init, "hipInit");
  load(hip.runtime_version, "hipRuntimeGetVersion");
  load(hip.device_count, "hipGetDeviceCount");
  load(hip.set_device, "hipSetDevice");
  load(hip.get_device, "hipGetDevice");
  find(hip.properties6, "hipGetDevicePropertiesR0600");
  find(hip.properties5, "hipGetDeviceProperties");
  if (hip.properties6 == nullptr && hip.properties5 == nullptr) {
    missing.emplace_back("hipGetDeviceProperties");
  }
  load(hip.module_load, "hipModuleLoadData");
  load(hip.module_unload, "hipModuleUnload");
  load(hip.module_function, "hipModuleGetFunction");
  load(hip.module_global, "hipModuleGetGlobal");
  load(hip.launch, "hipModuleLaunchKernel");
  load(hip.blocks_per_unit, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
  load(hip.allocate, "hipMalloc");
  load(hip.free, "hipFree");
  load(hip.copy_to_device, "hipMemcpyHtoDAsync");
  load(hip.copy_to_host, "hipMemcpyDtoHAsync");
  load(hip.fill, "hipMemsetD8Async");
  load(hip.pointer_facts, "hipPointerGetAttributes");
  load(hip.stream_synchronize, "hipStreamSynchronize");
  load(hip.stream_is_capturing, "hipStreamIsCapturing");
  load(hip.event_create, "hipEventCreateWithFlags");
  load(hip.event_destroy, "hipEventDestroy");
  load(hip.event_record, "hipEventRecord");
  load(hip.event_query, "hipEventQuery");
  load(hip.event_synchronize, "hipEventSynchronize");
  load(hip.event_elapsed, "hipEventElapsedTime");
  load(hip.error_name, "hipGetErrorName");
  load(hip.error_string, "hipGetErrorString");
  load(hip.last_error, "hipGetLastError");
  find(hip.emulator_finding, "tessera_emulator_finding");
  find(hip.emulator_report, "tessera_emulator_report");
  return missing;
}

// A function of HIP under the name that the driver's table has for its handles.
template <class To, class From>
void adopt(To& to, From from) {
  to = reinterpret_cast<To>(from);
}

void fill_table(const Functions& hip, Driver& d) {
  d.vendor = &gpu::hip_vendor();
  d.init = hip.init;
  d.driver_version = hip.runtime_version;
  d.device_count = hip.device_count;
  d.device_get = get_same_device;
  d.context_retain = retain;
  d.context_release = keep;
  d.context_state = is_always_active;
  d.context_get_current = get_current;
  d.context_push = make_current;
  d.context_pop = go_back;
  adopt(d.module_load, hip.module_load);
  d.module_unload = unload;
  d.module_function = find_function;
  d.module_global = find_global;
  d.launch = launch;
  adopt(d.blocks_per_unit, hip.blocks_per_unit);
  d.allocate = hip.allocate;
  d.free = free_memory;
  adopt(d.copy_to_device, hip.copy_to_device);
  adopt(d.copy_to_host, hip.copy_to_host);
  adopt(d.fill, hip.fill);
  d.pointer_attribute = pointer_attribute;
  adopt(d.stream_synchronize, hip.stream_synchronize);
  adopt(d.stream_is_capturing, hip.stream_is_capturing);
  adopt(d.event_create, hip.event_create);
  d.event_destroy = destroy_event;
  d.event_record = record_event;
  d.event_query = query_event;
  adopt(d.event_synchronize, hip.event_synchronize);
  adopt(d.event_elapsed, hip.event_elapsed);
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  for (const char* name :
       {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}) {
    names.emplace_back(name);
    if (const std::string root = environment("ROCM_PATH"); !root.empty()) {
      names.push_back(root + "/lib/" + name);
    }
    names.push_back(std::string("/opt/rocm/lib/") + name);
  }
  return names;
}

DriverLibrary open_hip() {
  DriverLibrary library;
  const std::string wanted = environment("TESSERA_HIP");
  std::string why;
  for (const std::string& name : wanted.empty() ? library_names() : std::vector{wanted}) {
    library.file = name;
    library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle != nullptr) break;
    const char* const words = dlerror();
    const std::string reason = words != nullptr ? words : "the loader gave no reason";
    // A file that is there and cannot be loaded says more than those that are not.
    const bool is_there = reason.find("No such file") == std::string::npos;
    if (why.empty() || is_there) why = reason;
  }
  if (library.handle == nullptr) {
    library.file = wanted.empty() ? "libamdhip64.so" : wanted;
    library.reason = fmt::format(
        "AMD's HIP runtime {} cannot be loaded{}: {}; install ROCm's (HIP 5.0 or later), and start "
        "a container with /dev/kfd and /dev/dri",
        library.file, wanted.empty() ? "" : ", which TESSERA_HIP names", why);
    return library;
  }
  const std::vector<std::string> missing = load_functions(library.handle, g_hip);
  fill_table(g_hip, library.functions);
  if (!missing.empty()) {
    int version = 0;
    if (g_hip.runtime_version != nullptr) g_hip.runtime_version(&version);
    library.reason = fmt::format(
        "AMD's HIP runtime {} is too old: it is HIP {} and lacks {}, HIP 5.0 or later is needed; "
        "update ROCm",
        library.file, version_text(version), join(missing, ", "));
  }
  return library;
}

// ---- What a Vendor says ----

const DriverLibrary& hip_library() {
  static const Forever<DriverLibrary> library(open_hip());
  return *library;
}

gpu::DriverState& hip_state() {
  static constinit gpu::DriverState state;
  return state;
}

// An emulator's sentence about what a kernel did; empty elsewhere.
std::string emulator_finding() {
  const char* const words = g_hip.emulator_finding == nullptr ? nullptr : g_hip.emulator_finding();
  return words == nullptr ? "" : words;
}
bool has_finding() { return !emulator_finding().empty(); }

std::string hip_describe(const Driver&, Result result) {
  const char* const name = g_hip.error_name == nullptr ? nullptr : g_hip.error_name(result);
  const char* const text = g_hip.error_string == nullptr ? nullptr : g_hip.error_string(result);
  const std::string words = gpu::describe(result, name, text);
  if (g_hip.last_error != nullptr) g_hip.last_error();
  const bool by_kernel = result == kIllegalAddress || result == kLaunchFailure;
  const std::string finding = by_kernel ? emulator_finding() : "";
  return finding.empty() ? words : fmt::format("{}: {}", words, finding);
}

std::string hip_init_failure(const DriverLibrary& library, Result result) {
  if (result == kNoDevice) {
    return fmt::format(
        "no HIP device: {} finds none; check that the GPU is visible (rocminfo, "
        "HIP_VISIBLE_DEVICES) and that this user may open /dev/kfd",
        library.file);
  }
  return fmt::format("AMD's HIP runtime {} cannot be initialised: {}", library.file,
                     hip_describe(library.functions, result));
}

template <class T>
T property(const std::byte* properties, std::size_t offset) {
  T value;
  std::memcpy(&value, properties + offset, sizeof(value));
  return value;
}

constexpr std::size_t kNameBytes = 256;
std::string text_property(const std::byte* properties, std::size_t offset) {
  const auto* const text = reinterpret_cast<const char*>(properties + offset);
  return {text, strnlen(text, kNameBytes)};
}

// Room for what later versions may add.
struct Properties {
  PropertyLayout layout = g_hip.properties6 != nullptr ? kProperties6 : kProperties5;
  alignas(8) std::array<std::byte, 4096> bytes{};

  explicit Properties(int ordinal) {
    const auto ask = g_hip.properties6 != nullptr ? g_hip.properties6 : g_hip.properties5;
    gpu::check(gpu::hip_vendor(), ask(bytes.data(), ordinal),
               fmt::format("cannot ask HIP about device {}", ordinal));
  }
};

// "gfx942" of "gfx942:sramecc+:xnack-".
std::string first_word(const std::string& architecture) {
  return architecture.substr(0, architecture.find(':'));
}
bool has_xnack(const DeviceFacts& device) {
  return device.architecture.find(":xnack+") != std::string::npos;
}

DeviceFacts hip_facts(const Driver&, int ordinal) {
  const Properties properties(ordinal);
  const std::byte* const data = properties.bytes.data();
  const PropertyLayout& at = properties.layout;
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.device = ordinal;
  facts.name = text_property(data, at.name);
  if (facts.name.empty()) facts.name = "AMD GPU";
  facts.architecture = text_property(data, at.architecture);
  facts.brief = facts.architecture;
  facts.kind = facts.architecture;
  if (has_xnack(facts)) {
    facts.note = " (with xnack on, for which no kernels are built; unset HSA_XNACK)";
  }
  facts.units = property<int>(data, at.units);
  facts.l2_bytes = static_cast<std::size_t>(property<int>(data, at.l2_bytes));
  facts.memory_bytes = property<std::size_t>(data, at.memory_bytes);
  return facts;
}

Architecture hip_architecture_of(const Target& target) {
  for (const std::string& feature : target.features) {
    if (feature.starts_with("gfx")) return {.name = feature, .capability = {}, .exact = false};
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("target '{}' must name its architecture among its features, as in "
                          "\"gfx942\"",
                          target.name));
}

std::string hip_wanted(const Architecture& architecture) {
  return "architecture " + architecture.name;
}
std::string hip_words_of(const Architecture& architecture) { return architecture.name; }

std::string hip_why_not(const Architecture& architecture, const DeviceFacts& device) {
  if (first_word(device.architecture) != architecture.name) return "does not run";
  return has_xnack(device) ? "does not run while xnack is on; unset HSA_XNACK" : "";
}

// EF_AMDGPU_MACH of the ELF header's flags.
struct MachineFlag {
  unsigned flag;
  std::string_view architecture;
};
constexpr std::array kMachineFlags = {
    MachineFlag{0x30, "gfx908"},  MachineFlag{0x3f, "gfx90a"},  MachineFlag{0x4c, "gfx942"},
    MachineFlag{0x4f, "gfx950"},  MachineFlag{0x36, "gfx1030"}, MachineFlag{0x41, "gfx1100"},
    MachineFlag{0x48, "gfx1200"}, MachineFlag{0x4e, "gfx1201"},
};

std::string code_object_damage(const Architecture& architecture, std::string_view binary) {
  constexpr unsigned kAmdMachine = 224, kMachineMask = 0xff;
  Elf64_Ehdr header{};
  if (binary.size() >= sizeof(header)) std::memcpy(&header, binary.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kAmdMachine) {
    return "must be a code object (an ELF file for AMD GPUs), but is not";
  }
  const unsigned flag = header.e_flags & kMachineMask;
  std::string built_for = fmt::format("an unknown architecture (flag {:#x})", flag);
  for (const MachineFlag& row : kMachineFlags) {
    if (row.flag == flag) built_for = row.architecture;
  }
  if (built_for == architecture.name) return {};
  return fmt::format("must be a code object for {}, but is one for {}", architecture.name,
                     built_for);
}

std::string hip_load_hint(const Driver& driver) {
  int version = 0;
  driver.driver_version(&version);
  return fmt::format("this is HIP {}; a later one may know the target", version_text(version));
}

// hipErrorECCNotCorrectable, IllegalAddress, LaunchTimeOut, ContextIsDestroyed, Assert,
// LaunchFailure.
constexpr std::array<Result, 6> kLost = {214, 700, 702, 709, 710, 719};
// hipErrorNotInitialized, Deinitialized, InsufficientDriver, NoDevice, InvalidDevice,
// ECCNotCorrectable, ContextIsDestroyed.
constexpr std::array<Result, 7> kOfTheMachine = {3, 4, 35, 100, 101, 214, 709};

constexpr gpu::Vendor kHip = {
    .index = 1,
    .backend = "hip",
    .api = "HIP",
    .driver = "AMD's HIP runtime",
    .gpu = "an AMD GPU",
    .visibility = "rocminfo, HIP_VISIBLE_DEVICES",
    .binary = "code object",
    .stream_owner = "this device",
    .lost = "HIP cannot make it usable again within this process; restart the process",
    .arguments_in_buffer = true,
    .lost_results = kLost,
    .machine_results = kOfTheMachine,
    .library = hip_library,
    .init_failure = hip_init_failure,
    .describe = hip_describe,
    .facts = hip_facts,
    .probe = nullptr,
    .architecture_of = hip_architecture_of,
    .wanted = hip_wanted,
    .why_not = hip_why_not,
    .words_of = hip_words_of,
    .binary_damage = code_object_damage,
    .load_hint = hip_load_hint,
    .has_run = has_finding,
    .state = hip_state,
};

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000'000, version / 100'000 % 100, version % 100'000);
}

}  // namespace tessera::runtime::hip

namespace tessera::runtime::gpu {

const Vendor& hip_vendor() { return hip::kHip; }

}  // namespace tessera::runtime::gpu
