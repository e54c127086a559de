// GPUs through their drivers. gpu_kernel.cc holds the way of a launch, gpu_device.cc the state of a
// device, and cuda_driver.cc and hip_driver.cc what differs between the makers.
#include <fmt/format.h>

#include <utility>

#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/runtime/backends_internal.h"
#include "tessera/runtime/gpu_kernel_internal.h"

namespace tessera::runtime {
namespace {

using namespace gpu;

Stream stream_of(const LaunchOptions& options) { return static_cast<Stream>(options.stream); }

Pointer pointer_of(const void* memory) { return reinterpret_cast<Pointer>(memory); }

// The devices: the driver's list once the driver is in use, before that what is known without it;
// and a sentence when the driver cannot list them.
struct Seen {
  std::vector<DeviceFacts> devices;
  std::string failure;
};
Seen devices_listed(const Vendor& vendor) {
  Seen seen;
  try {
    seen.devices = list_devices(vendor);
  } catch (const Error& error) {
    seen.failure = error.what();
  }
  return seen;
}

Seen devices_seen(const Vendor& vendor) {
  if (!is_usable(vendor) && vendor.probe != nullptr) {
    if (auto probed = vendor.probe()) return {std::move(*probed), {}};
  }
  return devices_listed(vendor);
}

bool are_alike(const std::vector<DeviceFacts>& devices) {
  return std::all_of(devices.begin(), devices.end(), [&](const DeviceFacts& device) {
    return device.name == devices.front().name;
  });
}

std::string why_no_device_runs(const Vendor& vendor, const Target& target,
                               const Architecture& architecture) {
  const Seen seen = devices_seen(vendor);
  std::vector<std::string> names;
  for (const DeviceFacts& device : seen.devices) {
    if (vendor.why_not(architecture, device).empty()) return {};
    names.push_back(device.brief + device.note);
  }
  const std::string needs =
      fmt::format("target '{}' needs a GPU of {}", target.name, vendor.wanted(architecture));
  if (!seen.failure.empty()) return fmt::format("{}: {}", needs, seen.failure);
  if (names.empty()) {
    return fmt::format("{}, this machine has no {} device: check that it is visible ({})", needs,
                       vendor.api, vendor.visibility);
  }
  return fmt::format("{}{}, this machine has {}", needs, architecture.exact ? " exactly" : "",
                     join(names, ", "));
}

// The state of one operation on a device.
class OnDevice {
 public:
  OnDevice(const Vendor& vendor, const LaunchOptions& options)
      : driver_(gpu::driver(vendor)),
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

class GpuEvent final : public Event {
 public:
  GpuEvent(const Vendor& vendor, const LaunchOptions& options) : vendor_(vendor) {
    make(OnDevice(vendor, options));
  }
  ~GpuEvent() override {
    if (gpu_->is_current()) gpu_->note_failure(gpu_->driver().event_destroy(event_));
  }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  // An event belongs to a context. When another context is current now, the event is made anew.
  void record(const LaunchOptions& options) override {
    const OnDevice on(vendor_, options);
    if (&on.gpu() != gpu_) make(on);
    on.check(on.driver().event_record(event_, on.stream()), "record an event");
    recorded_on_ = options;
  }

  double seconds_since(const Event& earlier) const override {
    const OnDevice on(vendor_, recorded_on_);
    const auto& begin = static_cast<const GpuEvent&>(earlier);
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

  const Vendor& vendor_;
  Gpu* gpu_ = nullptr;
  LaunchOptions recorded_on_;
  EventHandle event_ = nullptr;
};

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(const Vendor& vendor) : vendor_(vendor) {}

  std::string name() const override { return std::string(vendor_.backend); }

  std::string unavailable_reason(const Target& target) const override {
    if (target.backend != name()) {
      return fmt::format("target '{}' needs the backend '{}', this is '{}'", target.name,
                         target.backend, name());
    }
    const std::string& no_driver = vendor_.library().reason;
    if (!no_driver.empty()) {
      return fmt::format("target '{}' needs {}: {}", target.name, vendor_.gpu, no_driver);
    }
    try {
      return why_no_device_runs(vendor_, target, vendor_.architecture_of(target));
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
    return load_kernel(vendor_, artifact, vendor_.architecture_of(target));
  }

  void synchronize(const LaunchOptions& options) const override {
    OnDevice(vendor_, options).wait();
  }

  bool uses_host_memory() const override { return false; }

  void* allocate(std::size_t bytes, const LaunchOptions& options) const override {
    if (bytes == 0) return nullptr;
    const OnDevice on(vendor_, options);
    const std::string what = fmt::format("cannot allocate {} bytes", bytes);
    return reinterpret_cast<void*>(on.gpu().allocate(bytes, what));
  }

  void release(void* memory, const LaunchOptions& options) const noexcept override {
    if (memory != nullptr) Gpu::release(vendor_, options.device, pointer_of(memory));
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(vendor_, options);
    on.check(on.driver().copy_to_device(pointer_of(to), from, bytes, on.stream()),
             fmt::format("copy {} bytes to the device", bytes));
    on.wait();
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(vendor_, options);
    on.check(on.driver().copy_to_host(to, pointer_of(from), bytes, on.stream()),
             fmt::format("copy {} bytes from the device", bytes));
    on.wait();
  }

  void fill(void* to, unsigned char value, std::size_t bytes,
            const LaunchOptions& options) const override {
    if (bytes == 0) return;
    const OnDevice on(vendor_, options);
    on.check(on.driver().fill(pointer_of(to), value, bytes, on.stream()), "fill memory");
  }

  bool is_capturing(const LaunchOptions& options) const override {
    const OnDevice on(vendor_, options);
    return on.gpu().is_capturing(on.stream(), "a launch");
  }

  std::unique_ptr<Event> make_event(const LaunchOptions& options) const override {
    return std::make_unique<GpuEvent>(vendor_, options);
  }

  std::size_t cache_bytes(const LaunchOptions& options) const override {
    return Gpu::look_up(gpu::driver(vendor_), options.device).l2_bytes;
  }

  // May be asked on any machine: it makes no context and needs no driver. HIP is initialised, which
  // makes no context either. So is CUDA's driver on a machine with GPUs of several models, because
  // only the driver knows their order.
  std::string device_name(const LaunchOptions& options) const override {
    if (is_usable(vendor_)) return Gpu::look_up(gpu::driver(vendor_), options.device).name;
    if (!vendor_.library().reason.empty()) return {};
    std::vector<DeviceFacts> devices = devices_seen(vendor_).devices;
    if (!are_alike(devices)) devices = devices_listed(vendor_).devices;
    const auto index = static_cast<std::size_t>(options.device);
    return index < devices.size() ? devices[index].name : std::string();
  }

 private:
  const Vendor& vendor_;
};

}  // namespace

namespace gpu {

std::vector<DeviceFacts> list_devices(const Vendor& vendor) {
  const Driver& driver = gpu::driver(vendor);
  int count = 0;
  check(vendor, driver.device_count(&count),
        fmt::format("cannot count the {} devices", vendor.api));
  std::vector<DeviceFacts> devices;
  for (int i = 0; i < count; ++i) devices.push_back(vendor.facts(driver, i));
  return devices;
}

}  // namespace gpu

const Backend& cuda_backend() {
  static const Forever<GpuBackend> backend(cuda_vendor());
  return *backend;
}

const Backend& hip_backend() {
  static const Forever<GpuBackend> backend(hip_vendor());
  return *backend;
}

}  // namespace tessera::runtime
