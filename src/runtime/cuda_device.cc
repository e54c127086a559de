#include <fmt/format.h>

#include <array>
#include <charconv>

#include "tessera/base/forever.h"
#include "tessera/runtime/cuda_device_internal.h"

namespace tessera::runtime::cuda {
namespace {

int attribute(const Driver& driver, Device device, DeviceAttribute which) {
  int value = 0;
  check(driver.device_attribute(&value, which, device), "cannot ask the driver about a device");
  return value;
}

using Devices = std::vector<std::unique_ptr<Gpu>>;

std::atomic<const Devices*> g_devices = nullptr;

const Devices& devices(const Driver& driver) {
  static const Forever<Devices> all([&driver] {
    int count = 0;
    check(driver.device_count(&count), "cannot count the CUDA devices");
    Devices found;
    for (int i = 0; i < count; ++i) found.push_back(std::make_unique<Gpu>(driver, i));
    return found;
  }());
  g_devices.store(&*all, std::memory_order_release);
  return *all;
}

// Pointers that a thread has found good, by device and context; each place keeps the last one.
struct CheckedPointer {
  const void* pointer = nullptr;
  int ordinal = 0;
  unsigned generation = 0;
};
constexpr std::size_t kCheckedPointers = 256;
thread_local std::array<CheckedPointer, kCheckedPointers> t_checked;

CheckedPointer& checked_place(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return t_checked[(address >> 4 ^ address >> 13 ^ address >> 21) % kCheckedPointers];
}

}  // namespace

std::string to_string(Capability capability) {
  return fmt::format("{}.{}", capability.major, capability.minor);
}

Architecture architecture_of(const Target& target) {
  for (const std::string& feature : target.features) {
    int number = 0;
    const char* const end = feature.data() + feature.size();
    if (!feature.starts_with("sm_")) continue;
    const auto [rest, error] = std::from_chars(feature.data() + 3, end, number);
    if (error != std::errc() || number < 10 || end - rest > 1 || (rest != end && *rest != 'a')) {
      continue;
    }
    return {feature, {number / 10, number % 10}, rest != end};
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("target '{}' must name its architecture among its features, as in "
                          "\"sm_90a\"",
                          target.name));
}

bool runs_on(const Architecture& architecture, Capability capability) {
  const Capability& wanted = architecture.capability;
  if (wanted.major != capability.major) return false;
  return architecture.exact ? wanted.minor == capability.minor : wanted.minor <= capability.minor;
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  const std::string what = fmt::format("cannot ask the driver about device {}", ordinal);
  std::array<char, 128> name{};
  check(driver.device_get(&device_, ordinal), what);
  check(driver.device_name(name.data(), static_cast<int>(name.size()) - 1, device_), what);
  name_ = name.data();
  capability_ = {attribute(driver, device_, kCapabilityMajor),
                 attribute(driver, device_, kCapabilityMinor)};
  units_ = attribute(driver, device_, kMultiprocessors);
  l2_bytes_ = static_cast<std::size_t>(attribute(driver, device_, kL2Bytes));
}

Gpu& Gpu::use(const Driver& driver, int ordinal) {
  Gpu& gpu = look_up(driver, ordinal);
  const bool ready = gpu.context() != nullptr && !gpu.lost_.load(std::memory_order_acquire);
  if (!ready) gpu.ready_context();
  return gpu;
}

Gpu& Gpu::look_up(const Driver& driver, int ordinal) {
  const Devices& all = devices(driver);
  const auto count = static_cast<int>(all.size());
  if (ordinal < 0 || ordinal >= count) {
    throw Error(
        ErrorCode::invalid_argument,
        count == 0
            ? fmt::format("no CUDA device: device {} was asked for, the driver finds none", ordinal)
            : fmt::format("device {} was asked for, this machine has devices 0 to {}", ordinal,
                          count - 1));
  }
  return *all[static_cast<std::size_t>(ordinal)];
}

Gpu* Gpu::find(int ordinal) noexcept {
  const Devices* all = g_devices.load(std::memory_order_acquire);
  if (all == nullptr || !is_usable() || ordinal < 0) return nullptr;
  const auto index = static_cast<std::size_t>(ordinal);
  if (index >= all->size() || (*all)[index]->context() == nullptr) return nullptr;
  return (*all)[index].get();
}

// The primary context is shared with everyone else in the process. It goes away, with its error,
// when the last of them lets go of it; taking it from them would pull the ground from under them.
void Gpu::ready_context() {
  const std::lock_guard lock(mutex_);
  const bool was_lost = lost_.load();
  if (context() != nullptr && !was_lost) return;
  if (was_lost) {
    context_.store(nullptr);
    if (retained_) driver_.context_release(device_);
    retained_ = false;
    streams_.clear();
    unsigned flags = 0;
    int active = 0;
    driver_.context_state(device_, &flags, &active);
    if (active != 0) {
      throw Error(ErrorCode::launch_failed,
                  fmt::format("{} is unusable since a kernel failed on it: its context cannot be "
                              "rebuilt, because another part of this process holds it too; restart "
                              "the process",
                              label()));
    }
  }
  Context made = nullptr;
  if (const Result result = driver_.context_retain(&made, device_); result != kSuccess) {
    throw Error(ErrorCode::unsupported,
                fmt::format("cannot make a context on {}: {}", label(), describe(result)));
  }
  retained_ = true;
  generation_.fetch_add(1);
  context_.store(made, std::memory_order_release);
  lost_.store(false, std::memory_order_release);
}

std::string Gpu::label() const {
  return fmt::format("device {} ({}, compute capability {})", ordinal_, name_,
                     to_string(capability_));
}

Pointer Gpu::workspace(Stream stream, std::size_t bytes, const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  StreamState& state = streams_[stream];
  if (bytes <= state.workspace_bytes) return state.workspaces.back();
  if (is_capturing(stream)) {
    throw Error(ErrorCode::launch_failed,
                fmt::format("{}: needs {} bytes of workspace on this stream, which has {}, and "
                            "nothing can be allocated while the stream is captured; launch it once "
                            "before the capture",
                            kernel, bytes, state.workspace_bytes));
  }
  // At least twice the last one, so that all that is kept together is as large as the newest.
  const std::size_t wanted = std::max(bytes, 2 * state.workspace_bytes);
  Pointer address = 0;
  if (const Result result = driver_.allocate(&address, wanted); result != kSuccess) {
    note_failure(result);
    check(result,
          fmt::format("{}: cannot allocate {} bytes of workspace on {}", kernel, wanted, label()));
  }
  if (const Result result = driver_.fill(address, 0, wanted, stream); result != kSuccess) {
    driver_.free(address);
    note_failure(result);
    check(result, fmt::format("{}: cannot clear its workspace on {}", kernel, label()));
  }
  state.workspaces.push_back(address);
  state.workspace_bytes = wanted;
  return address;
}

void Gpu::note_launch(Stream stream, const std::shared_ptr<const std::string>& kernel) {
  const std::lock_guard lock(mutex_);
  StreamState& state = streams_[stream];
  if (state.last_kernel != kernel) state.last_kernel = kernel;
  constexpr std::size_t kManyStreams = 1024;
  if (streams_.size() > kManyStreams) forget_idle_streams();
}

// Streams come and go, and nobody tells us: those that hold no memory are forgotten.
void Gpu::forget_idle_streams() {
  std::erase_if(streams_, [](const auto& item) { return item.second.workspaces.empty(); });
}

std::string Gpu::last_kernel(Stream stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  const bool known = found != streams_.end() && found->second.last_kernel != nullptr;
  return known ? *found->second.last_kernel : std::string();
}

bool Gpu::is_capturing(Stream stream) const {
  int status = 0;
  return driver_.stream_is_capturing(stream, &status) == kSuccess && status != 0;
}

void Gpu::note_failure(Result result) noexcept {
  if (is_sticky(result)) lost_.store(true, std::memory_order_release);
}

// Host memory that the driver knows (pinned or managed) can be read by every device; other host
// memory never is meant, even on systems where the device could page it in.
void Gpu::check_pointer(const void* pointer, const std::string& kernel) const {
  if (pointer == nullptr) return;
  CheckedPointer& place = checked_place(pointer);
  const CheckedPointer wanted{pointer, ordinal_, generation()};
  if (place.pointer == wanted.pointer && place.ordinal == wanted.ordinal &&
      place.generation == wanted.generation) {
    return;
  }
  const auto ask = [&](PointerAttribute which, int& value) {
    return driver_.pointer_attribute(&value, which, reinterpret_cast<Pointer>(pointer)) == kSuccess;
  };
  int owner = 0;
  if (!ask(kDeviceOrdinal, owner)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the pointer {} is not memory of a GPU; copy the operand to {}",
                            kernel, pointer, label()));
  }
  int memory = 0, access = 0;
  const bool ours = owner == ordinal_;
  const bool of_host = ask(kMemoryType, memory) && memory == kMemoryOfHost;
  if (!ours && !of_host && !(ask(kAccessFlags, access) && access != 0)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the pointer {} is memory of device {}, the kernel was to run on "
                            "device {}; launch it there, or copy the operand",
                            kernel, pointer, owner, ordinal_));
  }
  place = wanted;
}

CurrentContext::CurrentContext(const Gpu& gpu) : driver_(gpu.driver()) {
  const Context wanted = gpu.context();
  Context before = nullptr;
  if (driver_.context_get_current(&before) == kSuccess && before == wanted) return;
  check(driver_.context_push(wanted), "cannot make the device's context current");
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  Context popped = nullptr;
  if (pushed_) driver_.context_pop(&popped);
}

}  // namespace tessera::runtime::cuda
