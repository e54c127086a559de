#include "tessera/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/file_size_signal.h"
#include "tessera/base/parallel.h"

namespace tessera {
namespace {

[[noreturn]] void fail(std::string_view verb, const fs::path& path, int error) {
  throw Error(ErrorCode::io_error, fmt::format("cannot {} {}: {}", verb, path.string(),
                                               std::generic_category().message(error)));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Closes the descriptor on every path out of a function. Where data could be lost, the code checks
// close() itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

constexpr std::size_t kMostWithoutSize = 1 << 28;  // bytes of a device or a pipe

// Returns 0 or the errno that stopped the reading. The size is a guess only: files in /proc say 0,
// and a file may grow while it is read. A device or a pipe may never end.
int read_open(int fd, const struct stat& status, std::string& content) {
  const std::size_t most = S_ISREG(status.st_mode) ? content.max_size() : kMostWithoutSize + 1;
  std::size_t used = 0;
  content.resize(static_cast<std::size_t>(status.st_size) + 1);
  for (;;) {
    if (used == most) return EFBIG;
    if (used == content.size()) content.resize(std::min(content.size() * 2, most));
    const ssize_t got = ::read(fd, content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  content.resize(used);
  return 0;
}

int read_all(const fs::path& path, std::string& content) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno;
  return read_open(fd.get(), status, content);
}

// Failures that say nothing about the file: the process is short of something, or a server is away.
bool is_passing(int error) {
  constexpr std::array kPassing = {EMFILE, ENFILE, ENOMEM, EAGAIN, ESTALE, ETIMEDOUT};
  return std::find(kPassing.begin(), kPassing.end(), error) != kPassing.end();
}

int write_all(int fd, std::string_view content) {
  const HeldFileSizeSignal held;
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Devices and pipes cannot be flushed; that is no failure.
int flush(int fd) {
  if (::fsync(fd) == 0 || errno == EINVAL || errno == EROFS) return 0;
  return errno;
}

enum class Durability { flushed, unflushed };

int write_and_close(Descriptor& fd, std::string_view content, Durability durability) {
  if (const int error = write_all(fd.get(), content)) return error;
  if (durability == Durability::flushed) {
    if (const int error = flush(fd.get())) return error;
  }
  return fd.close() == 0 ? 0 : errno;
}

int write_content(const fs::path& path, std::string_view content, Durability durability) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return fd.get() < 0 ? errno : write_and_close(fd, content, durability);
}

int flush_path(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() < 0 ? errno : flush(fd.get());
}

// The path behind all links, also when the last target does not exist yet.
int follow_links(fs::path& path) {
  constexpr int kMostLinks = 40;  // as many as the system follows
  for (int i = 0; i < kMostLinks; ++i) {
    std::error_code no_link;
    const fs::path target = fs::read_symlink(path, no_link);
    if (no_link) return 0;
    path = path.parent_path() / target;
  }
  return ELOOP;
}

bool names(const fs::path& path, const struct stat& file) {
  struct stat named {};
  return ::lstat(path.c_str(), &named) == 0 && named.st_dev == file.st_dev &&
         named.st_ino == file.st_ino;
}

// Creates a new file with a random name, so that nobody can place a file there before. An existing
// file or link of that name is left alone. The name is short, so that files with the longest
// possible names can be replaced too. Returns the descriptor, or -1 with errno.
int create_temporary(const fs::path& folder, mode_t mode, fs::path& path) {
  constexpr int kTries = 100;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int fd = -1;
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t number = 0;
    if (::getentropy(&number, sizeof number) != 0) return -1;
    path = folder / fmt::format(".tessera-{:016x}", number);
    fd = ::open(path.c_str(), kFlags, mode);
    if (fd >= 0 || errno != EEXIST) break;
  }
  return fd;
}

// The new file has the permissions of the file that it replaces from the first byte on.
int replace_content(const fs::path& destination, std::string_view content,
                    const struct stat* replaced) {
  fs::path temporary;
  Descriptor fd(
      create_temporary(folder_of(destination), replaced != nullptr ? 0600 : 0666, temporary));
  if (fd.get() < 0) return errno;
  if (replaced != nullptr) ::fchmod(fd.get(), replaced->st_mode & 0777);
  int error = write_and_close(fd, content, Durability::flushed);
  if (error == 0 && ::rename(temporary.c_str(), destination.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary.c_str());
  return error;
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::string content;
  const int error = read_all(path, content);
  if (error == EFBIG && content.size() > kMostWithoutSize) {
    throw Error(
        ErrorCode::io_error,
        fmt::format("cannot read {}: it is no regular file and does not end within {} bytes; "
                    "copy it to a file first",
                    path.string(), kMostWithoutSize));
  }
  if (error != 0) fail("read", path, error);
  return content;
}

std::optional<std::string> try_read_file(const fs::path& path) noexcept try {
  std::string content;
  const int error = read_all(path, content);
  if (error == 0) return content;
  errno = error;
  return std::nullopt;
} catch (...) {
  errno = ENOMEM;
  return std::nullopt;
}

std::optional<std::string> read_regular_file(const fs::path& path, std::string& why) {
  constexpr off_t kMostBytes = 1 << 28;  // a file with holes may have more bytes than the disk
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  int error = fd.get() < 0 ? errno : 0;
  struct stat status {};
  if (error == 0 && ::fstat(fd.get(), &status) != 0) error = errno;
  // A link and a socket cannot be opened so.
  if (error == ELOOP || error == ENXIO || (error == 0 && !S_ISREG(status.st_mode))) {
    why = "is not a regular file";
    return std::nullopt;
  }
  if (error == 0 && status.st_size > kMostBytes) {
    why = fmt::format("has {} bytes, which is more than {}", status.st_size, kMostBytes);
    return std::nullopt;
  }
  std::string content;
  if (error == 0) error = read_open(fd.get(), status, content);
  if (error == 0) return content;
  if (is_passing(error)) fail("read", path, error);
  why = error == ENOENT || error == ENOTDIR
            ? "is missing"
            : "cannot be read: " + std::generic_category().message(error);
  return std::nullopt;
}

void write_file(const fs::path& path, std::string_view content) {
  if (const int error = write_content(path, content, Durability::flushed)) {
    fail("write", path, error);
  }
}

void write_file_unflushed(const fs::path& path, std::string_view content) {
  if (const int error = write_content(path, content, Durability::unflushed)) {
    fail("write", path, error);
  }
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  // A link that the system refuses to follow (into another user's folder, say) is not followed.
  if (!exists && errno != ENOENT) fail("write", path, errno);
  fs::path destination = path;
  if (const int error = follow_links(destination)) fail("write", path, error);

  // Devices, pipes and files without a name are written in place, because only a named file can be
  // replaced.
  const bool in_place = exists && !(S_ISREG(status.st_mode) && names(destination, status));
  if (in_place) return write_file(path, content);
  if (const int error = replace_content(destination, content, exists ? &status : nullptr)) {
    fail("write", path, error);
  }
  fsync_folder(folder_of(destination));
}

void fsync_files(const std::vector<fs::path>& paths) {
  constexpr int kWorkers = 16;
  std::vector<int> errors(paths.size(), 0);
  in_parallel(paths.size(), kWorkers, [&](std::size_t i) { errors[i] = flush_path(paths[i]); });
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (errors[i] != 0) fail("flush", paths[i], errors[i]);
  }
}

void fsync_folder(const fs::path& folder) {
  if (const int error = flush_path(folder)) fail("flush folder", folder, error);
}

fs::path make_unique_folder(const fs::path& parent, std::string_view prefix) {
  std::string path = (parent / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(path.data()) == nullptr) fail("create a folder in", parent, errno);
  return path;
}

void remove_tree(const fs::path& path) noexcept try {
  std::error_code ignored;
  fs::remove_all(path, ignored);
} catch (...) {
  // Only an allocation can throw here. The next clean-up removes the remains.
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace tessera
