#include "tessera/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

[[noreturn]] void fail(std::string_view verb, const fs::path& path, int error) {
  throw Error(ErrorCode::io_error, fmt::format("cannot {} {}: {}", verb, path.string(),
                                               std::generic_category().message(error)));
}

// Closes on every path out of a function; close() itself is checked where data could be lost.
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

// Returns 0 or the errno that stopped the reading.
int read_all(const fs::path& path, std::string& content) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno;

  // The size is a guess only: files in /proc say 0, and a file may grow while it is read.
  std::size_t used = 0;
  content.resize(static_cast<std::size_t>(status.st_size) + 1);
  for (;;) {
    if (used == content.size()) content.resize(content.size() * 2);
    const ssize_t got = ::read(fd.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  content.resize(used);
  return 0;
}

int write_all(int fd, std::string_view content) {
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

int write_content(const fs::path& path, std::string_view content, Durability durability) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return errno;
  if (const int error = write_all(fd.get(), content)) return error;
  if (durability == Durability::flushed) {
    if (const int error = flush(fd.get())) return error;
  }
  return fd.close() == 0 ? 0 : errno;
}

int flush_path(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() < 0 ? errno : flush(fd.get());
}

// Unique among processes by the id, within one by the counter; what a dead process with our id
// left behind is overwritten.
fs::path temporary_sibling(const fs::path& path) {
  static std::atomic<unsigned> counter = 0;
  fs::path sibling = path;
  sibling.replace_filename(
      fmt::format(".{}.{}.{}.tmp", path.filename().string(), ::getpid(), counter++));
  return sibling;
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::string content;
  if (const int error = read_all(path, content)) fail("read", path, error);
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
  // A link keeps pointing where it did, and a device or pipe is written to, not replaced.
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_file(path, content);
  const fs::path real = fs::exists(status) ? fs::canonical(path, ignored) : path;
  const fs::path& destination = real.empty() ? path : real;

  const fs::path temporary = temporary_sibling(destination);
  int error = write_content(temporary, content, Durability::flushed);
  if (error == 0 && fs::exists(status)) fs::permissions(temporary, status.permissions(), ignored);
  if (error == 0 && ::rename(temporary.c_str(), destination.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail("write", path, error);
  }
  fsync_folder(destination.has_parent_path() ? destination.parent_path() : ".");
}

void fsync_files(const std::vector<fs::path>& paths) {
  constexpr std::size_t kWorkers = 16;
  std::vector<int> errors(paths.size(), 0);
  {
    std::vector<std::jthread> workers;
    for (std::size_t first = 0; first < std::min(kWorkers, paths.size()); ++first) {
      workers.emplace_back([&paths, &errors, first] {
        for (std::size_t i = first; i < paths.size(); i += kWorkers) {
          errors[i] = flush_path(paths[i]);
        }
      });
    }
  }
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
  // Only an allocation can throw here; the litter is found again by whoever cleans up next.
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace tessera
