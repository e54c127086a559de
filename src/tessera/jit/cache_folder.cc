#include "tessera/jit/cache_folder_internal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/private_files.h"
#include "tessera/base/text.h"
#include "tessera/jit/cache_entry_internal.h"
#include "tessera/jit/cache_folder.h"
#include "tessera/jit/lock_internal.h"

namespace tessera::jit {
namespace {

constexpr std::size_t kKeyDigits = 32;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::array<const char*, 5> kInnerFolders = {"tmp", "locks", "toolchains", "damaged",
                                                      "failed"};

std::string describe(int error) { return std::generic_category().message(error); }

[[noreturn]] void refuse(const fs::path& folder, std::string_view why) {
  throw Error(ErrorCode::cache_refused,
              fmt::format("the cache folder {} is refused: {}", folder.string(), why));
}

// The library runs the kernels in the folder as code, so nobody else may be able to put one there.
void check_safety(const fs::path& folder, const struct stat& status) {
  if (status.st_uid != ::geteuid()) {
    refuse(folder,
           fmt::format("it must belong to user {}, got user {}; remove it, or name another folder "
                       "with TESSERA_CACHE_DIR",
                       ::geteuid(), status.st_uid));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    refuse(folder,
           fmt::format("only its owner may write to it, got mode {:04o}; remove it, or run 'chmod "
                       "go-w {}' if you trust everybody who could write to it",
                       status.st_mode & 07777, folder.string()));
  }
}

// A folder that an earlier version made with the umask's rights is narrowed. Each file that was put
// there and counts as code is checked by itself.
void check_inner_folder(const fs::path& cache, const char* name) {
  const fs::path folder = cache / name;
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown) || why_not_private(folder).empty()) return;
  ::chmod(folder.c_str(), 0700);  // fails for another user's folder
  const std::string why = why_not_private(folder);
  if (!why.empty()) refuse(cache, fmt::format("its folder '{}' {}; remove that folder", name, why));
}

// The folder may hold the user's own files by mistake, so only folders that look like entries are
// touched.
bool is_entry_name(std::string_view name) {
  if (name.size() <= kKeyDigits + 1) return false;
  const std::string_view kernel = name.substr(0, name.size() - kKeyDigits - 1);
  const auto is_word = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return name[kernel.size()] == '-' && is_key(name.substr(kernel.size() + 1)) &&
         std::all_of(kernel.begin(), kernel.end(), is_word);
}

void append_entry_folders(const fs::path& parent, std::vector<fs::path>& folders) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const bool named = is_entry_name(at->path().filename().string());
    if (named && at->is_directory(ignored) && !at->is_symlink(ignored)) {
      folders.push_back(at->path());
    }
  }
}

// In a container, folders of a lower image layer can be copied and removed, but not renamed.
// meta.json is removed first, because an entry without it reads as a miss.
std::error_code move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error != std::errc::cross_device_link) return error;
  fs::copy(from, to, fs::copy_options::recursive, error);
  if (!error) fs::remove(from / kMetaFile, error);
  if (!error) fs::remove_all(from, error);
  return error;
}

std::int64_t to_ns(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

}  // namespace

bool is_key(std::string_view text) {
  return text.size() == kKeyDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'f');
         });
}

fs::path resolve_cache_folder(const CacheOptions& options) {
  const auto absolute = [](const fs::path& path) {
    std::error_code ignored;
    return path.is_absolute() ? path : fs::absolute(path, ignored);
  };
  if (!options.folder.empty()) return absolute(options.folder);
  if (const std::string own = environment("TESSERA_CACHE_DIR"); !own.empty()) return absolute(own);
  // The XDG rules say that a relative path counts as unset.
  const fs::path xdg = environment("XDG_CACHE_HOME");
  if (xdg.is_absolute()) return xdg / "tessera";
  const fs::path home = environment("HOME");
  return home.is_absolute() ? home / ".cache" / "tessera" : fs::path();
}

fs::path cache_folder_here() { return resolve_cache_folder({}); }

std::string open_cache_folder(const fs::path& folder) {
  make_private_folder(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return describe(errno);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return describe(errno);
  if (!S_ISDIR(status.st_mode)) return describe(ENOTDIR);
  check_safety(folder, status);
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) return describe(errno);
  for (const char* name : kInnerFolders) check_inner_folder(folder, name);
  return {};
}

bool must_load_from_memory(const fs::path& folder) {
  constexpr std::uint32_t kLustre = 0x0bd00bd0;  // not in the system's headers
  constexpr std::array<std::uint32_t, 9> kOfServers = {
      NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, AFS_SUPER_MAGIC,
      CEPH_SUPER_MAGIC, V9FS_MAGIC,      FUSE_SUPER_MAGIC, kLustre};
  struct statfs disk {};
  if (::statfs(folder.c_str(), &disk) != 0) return false;
  const auto type = static_cast<std::uint32_t>(disk.f_type);
  return (disk.f_flags & ST_NOEXEC) != 0 ||
         std::find(kOfServers.begin(), kOfServers.end(), type) != kOfServers.end();
}

std::vector<fs::path> entry_folders(const fs::path& cache) {
  std::vector<fs::path> folders;
  append_entry_folders(cache, folders);
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<fs::path> all_folders(const fs::path& cache) {
  if (cache.empty()) return {};
  std::vector<fs::path> folders = entry_folders(cache);
  append_entry_folders(cache / "damaged", folders);
  append_entry_folders(cache / "failed", folders);
  return folders;
}

std::string name_of_folder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.substr(0, name.size() - kKeyDigits - 1);
}

std::int64_t bytes_below(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    const std::uintmax_t size = at->file_size(gone);
    if (!gone) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

std::int64_t stored_bytes(const fs::path& cache) {
  std::int64_t bytes = 0;
  for (const fs::path& folder : all_folders(cache)) bytes += bytes_below(folder);
  return bytes;
}

std::int64_t evict(const fs::path& cache, std::int64_t max_bytes, const fs::path& keep) {
  std::vector<StoredFolder> stored;
  std::int64_t total = 0;
  for (const fs::path& folder : all_folders(cache)) {
    stored.push_back({folder, bytes_below(folder), last_used_ns(folder)});
    total += stored.back().bytes;
  }
  if (total <= max_bytes) return total;

  // A little more than needed is removed, so that a full cache is not searched at every insertion.
  const std::int64_t wanted = max_bytes - max_bytes / 10;
  std::sort(stored.begin(), stored.end(), [](const StoredFolder& a, const StoredFolder& b) {
    return a.last_used_ns < b.last_used_ns;
  });
  for (const StoredFolder& victim : stored) {
    if (total <= wanted) break;
    if (victim.path == keep) continue;
    if (remove_stored(cache, victim.path).empty()) total -= victim.bytes;
  }
  return total;
}

// The folder is renamed first, so that a reader finds all of it or nothing.
std::string remove_stored(const fs::path& cache, const fs::path& folder) {
  std::error_code error;
  try {
    const BuildFolder grave(cache / "tmp", "build-");
    error = move_folder(folder, grave.path() / "removed");
  } catch (const Error&) {
    fs::remove_all(folder, error);
  }
  return error && error != std::errc::no_such_file_or_directory ? error.message() : "";
}

fs::path move_to_shelf(const fs::path& cache, std::string_view shelf, const fs::path& folder,
                       const std::string& name) {
  std::error_code error;
  const fs::path destination = cache / shelf / name;
  make_private_folder(cache / shelf);
  make_private_folder(cache / "tmp");
  if (fs::exists(destination, error)) remove_stored(cache, destination);
  return move_folder(folder, destination) ? fs::path() : destination;
}

void touch_entry(const fs::path& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  // A time in the future, from a wrong clock or from a server's clock, would keep the entry too
  // long.
  if (std::abs(now_ns - last_used_ns(folder)) < 60 * kSecond) return;
  ::utimensat(AT_FDCWD, (folder / kMetaFile).c_str(), nullptr, 0);
}

std::int64_t last_used_ns(const fs::path& folder) {
  struct stat status {};
  if (::stat((folder / kMetaFile).c_str(), &status) == 0) return to_ns(status.st_mtim);
  return ::stat(folder.c_str(), &status) == 0 ? to_ns(status.st_mtim) : 0;
}

}  // namespace tessera::jit
