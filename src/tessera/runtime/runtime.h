// Loading and launching kernels, memory and time, behind one interface per kind of machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/base/limits.h"
#include "tessera/jit/cache.h"
#include "tessera/spec/target.h"

namespace tessera {
struct Launch;  // families/launch.h, which tools.hpp brings along
}

#pragma GCC visibility push(default)
namespace tessera::runtime {

struct LaunchOptions {
  int threads = 0;         // CPU: the most threads, see thread_limit(); 0: OpenMP's own limit
  void* stream = nullptr;  // GPU: the caller's stream; null is the default stream
  int device = 0;
  // The caller's memory for the data that a kernel keeps between its blocks and steps. It lies on
  // the device that runs the kernel, at a multiple of 256 bytes (CPU: 64), and has at least
  // LoadedKernel::workspace_bytes() bytes. Its content does not matter: each launch clears what
  // must be zero, in the stream's order. The launch owns the memory until it has finished. A launch
  // on another stream is refused while the stream that last used the memory is busy; launches
  // within a graph are not checked. With null and 0 the library uses its own memory, one piece for
  // each stream (CPU: for each calling thread).
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  // Whether the caller brings memory: it is his to say how much.
  bool brings_workspace() const { return workspace != nullptr || workspace_bytes > 0; }
};

// A loaded kernel. Its code stays mapped while a shared_ptr to it lives. Immutable, thread-safe.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // Runs the steps in their order. On a CPU it returns when the result is written, on a GPU when
  // the work is enqueued.
  virtual void launch(const Launch& launch, const LaunchOptions& options) const = 0;
  // The bytes of workspace that this launch needs; may be 0.
  virtual std::size_t workspace_bytes(const Launch& launch, const LaunchOptions& options) const = 0;
  // Brings the kernel's code onto the device that such launches run on, which a GPU's kernel
  // otherwise does at its first launch there.
  virtual void place(const LaunchOptions&) const {}
};

// A moment in the order of a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(const LaunchOptions& options) = 0;
  // Waits until both events have passed.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// One kind of machine. The list of backends is explicit: see backends.cc.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  // Empty when this machine can run kernels of the target; else a sentence.
  virtual std::string unavailable_reason(const Target& target) const = 0;
  // Throws Error{load_failed} naming the kernel.
  virtual std::shared_ptr<const LoadedKernel> load(const jit::Artifact& artifact,
                                                   const Target& target) const = 0;
  // Waits for the stream. Throws Error{launch_failed} with the kernel's name when work on the
  // stream has failed.
  virtual void synchronize(const LaunchOptions& options) const = 0;

  // Whether kernels take pointers to the host's memory. Elsewhere operands lie in memory of the
  // device that runs the kernel.
  virtual bool uses_host_memory() const = 0;
  // Memory for kernels, at a multiple of 64 bytes. Throws Error{out_of_memory}.
  virtual void* allocate(std::size_t bytes, const LaunchOptions& options) const = 0;
  virtual void release(void* memory, const LaunchOptions& options) const noexcept = 0;
  // The copies are done when these functions return.
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes,
                              const LaunchOptions& options) const = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes,
                            const LaunchOptions& options) const = 0;
  // Fills the memory in the stream's order.
  virtual void fill(void* to, unsigned char value, std::size_t bytes,
                    const LaunchOptions& options) const = 0;
  virtual std::unique_ptr<Event> make_event(const LaunchOptions& options) const = 0;

  // Bytes of the last cache before the memory.
  virtual std::size_t cache_bytes(const LaunchOptions& options) const = 0;
  // The GPU's model; empty when there is no GPU, and for this machine's processor, which
  // host_info() names. Makes no context.
  virtual std::string device_name(const LaunchOptions& options) const = 0;
  // Whether launches on the stream go into a graph that is being captured.
  virtual bool is_capturing(const LaunchOptions&) const { return false; }
};

// Throws Error{unsupported} for a backend that this build does not have.
const Backend& backend_for(const Target& target);
// The same, null for a backend that this build does not have.
const Backend* find_backend(const Target& target);

// How many threads a launch with these options uses on this machine: at most the larger of the
// processors that this process may use (affinity and control group, read at the first launch) and
// OpenMP's limit (read at each launch), and never more than kMaxThreads. Logs a note when
// options.threads is larger.
int thread_limit(const LaunchOptions& options);

// Makes `threads` the calling thread's OpenMP limit.
void set_default_threads(int threads);

// Memory aligned to 64 bytes, released on destruction. The constructor throws Error{out_of_memory}.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Where work runs: a backend, and a device and stream of it.
struct Place {
  const Backend* backend = nullptr;
  LaunchOptions options;
};
// This machine's processor.
Place host_place();

// Memory of a place that is released on destruction.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Place& place, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  Place place_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::runtime
#pragma GCC visibility pop
