// The caller's memory as a workspace: which launches use it, and which part of it must be zero.
#pragma once

#include <list>
#include <mutex>
#include <string>

#include "tessera/families/launch.h"
#include "tessera/runtime/gpu_device_internal.h"
#include "tessera/runtime/runtime.h"

namespace tessera::runtime::gpu {

inline constexpr std::size_t kWorkspaceAlignment = 256;

// A launch's hold on the caller's memory, until the launch is enqueued. A launch that is captured
// in a graph holds nothing, because it runs with the graph. Throws Error{invalid_argument} for
// memory of another device or of the host, and Error{launch_failed} while a launch on another
// stream uses the memory.
class WorkspaceLease {
 public:
  WorkspaceLease(Gpu& gpu, Stream stream, const LaunchOptions& options, const std::string& kernel);
  ~WorkspaceLease();
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

 private:
  Gpu& gpu_;
  Stream stream_;
  WorkspaceUses::Use* use_ = nullptr;
};

// Sets the counters and the first clear_bytes of the data to zero, in the stream's order. The
// counters of the library's own workspaces are zero already.
void clear_workspace(Gpu& gpu, Stream stream, const Launch::Workspace& workspace, Pointer address,
                     bool is_callers, const std::string& kernel);

}  // namespace tessera::runtime::gpu
