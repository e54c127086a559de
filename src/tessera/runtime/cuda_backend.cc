// NVIDIA GPUs through the driver's API. cuda_kernel.cc holds the way of a launch, cuda_device.cc
// the state of a device.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/runtime/backends_internal.h"
#include "tessera/runtime/cuda_info.h"
#include "tessera/runtime/cuda_kernel_internal.h"
#include "tessera/runtime/cuda_probe_internal.h"

namespace tessera::runtime {
namespace {

using namespace cuda;

Stream stream_of(const LaunchOptions& options) { return static_cast<Stream>(options.stream); }

Pointer pointer_of(const void* memory) { return reinterpret_cast<Pointer>(memory); }

// The devices: the driver's list once the driver is in use, before that NVML's list; and a sentence
// when the driver cannot list them.
struct Seen {
  std::vector<Capability> capabilities;
  std::string failure;
};
Seen devices_seen() {
  Seen seen;
  if (!is_usable()) {
    if (const auto probed = probe_devices()) {
      for (const ProbedDevice& device : *probed) seen.capabilities.push_back(device.capability);
      return seen;
    }
  }
  const CudaInfo info = cuda_info();
  for (const CudaDevice& device : info.devices) {
    seen.capabilities.push_back({device.major, device.minor});
  }
  seen.failure = info.unavailable;
  return seen;
}

std::string why_no_device_runs(const Target& target, const Architecture& architecture) {
  const Seen seen = devices_seen();
  std::vector<std::string> names;
  for (const Capability capability : seen.capabilities) {
    if (runs_on(architecture, capability)) return {};
    names.push_back(to_string(capability));
  }
  if (!seen.failure.empty()) {
    return fmt::format("target '{}' needs a GPU of compute capability {}: {}", target.name,
                       to_string(architecture.capability), seen.failure);
  }
  if (names.empty()) {
    return fmt::format(
        "target '{}' needs a GPU of compute capability {}, this machine has no CUDA device: check "
        "that it is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)",
        target.name, to_string(architecture.capability));
  }
  return fmt::format("target '{}' needs a GPU of compute capability {}{}, this machine has {}",
                     target.name, to_string(architecture.capability),
                     architecture.exact ? " exactly" : "", join(names, ", "));
}

// The state of one operation on a device.
class OnDevice {
 public:
  explicit OnDevice(const LaunchOptions& options)
      : driver_(cuda::driver()),
        gpu_(Gpu::use(driver_, options.device)),
        current_(gpu_),
        stream_(stream_of(options)) {}

  const Driver& driver() const { return driver_; }
  Gpu& gpu() const { return gpu_; }
  Stream stream() const { return stream_; }

  // For calls that only enqueue or allocate.
  void check(Result result, std::string_view what) const {
    if (result != kSuccess) gpu_.check(result, fmt::format("cannot {}", what));
  }

  // Failures of kernels show when one waits for the stream.
  void wait() const {
    const Result result = driver_.stream_synchronize(stream_);
    if (result == kSuccess) return;
    const std::string last = gpu_.last_kernel(stream_);
    gpu_.check(result, last.empty() ? "the work failed"
                                    : fmt::format("kernel '{}', the last one launched on its "
                                                  "stream, failed",
                                                  last));
  }

 private:
  const Driver& driver_;
  Gpu& gpu_;
  CurrentContext current_;
  Stream stream_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const LaunchOptions& options) { make(OnDevice(options)); }
  ~CudaEvent() override {
    if (gpu_->is_current()) gpu_->note_failure(gpu_->driver().event_destroy(event_));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // An event belongs to a context. When another context is current now, the event is made anew.
  void record(const LaunchOptions& options) override {
    const OnDevice on(options);
    if (&on.gpu() != gpu_) make(on);
    on.check(on.driver().event_record(event_, on.stream()), "record an event");
    recorded_on_ = options;
  }

  double seconds_since(const Event& earlier) const override {
    const OnDevice on(recorded_on_);
    const auto& begin = static_cast<const CudaEvent&>(earlier);
    if (&on.gpu() != gpu_ || begin.gpu_ != gpu_) {
      throw Error(ErrorCode::launch_failed,
                  fmt::format("cannot read the time between two events on {}: they must be of one "
                              "context, and one of theirs was lost since; record both again",
                              on.gpu().label()));
    }
    const Result result = on.driver().event_synchronize(event_);
    if (result != kSuccess) on.wait();  // throws, naming the kernel
    on.check(result, "wait for an event");
    float milliseconds = 0;
    on.check(on.driver().event_elapsed(&milliseconds, begin.event_, event_),
             "read the time between two events");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  void make(const OnDevice& on) {
    EventHandle made = nullptr;
    on.check(on.driver().event_create(&made, 0), "make an event");
    if (gpu_ != nullptr && gpu_->is_current()) gpu_->driver().event_destroy(event_);
    gpu_ = &on.gpu();
    event_ = made;
  }

  Gpu* gpu_ = nullptr;
  LaunchOptions recorded_on_;
  EventHandle event_ = nullptr;
};

class CudaBackend final : public Backend {
 public:
  std::string name() const override { return "cuda"; }

  std::string unavailable_reason(const Target& target) const override {
    if (target.backend != name()) {
      return fmt::format("target '{}' needs the backend '{}', this is '{}'", target.name,
                         target.backend, name());
    }
    const std::string& no_driver = driver_library().reason;
    if (!no_driver.empty()) {
      return fmt::format("target '{}' needs an NVIDIA GPU: {}", target.name, no_driver);
    }
    try {
      return why_no_device_runs(target, architecture_of(target));
    } catch (const Error& error) {
      return fmt::format("target '{}' cannot run here: {}", target.name, error.what());
    }
  }

  std::shared_ptr<const LoadedKernel> load(const jit::Artifact& artifact,
                                           const Target& target) const override {
    const std::string reason = unavailable_reason(target);
    if (!reason.empty()) {
      throw Error(ErrorCode::load_failed,
                  fmt::format("cannot load kernel '{}': {}", artifact.name, reason));
    }
    return load_kernel(artifact, architecture_of(target));
  }

  void synchronize(const LaunchOptions& options) const override { OnDevice(options).wait(); }

  bool uses_host_memory() const override { return false; }

  void* allocate(std::size_t bytes, const LaunchOptions& options) const override {
    if (bytes == 0) return nullptr;
    const OnDevice on(options);
    const std::string what = fmt::format("cannot allocate {} bytes", bytes);
    return reinterpret_cast<void*>(on.gpu().allocate(bytes, what));
  }

  void release(void* memory, const LaunchOptions& options) const noexcept override {
    if (memory != nullptr) Gpu::release(options.device, pointer_of(memory));
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(options);
    on.check(on.driver().copy_to_device(pointer_of(to), from, bytes, on.stream()),
             fmt::format("copy {} bytes to the device", bytes));
    on.wait();
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(options);
    on.check(on.driver().copy_to_host(to, pointer_of(from), bytes, on.stream()),
             fmt::format("copy {} bytes from the device", bytes));
    on.wait();
  }

  void fill(void* to, unsigned char value, std::size_t bytes,
            const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(options);
    on.check(on.driver().fill(pointer_of(to), value, bytes, on.stream()), "fill memory");
  }

  std::unique_ptr<Event> make_event(const LaunchOptions& options) const override {
    return std::make_unique<CudaEvent>(options);
  }

  std::size_t cache_bytes(const LaunchOptions& options) const override {
    return Gpu::look_up(cuda::driver(), options.device).l2_bytes;
  }

  // May be asked on any machine: it makes no context and needs no driver.
  std::string device_name(const LaunchOptions& options) const override {
    if (is_usable()) return Gpu::look_up(cuda::driver(), options.device).name;
    if (!driver_library().reason.empty()) return {};
    const auto probed = probe_devices();
    const auto index = static_cast<std::size_t>(options.device);
    return probed && index < probed->size() ? (*probed)[index].name : std::string();
  }
};

CudaDevice device_info(const Driver& driver, int ordinal) {
  const DeviceFacts facts = device_facts(driver, ordinal);
  std::size_t bytes = 0;
  check(driver.device_total_memory(&bytes, facts.device),
        fmt::format("cannot ask the driver about device {}", ordinal));
  return {facts.name, facts.capability.major, facts.capability.minor, facts.units,
          static_cast<std::int64_t>(bytes)};
}

}  // namespace

const Backend& cuda_backend() {
  static const Forever<CudaBackend> backend;
  return *backend;
}

CudaInfo cuda_info() {
  const DriverLibrary& library = driver_library();
  CudaInfo info{.library = library.file, .cuda = {}, .unavailable = library.reason, .devices = {}};
  if (library.functions.driver_version != nullptr) {
    int version = 0;
    library.functions.driver_version(&version);
    info.cuda = version_text(version);
  }
  if (!library.reason.empty()) return info;
  try {
    const Driver& driver = cuda::driver();
    int count = 0;
    check(driver.device_count(&count), "cannot count the CUDA devices");
    for (int i = 0; i < count; ++i) info.devices.push_back(device_info(driver, i));
  } catch (const Error& error) {
    info.unavailable = error.what();
  }
  return info;
}

}  // namespace tessera::runtime
