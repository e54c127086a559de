#include "tessera/jit/lock_internal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"

namespace tessera::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMark = ".tessera-build";

// Whether `path` still names the file that `fd` has open.
bool is_same_file(int fd, const fs::path& path) {
  struct stat held {
  }, named{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

// Descriptors of files that are or will be locked. A child of fork() shares the locks, so it closes
// its copies; the locks then end with the parent. The Mutex keeps a fork from happening between
// opening a file and adding it here.
struct LockFiles {
  Mutex mutex;
  std::set<int> open;
};

LockFiles& lock_files() {
  static Forever<LockFiles> instance;
  return *instance;
}

void close_in_child() {
  for (const int fd : lock_files().open) ::close(fd);
  lock_files().open.clear();
}

int open_lock_file(const fs::path& path, int flags) {
  at_fork_in_child(close_in_child);
  const std::lock_guard lock(lock_files().mutex);
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) lock_files().open.insert(fd);
  return fd;
}

// False in a child, whose copy was closed.
bool is_ours(int fd) {
  const std::lock_guard lock(lock_files().mutex);
  return lock_files().open.contains(fd);
}

void close_lock_file(int fd) {
  const std::lock_guard lock(lock_files().mutex);
  if (lock_files().open.erase(fd) > 0) ::close(fd);
}

bool try_lock(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

// The lock is released before closing, because another process may hold a copy of the descriptor,
// and closing one copy would keep the lock.
void unlock(int fd) {
  if (!is_ours(fd)) return;
  ::flock(fd, LOCK_UN);
  close_lock_file(fd);
}

bool is_untouched_for_a_day(const fs::path& path) {
  std::error_code error;
  const auto touched = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - touched > std::chrono::hours(24);
}

// Removes a folder that was made but cannot be used, for example because the process has no
// descriptors left.
[[noreturn]] void refuse_new_folder(const fs::path& folder, int error) {
  ::rmdir(folder.c_str());
  throw Error(ErrorCode::io_error, "cannot open " + folder.string() + ", which was just made: " +
                                       std::generic_category().message(error));
}

// Other users may also write to a temporary folder.
bool is_this_users(int folder) {
  struct stat status {};
  return ::fstat(folder, &status) == 0 && status.st_uid == ::geteuid();
}

bool is_marked(int folder) {
  struct stat status {};
  return ::fstatat(folder, kMark, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

void mark(const fs::path& folder) {
  write_file_unflushed(folder / kMark, "Made by Tessera, which removes this folder.\n");
}

// The mark is removed last, so that others can finish the removal if this process is killed.
void remove_marked(const fs::path& folder) noexcept try {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() != kMark) remove_tree(at->path());
  }
  remove_tree(folder);
} catch (...) {
  // Only an allocation can throw here. The next clean-up removes the folder.
}

bool is_dead(const fs::path& folder) {
  const int fd = open_lock_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fd < 0) return false;
  // A process that is killed before it makes the mark leaves an empty folder.
  std::error_code error;
  if (!is_this_users(fd) || (!is_marked(fd) && !fs::is_empty(folder, error))) {
    close_lock_file(fd);
    return false;
  }
  const bool locked = try_lock(fd);
  const bool held_by_another = !locked && errno == EWOULDBLOCK;
  const bool dead = locked || (!held_by_another && is_untouched_for_a_day(folder));
  unlock(fd);
  return dead;
}

bool is_lock_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
}

}  // namespace

FileLock::FileLock(fs::path file, double patience_seconds) : file_(std::move(file)) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(patience_seconds);
  for (;;) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
    if (fd_ < 0) fd_ = open_lock_file(file_, kFlags);
    if (fd_ < 0) return;
    if (!is_lock_file(fd_)) break;
    const bool locked = try_lock(fd_);
    if (!locked && errno != EWOULDBLOCK && errno != EINTR) break;

    // The previous holder may have removed the file, and a lock on a removed file keeps nobody out.
    if (locked && is_same_file(fd_, file_)) return;
    if (locked) {
      unlock(fd_);
      fd_ = -1;
      continue;
    }
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  close_lock_file(fd_);
  fd_ = -1;
}

FileLock::~FileLock() {
  if (fd_ < 0 || !is_ours(fd_)) return;
  ::unlink(file_.c_str());
  unlock(fd_);
}

BuildFolder::BuildFolder(const fs::path& parent, std::string_view prefix) {
  // Before it is locked, a new folder looks abandoned and another process may remove it; then make
  // another.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    outer_ = make_unique_folder(parent, prefix);
    fd_ = open_lock_file(outer_, O_RDONLY | O_DIRECTORY);
    if (fd_ < 0 && errno == ENOENT) continue;
    if (fd_ < 0) refuse_new_folder(outer_, errno);
    const bool locked = try_lock(fd_);
    const bool no_locks_here = !locked && errno != EWOULDBLOCK;
    if ((locked || no_locks_here) && is_same_file(fd_, outer_)) {
      fill();
      return;
    }
    close_lock_file(fd_);
    fd_ = -1;
  }
  throw Error(ErrorCode::io_error, "cannot keep a folder in " + parent.string() +
                                       ": others remove it as fast as it is made");
}

void BuildFolder::fill() try {
  mark(outer_);
  path_ = make_unique_folder(outer_, "entry-");
} catch (...) {
  remove_tree(outer_);
  unlock(fd_);
  throw;
}

BuildFolder::~BuildFolder() {
  if (is_ours(fd_) && is_same_file(fd_, outer_)) remove_marked(outer_);
  unlock(fd_);
}

void remove_dead_build_folders(const fs::path& parent, std::string_view prefix) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    const bool ours = entry.path().filename().string().starts_with(prefix);
    if (ours && entry.is_directory(error) && is_dead(entry.path())) remove_marked(entry.path());
  }
}

}  // namespace tessera::jit
