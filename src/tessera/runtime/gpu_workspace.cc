#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/runtime/gpu_workspace_internal.h"

namespace tessera::runtime::gpu {
namespace {

constexpr unsigned kWithoutTime = 2;  // CU_EVENT_DISABLE_TIMING

bool overlap(const WorkspaceUses::Use& use, Pointer begin, Pointer end) {
  return use.begin < end && begin < use.end;
}

// Whether the last launch is still running. An error of the driver counts as no; later calls report
// it.
bool is_busy(Gpu& gpu, const WorkspaceUses::Use& use) {
  if (use.launching > 0) return true;
  const Result result = gpu.driver().event_query(use.done);
  if (result != kNotReady) gpu.note_failure(result);
  return result == kNotReady;
}

[[noreturn]] void refuse_second_stream(const std::string& kernel, const WorkspaceUses::Use& use,
                                       const LaunchOptions& options) {
  throw Error(ErrorCode::launch_failed,
              fmt::format("{}: a launch on stream {} still works in the workspace at {}, this one "
                          "was to be on stream {}; wait for it, or bring a workspace for each",
                          kernel, fmt::ptr(use.stream), options.workspace, options.stream));
}

// Removes the uses whose launches have ended, except `kept`. Without `kept`, returns one of their
// events for the next use, or null when there is none.
EventHandle forget_all_but(Gpu& gpu, WorkspaceUses& uses, const WorkspaceUses::Use* kept) {
  EventHandle spare = nullptr;
  uses.list.remove_if([&](const WorkspaceUses::Use& use) {
    if (&use == kept || is_busy(gpu, use)) return false;
    if (spare != nullptr || kept != nullptr) {
      gpu.note_failure(gpu.driver().event_destroy(use.done));
    } else {
      spare = use.done;
    }
    return true;
  });
  return spare;
}

// This stream's use of exactly this memory.
WorkspaceUses::Use& use_for(Gpu& gpu, WorkspaceUses& uses, WorkspaceUses::Use wanted,
                            const LaunchOptions& options, const std::string& kernel) {
  WorkspaceUses::Use* found = nullptr;
  bool had_another = false;
  for (WorkspaceUses::Use& use : uses.list) {
    const bool is_same = use.key == wanted.key;
    if (is_same && use.begin == wanted.begin && use.end == wanted.end) found = &use;
    if (is_same || !overlap(use, wanted.begin, wanted.end)) continue;
    if (is_busy(gpu, use)) refuse_second_stream(kernel, use, options);
    had_another = true;
  }
  if (found != nullptr && !had_another) return *found;
  wanted.done = forget_all_but(gpu, uses, found);
  if (found != nullptr) return *found;
  if (wanted.done == nullptr) {
    gpu.check(gpu.driver().event_create(&wanted.done, kWithoutTime),
              fmt::format("{}: cannot make an event for its workspace", kernel));
  }
  return uses.list.emplace_back(wanted);
}

}  // namespace

WorkspaceLease::WorkspaceLease(Gpu& gpu, Stream stream, const LaunchOptions& options,
                               const std::string& kernel)
    : gpu_(gpu), stream_(stream) {
  gpu.check_workspace(options.workspace, kernel);
  if (gpu.is_capturing(stream, kernel)) return;
  const auto begin = reinterpret_cast<Pointer>(options.workspace);
  const WorkspaceUses::Use wanted{begin, begin + options.workspace_bytes, stream, key_of(stream)};
  WorkspaceUses& uses = gpu.workspace_uses();
  const std::lock_guard lock(uses.mutex);
  use_ = &use_for(gpu, uses, wanted, options, kernel);
  ++use_->launching;
}

WorkspaceLease::~WorkspaceLease() {
  if (use_ == nullptr) return;
  const std::lock_guard lock(gpu_.workspace_uses().mutex);
  gpu_.note_failure(gpu_.driver().event_record(use_->done, stream_));
  --use_->launching;
}

void clear_workspace(Gpu& gpu, Stream stream, const Launch::Workspace& workspace, Pointer address,
                     bool is_callers, const std::string& kernel) {
  const std::size_t end = device::kCounterBytes + workspace.clear_bytes;
  const bool clears_data = workspace.clear_bytes > 0;
  const std::size_t counters = is_callers ? workspace.counter_bytes : 0;
  if (!clears_data && counters == 0) return;
  if (counters > device::kCounterBytes || (clears_data ? end : counters) > workspace.bytes) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: {} bytes of counters and {} bytes behind them are to be cleared, "
                            "the workspace has {} bytes, {} of them for counters",
                            kernel, counters, workspace.clear_bytes, workspace.bytes,
                            device::kCounterBytes));
  }
  const auto fill = [&](std::size_t from, std::size_t bytes) {
    gpu.check(gpu.driver().fill(address + from, 0, bytes, stream),
              fmt::format("{}: cannot clear its workspace", kernel));
  };
  if (counters > 0 && clears_data) return fill(0, end);
  if (counters > 0) return fill(0, counters);
  fill(device::kCounterBytes, workspace.clear_bytes);
}

}  // namespace tessera::runtime::gpu
