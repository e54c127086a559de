#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/runtime/gpu_device_internal.h"

namespace tessera::runtime::gpu {
namespace {

// One device of this process and its contexts, one after the other. Lost contexts stay in the list,
// because handles of them may still be in use.
struct Slot {
  std::atomic<const DeviceFacts*> facts = nullptr;
  std::atomic<Gpu*> gpu = nullptr;  // the last one made
  std::mutex mutex;                 // guards changes of the two above, and all below
  DeviceFacts facts_storage;
  std::vector<std::unique_ptr<Gpu>> made;
  bool retained = false;
  std::unordered_multimap<Pointer, const Gpu*> memory;  // memory not yet released
};
using Slots = std::vector<Slot>;

constexpr std::size_t kVendors = 2;
std::array<std::atomic<Slots*>, kVendors> g_slots{};  // never destroyed

// Throws when there is no such device.
std::size_t device_count(const Driver& driver) {
  int count = 0;
  const Vendor& vendor = *driver.vendor;
  check(vendor, driver.device_count(&count),
        fmt::format("cannot count the {} devices", vendor.api));
  if (count < 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("no {} device: the driver finds none", vendor.api));
  }
  return static_cast<std::size_t>(count);
}

// Kernels and buffers of static objects are released after other statics.
Slots& slots(const Driver& driver) {
  std::atomic<Slots*>& place = g_slots[static_cast<std::size_t>(driver.vendor->index)];
  if (Slots* const known = place.load(std::memory_order_acquire)) return *known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (place.load() == nullptr) {
    place.store(std::make_unique<Slots>(device_count(driver)).release(), std::memory_order_release);
  }
  return *place.load();
}

Slot& slot_of(const Driver& driver, int ordinal) {
  Slots& all = slots(driver);
  const auto count = static_cast<int>(all.size());
  if (ordinal >= 0 && ordinal < count) return all[static_cast<std::size_t>(ordinal)];
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("device {} was asked for, this machine has devices 0 to {}", ordinal, count - 1));
}

// Null before the first context and in a forked child. Used by clean-up, which never throws.
Slot* find_slot(const Vendor& vendor, int ordinal) noexcept {
  Slots* const all =
      g_slots[static_cast<std::size_t>(vendor.index)].load(std::memory_order_acquire);
  if (all == nullptr || !is_usable(vendor) || ordinal < 0) return nullptr;
  const auto index = static_cast<std::size_t>(ordinal);
  return index < all->size() ? &(*all)[index] : nullptr;
}

const DeviceFacts& facts_of(const Driver& driver, int ordinal, Slot& slot) {
  if (const DeviceFacts* known = slot.facts.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(slot.mutex);
  if (slot.facts.load() == nullptr) {
    slot.facts_storage = driver.vendor->facts(driver, ordinal);
    slot.facts.store(&slot.facts_storage, std::memory_order_release);
  }
  return slot.facts_storage;
}

// Whether the context still works; other code in the process may have broken it.
Result try_context(const Driver& driver, Context context) {
  Context before = nullptr;
  driver.context_get_current(&before);
  Result result = driver.context_push(context);
  if (result != kSuccess) return result;
  result = driver.stream_synchronize(nullptr);
  driver.context_pop(&before);
  return result;
}

// The primary context is shared with all other code in the process. It disappears, with its error,
// when the last holder releases it. It is never destroyed by force, because the others still use
// it.
Context retain_context(const Driver& driver, const DeviceFacts& facts, Slot& slot) {
  Result result = slot.retained ? driver.context_release(facts.device) : kSuccess;
  slot.retained = result != kSuccess && result != kInvalidContext;  // other code may have reset it
  unsigned flags = 0;
  int active = 0;
  driver.context_state(facts.device, &flags, &active);
  Context made = nullptr;
  if (!slot.retained) result = driver.context_retain(&made, facts.device);
  if (result == kSuccess) {
    slot.retained = true;
    if (!slot.made.empty()) result = try_context(driver, made);
    if (result == kSuccess) return made;
    slot.retained = driver.context_release(facts.device) != kSuccess;
  }
  if (!slot.made.empty() && active != 0 && is_sticky(*driver.vendor, result)) {
    throw Error(ErrorCode::launch_failed,
                fmt::format("{} is unusable since a kernel failed on it: {}", facts.label(),
                            driver.vendor->lost));
  }
  throw Error(ErrorCode::unsupported, fmt::format("cannot make a context on {}: {}", facts.label(),
                                                  describe(*driver.vendor, result)));
}

// A thread's cache of pointers that passed the check, with their contexts. Each slot keeps the last
// one.
struct CheckedPointer {
  const void* pointer = nullptr;
  const Gpu* gpu = nullptr;
};
constexpr std::size_t kCheckedPointers = 256;
thread_local std::array<CheckedPointer, kCheckedPointers> t_checked;
thread_local CheckedPointer t_checked_workspace;

// The context that a thread last used on each device; null once the thread was told of its loss.
constexpr std::size_t kMostDevices = 64;
const Gpu*& seen_by_this_thread(const Vendor& vendor, int ordinal) {
  thread_local std::array<std::array<const Gpu*, kMostDevices>, kVendors> seen{};
  return seen[static_cast<std::size_t>(vendor.index)]
             [static_cast<std::size_t>(ordinal) % kMostDevices];
}

// The stream of each thread, which has one handle for all of them (CU_STREAM_PER_THREAD).
constexpr std::uintptr_t kStreamPerThread = 2;
thread_local const char t_thread = 0;

// The results by which the driver says that it does not know a handle.
bool is_of_stream(Result result) { return result == kInvalidHandle || result == kInvalidContext; }
CheckedPointer& checked_place(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return t_checked[(address >> 4 ^ address >> 13 ^ address >> 21) % kCheckedPointers];
}

}  // namespace

std::uintptr_t key_of(Stream stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  return handle == kStreamPerThread ? reinterpret_cast<std::uintptr_t>(&t_thread) : handle;
}

std::string DeviceFacts::label() const {
  return fmt::format("device {} ({}, {})", ordinal, name, kind);
}

Gpu& Gpu::ready(const Driver& driver, int ordinal) {
  Slot& slot = slot_of(driver, ordinal);
  const auto good = [&slot] {
    Gpu* const last = slot.gpu.load(std::memory_order_acquire);
    return last != nullptr && last->lost_.load(std::memory_order_acquire) == kSuccess ? last
                                                                                      : nullptr;
  };
  if (Gpu* const gpu = good()) return *gpu;
  const DeviceFacts& facts = facts_of(driver, ordinal, slot);
  const std::lock_guard lock(slot.mutex);
  if (Gpu* const gpu = good()) return *gpu;
  const Context context = retain_context(driver, facts, slot);
  slot.made.push_back(std::make_unique<Gpu>(driver, facts, context));
  slot.gpu.store(slot.made.back().get(), std::memory_order_release);
  return *slot.made.back();
}

Gpu& Gpu::use(const Driver& driver, int ordinal) {
  Gpu& gpu = ready(driver, ordinal);
  const Gpu* const before = std::exchange(seen_by_this_thread(*driver.vendor, ordinal), &gpu);
  if (before == &gpu || before == nullptr) return gpu;
  throw Error(ErrorCode::launch_failed,
              fmt::format("the context of {} was lost since this thread used it last, and all "
                          "memory in it: {}; allocate and copy again",
                          gpu.label(), describe(*driver.vendor, before->lost_.load())));
}

const DeviceFacts& Gpu::look_up(const Driver& driver, int ordinal) {
  return facts_of(driver, ordinal, slot_of(driver, ordinal));
}

bool Gpu::is_current() const noexcept {
  const Slot* const slot = find_slot(vendor(), ordinal());
  return slot != nullptr && slot->gpu.load(std::memory_order_acquire) == this;
}

Pointer Gpu::allocate(std::size_t bytes, std::string_view what) {
  Pointer address = 0;
  check(driver_.allocate(&address, bytes), what);
  Slot& slot = slot_of(driver_, ordinal());
  const std::lock_guard lock(slot.mutex);
  slot.memory.emplace(address, this);
  return address;
}

void Gpu::release(const Vendor& vendor, int ordinal, Pointer memory) noexcept {
  Slot* const slot = find_slot(vendor, ordinal);
  if (slot == nullptr) return;
  Gpu* owner = nullptr;
  {
    const std::lock_guard lock(slot->mutex);
    const auto [begin, end] = slot->memory.equal_range(memory);
    if (begin == end) return;
    Gpu* const current = slot->gpu.load();
    const auto gone =
        std::find_if(begin, end, [current](const auto& item) { return item.second != current; });
    if (gone == end) owner = current;
    slot->memory.erase(gone == end ? begin : gone);
  }
  if (owner == nullptr) return;
  try {
    const CurrentContext current(*owner);
    owner->note_failure(owner->driver().free(memory));
  } catch (const Error&) {
    // The context is gone, and the memory with it.
  }
}

Pointer Gpu::workspace(Stream stream, std::size_t bytes, const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  StreamState& state = streams_[key_of(stream)];
  if (bytes <= state.workspace_bytes) return state.workspaces.back();
  if (is_capturing(stream, kernel)) {
    throw Error(ErrorCode::launch_failed,
                fmt::format("{}: needs {} bytes of workspace on this stream, which has {}, and "
                            "nothing can be allocated while the stream is captured; launch it once "
                            "before the capture",
                            kernel, bytes, state.workspace_bytes));
  }
  // At least twice the previous size, so that all older pieces together are at most as large as the
  // newest.
  const std::size_t wanted = std::max(bytes, 2 * state.workspace_bytes);
  Pointer address = 0;
  check(driver_.allocate(&address, wanted),
        fmt::format("{}: cannot allocate {} bytes of workspace", kernel, wanted));
  if (const Result result = driver_.fill(address, 0, wanted, stream); result != kSuccess) {
    driver_.free(address);
    check(result, fmt::format("{}: cannot clear its workspace", kernel));
  }
  state.workspaces.push_back(address);
  state.workspace_bytes = wanted;
  return address;
}

void Gpu::note_launch(Stream stream, const std::shared_ptr<const std::string>& kernel) {
  const std::lock_guard lock(mutex_);
  StreamState& state = streams_[key_of(stream)];
  if (state.last_kernel != kernel) state.last_kernel = kernel;
  constexpr std::size_t kManyStreams = 1024;
  if (streams_.size() > kManyStreams) forget_idle_streams();
}

// The library does not hear of destroyed streams. Streams that hold no memory are forgotten here.
void Gpu::forget_idle_streams() {
  std::erase_if(streams_, [](const auto& item) { return item.second.workspaces.empty(); });
}

std::string Gpu::last_kernel(Stream stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(key_of(stream));
  const bool known = found != streams_.end() && found->second.last_kernel != nullptr;
  return known ? *found->second.last_kernel : std::string();
}

bool Gpu::is_capturing(Stream stream, const std::string& kernel) {
  int status = 0;
  check(driver_.stream_is_capturing(stream, &status),
        fmt::format("{}: cannot ask whether its stream is captured", kernel));
  return status != 0;
}

void Gpu::note_failure(Result result) noexcept {
  if (is_sticky(vendor(), result)) lost_.store(result, std::memory_order_release);
}

void Gpu::note_reported(Result result) noexcept {
  note_failure(result);
  if (is_sticky(vendor(), result)) seen_by_this_thread(vendor(), ordinal()) = nullptr;
}

void Gpu::check(Result result, std::string_view what, std::string_view detail) {
  if (result == kSuccess) return;
  note_reported(result);
  std::string hint;
  if (is_of_stream(result)) {
    hint = fmt::format("; check that the stream still exists and belongs to {}",
                       vendor().stream_owner);
  }
  throw Error(code_of(vendor(), result), fmt::format("{} on {}: {}{}{}", what, label(), detail,
                                                     gpu::describe(vendor(), result), hint));
}

// False for a pointer that the driver does not know.
bool Gpu::ask(PointerAttribute which, const void* pointer, int& value, const std::string& kernel) {
  const Result result =
      driver_.pointer_attribute(&value, which, reinterpret_cast<Pointer>(pointer));
  if (result == kInvalidValue) return false;
  check(result, fmt::format("{}: cannot ask the driver whose memory {} is", kernel, pointer));
  return true;
}

// Host memory that the driver knows (pinned or managed) can be read by every device; other host
// memory is refused as a mistake, even on systems whose devices could page it in.
void Gpu::check_pointer(const void* pointer, const std::string& kernel) {
  if (pointer == nullptr) return;
  CheckedPointer& place = checked_place(pointer);
  if (place.pointer == pointer && place.gpu == this) return;
  int owner = 0;
  if (!ask(kDeviceOrdinal, pointer, owner, kernel)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the pointer {} is not memory of a GPU; copy the operand to {}",
                            kernel, pointer, label()));
  }
  int memory = 0, access = 0;
  const bool ours = owner == ordinal();
  const bool of_host = ask(kMemoryType, pointer, memory, kernel) && memory == kMemoryOfHost;
  if (!ours && !of_host && !(ask(kAccessFlags, pointer, access, kernel) && access != 0)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the pointer {} is memory of device {}, the kernel was to run on "
                            "device {}; launch it there, or copy the operand",
                            kernel, pointer, owner, ordinal()));
  }
  place = {pointer, this};
}

void Gpu::check_workspace(const void* pointer, const std::string& kernel) {
  CheckedPointer& known = t_checked_workspace;
  if (known.pointer == pointer && known.gpu == this) return;
  int owner = 0, memory = 0;
  const bool is_known = ask(kDeviceOrdinal, pointer, owner, kernel);
  if (!is_known || (ask(kMemoryType, pointer, memory, kernel) && memory == kMemoryOfHost)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the workspace at {} is not memory of a GPU; allocate it on {}",
                            kernel, pointer, label()));
  }
  if (owner != ordinal()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the workspace at {} is memory of device {}, the kernel was to run "
                            "on device {}; allocate it there",
                            kernel, pointer, owner, ordinal()));
  }
  known = {pointer, this};
}

CurrentContext::CurrentContext(Gpu& gpu) : gpu_(gpu) {
  const Context wanted = gpu.context();
  if (gpu.driver().context_get_current(&before_) == kSuccess && before_ == wanted) return;
  gpu.check(gpu.driver().context_push(wanted), "cannot make the context current");
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  if (pushed_) gpu_.note_failure(gpu_.driver().context_pop(&before_));
}

}  // namespace tessera::runtime::gpu
