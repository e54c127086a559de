#include "tessera/jit/memory_file_internal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tessera/base/error.h"
#include "tessera/base/files.h"

namespace tessera::jit {
namespace {

constexpr std::size_t kLongestName = 200;  // the system takes 249 bytes

// Kernels in memory use at most the lower half of the process's descriptors, so that a process with
// hundreds of kernels can still open files.
bool is_scarce(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return static_cast<rlim_t>(fd) >= limit.rlim_cur / 2;
}

// Returns -1 where the system has no anonymous files, or descriptors are scarce.
int create_sealed(const std::string& name, std::string_view content) {
  const int fd =
      ::memfd_create(name.substr(0, kLongestName).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (is_scarce(fd)) {
    ::close(fd);
    return -1;
  }
  try {
    write_file_unflushed(fmt::format("/proc/self/fd/{}", fd), content);
  } catch (const Error&) {
    ::close(fd);
    return -1;
  }
  ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

// A pointer that runs `action` when its last copy is destroyed. It is not null, so that the
// artifact shows that it holds something.
template <class Action>
std::shared_ptr<void> on_release(Action action) {
  static char anything;
  return std::shared_ptr<void>(&anything, [action](void*) { action(); });
}

}  // namespace

Artifact memory_artifact(const std::string& name, const std::string& key, std::string_view binary) {
  const int fd = create_sealed(name, binary);
  if (fd >= 0) {
    return {.name = name,
            .key = key,
            .binary = fmt::format("/proc/self/fd/{}", fd),
            .keep = on_release([fd] { ::close(fd); })};
  }
  const fs::path folder = make_unique_folder(temporary_folder(), "tessera-kernel-");
  const std::shared_ptr<void> keep = on_release([folder] { remove_tree(folder); });
  write_file_unflushed(folder / (name.substr(0, kLongestName) + ".so"), binary);
  return {.name = name,
          .key = key,
          .binary = folder / (name.substr(0, kLongestName) + ".so"),
          .keep = keep};
}

fs::path temporary_folder() {
  const std::string wanted = environment("TMPDIR");
  return wanted.empty() ? fs::path("/tmp") : fs::path(wanted);
}

}  // namespace tessera::jit
