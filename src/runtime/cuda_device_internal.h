// A GPU as this process sees it: its context, retained at the first use, and what is remembered for
// each stream. Nothing here touches a device before the first launch or allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/runtime/cuda_driver_internal.h"
#include "tessera/spec/target.h"

namespace tessera::runtime::cuda {

// A compute capability and whether a target's kernels run on it.
struct Capability {
  int major = 0;
  int minor = 0;
};
std::string to_string(Capability capability);  // "9.0"
// The target's "sm_90a" or "sm_80"; throws Error{unsupported} for a row without such a feature.
struct Architecture {
  std::string name;
  Capability capability;
  bool exact = false;  // the a at the end: this capability and no other
};
Architecture architecture_of(const Target& target);
bool runs_on(const Architecture& architecture, Capability capability);

class Gpu {
 public:
  // The device, its context retained; the context is rebuilt when it was lost and nobody else in
  // the process holds it. Throws Error{invalid_argument} for a number that no device has,
  // Error{unsupported} when the context cannot be had.
  static Gpu& use(const Driver& driver, int ordinal);
  // The same without a context.
  static Gpu& look_up(const Driver& driver, int ordinal);
  // Null until a context was made on it, and in a forked child: for clean-up, which never throws.
  static Gpu* find(int ordinal) noexcept;

  Gpu(const Driver& driver, int ordinal);

  const Driver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  Capability capability() const { return capability_; }
  int units() const { return units_; }
  std::size_t l2_bytes() const { return l2_bytes_; }
  Context context() const { return context_.load(std::memory_order_acquire); }
  // Counts contexts, from 1: what belongs to an earlier one is gone.
  unsigned generation() const { return generation_.load(std::memory_order_acquire); }
  std::string label() const;  // "device 0 (NVIDIA H200, compute capability 9.0)"

  // Device memory for kernels on this stream, zeroed when it is allocated. Grows; what it outgrew
  // is kept, because captured graphs may still use it. Throws Error{launch_failed} while the stream
  // is being captured and the memory is not there yet.
  Pointer workspace(Stream stream, std::size_t bytes, const std::string& kernel);

  // What ran last on a stream, for the words about errors that show later.
  void note_launch(Stream stream, const std::shared_ptr<const std::string>& kernel);
  std::string last_kernel(Stream stream) const;

  bool is_capturing(Stream stream) const;

  // After a failure: a lost context is rebuilt by the next use().
  void note_failure(Result result) noexcept;

  // Throws Error{invalid_argument} for a pointer that kernels on this device cannot read: of the
  // host, or of another device. What passed is remembered by the thread.
  void check_pointer(const void* pointer, const std::string& kernel) const;

 private:
  struct StreamState {
    std::vector<Pointer> workspaces;  // the last one counts
    std::size_t workspace_bytes = 0;
    std::shared_ptr<const std::string> last_kernel;
  };
  void ready_context();
  void forget_idle_streams();

  const Driver& driver_;
  int ordinal_;
  Device device_ = 0;
  std::string name_;
  Capability capability_;
  int units_ = 0;
  std::size_t l2_bytes_ = 0;
  std::atomic<Context> context_ = nullptr;
  std::atomic<unsigned> generation_ = 0;
  std::atomic<bool> lost_ = false;
  mutable std::mutex mutex_;  // guards the making of contexts and all below
  bool retained_ = false;
  std::unordered_map<Stream, StreamState> streams_;
};

// The device's context, current on this thread until the end of the scope; what was current before
// is put back.
class CurrentContext {
 public:
  explicit CurrentContext(const Gpu& gpu);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace tessera::runtime::cuda
