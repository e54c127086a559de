// A GPU as this process sees it: its context, retained at the first use, and the state of each
// stream. Nothing here touches a device before the first launch or allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/runtime/gpu_driver_internal.h"

namespace tessera::runtime::gpu {

// A key that identifies a stream. The per-thread default stream has a different key in every
// thread.
std::uintptr_t key_of(Stream stream);

// For memory that callers brought as a workspace: the last launch of each stream in it. See
// WorkspaceLease.
struct WorkspaceUses {
  struct Use {
    Pointer begin = 0, end = 0;
    Stream stream = nullptr;
    std::uintptr_t key = 0;
    EventHandle done = nullptr;  // recorded behind the last launch
    int launching = 0;           // launches that are being enqueued
  };
  std::mutex mutex;
  std::list<Use> list;
};

// A device in one of its contexts, and everything that belongs to that context. An object outlives
// its context. Its holder can ask whether the context is still the device's, so that a late failure
// in a lost context is not blamed on the next context.
class Gpu {
 public:
  // Retains the device's context. Replaces a lost context when nobody else in the process holds it.
  // Throws Error{invalid_argument} when no device has the number and Error{unsupported} when the
  // driver gives no context. Throws Error{launch_failed} once in each thread that used a context
  // which another thread has lost since.
  static Gpu& use(const Driver& driver, int ordinal);
  // The device's properties; makes no context.
  static const DeviceFacts& look_up(const Driver& driver, int ordinal);

  Gpu(const Driver& driver, const DeviceFacts& facts, Context context)
      : driver_(driver), facts_(facts), context_(context) {}

  const Driver& driver() const { return driver_; }
  int ordinal() const { return facts_.ordinal; }
  const DeviceFacts& facts() const { return facts_; }
  const Vendor& vendor() const { return *driver_.vendor; }
  int units() const { return facts_.units; }
  Context context() const { return context_; }
  std::string label() const { return facts_.label(); }
  // Whether the device still has this context, as far as is known. False in a forked child.
  bool is_current() const noexcept;

  // Device memory. Memory of an earlier, lost context is gone already, so releasing it does
  // nothing, even if the driver has given the address out again.
  Pointer allocate(std::size_t bytes, std::string_view what);
  static void release(const Vendor& vendor, int ordinal, Pointer memory) noexcept;

  // Device memory for kernels on this stream, zeroed when it is allocated. Grows on demand. Smaller
  // memory is kept, because captured graphs may still use it. Throws Error{launch_failed} when the
  // memory must grow while the stream is being captured.
  Pointer workspace(Stream stream, std::size_t bytes, const std::string& kernel);

  // The kernel that ran last on a stream; errors that show later name it.
  void note_launch(Stream stream, const std::shared_ptr<const std::string>& kernel);
  std::string last_kernel(Stream stream) const;

  bool is_capturing(Stream stream, const std::string& kernel);

  // To be called after a failure. If the context is lost, the next use() replaces it, and tells
  // every thread that used the lost one.
  void note_failure(Result result) noexcept;
  // The same when this thread's caller gets the error, so that use() need not tell this thread
  // again.
  void note_reported(Result result) noexcept;
  // Throws "<what> on <device>: <detail><reason>" unless the call succeeded.
  void check(Result result, std::string_view what, std::string_view detail = {});

  // Throws Error{invalid_argument} for a pointer that kernels on this device cannot read: of the
  // host, or of another device. The thread remembers pointers that passed.
  void check_pointer(const void* pointer, const std::string& kernel);
  // The same for a caller's workspace, which must be memory of this very device.
  void check_workspace(const void* pointer, const std::string& kernel);
  WorkspaceUses& workspace_uses() { return workspace_uses_; }

 private:
  struct StreamState {
    std::vector<Pointer> workspaces;  // the last one is in use
    std::size_t workspace_bytes = 0;
    std::shared_ptr<const std::string> last_kernel;
  };
  static Gpu& ready(const Driver& driver, int ordinal);
  void forget_idle_streams();
  bool ask(PointerAttribute which, const void* pointer, int& value, const std::string& kernel);

  const Driver& driver_;
  const DeviceFacts& facts_;
  const Context context_;
  std::atomic<Result> lost_ = kSuccess;  // the result that lost the context
  mutable std::mutex mutex_;             // guards all below
  std::unordered_map<std::uintptr_t, StreamState> streams_;
  WorkspaceUses workspace_uses_;
};

// Makes the device's context current on this thread until the end of the scope, and then restores
// the previous one.
class CurrentContext {
 public:
  explicit CurrentContext(Gpu& gpu);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  Gpu& gpu_;
  Context before_ = nullptr;
  bool pushed_ = false;
};

}  // namespace tessera::runtime::gpu
