#include "tessera/base/private_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files.h"

namespace tessera {

void make_private_folder(const fs::path& folder) {
  if (folder.empty() || ::mkdir(folder.c_str(), 0700) == 0 || errno != ENOENT) return;
  make_private_folder(folder.parent_path());
  ::mkdir(folder.c_str(), 0700);
}

// The system gives temporary files the mode 0600.
void write_private_file(const fs::path& path, std::string_view content) {
  std::string temporary = (path.parent_path() / ".tessera-XXXXXX").string();
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    ::close(fd);
    try {
      write_file_unflushed(temporary, content);
    } catch (const Error&) {
      ::unlink(temporary.c_str());
      throw;
    }
    if (std::rename(temporary.c_str(), path.c_str()) == 0) return;
    error = errno;
    ::unlink(temporary.c_str());
  }
  throw Error(ErrorCode::io_error, fmt::format("cannot write {}: {}", path.string(),
                                               std::generic_category().message(error)));
}

std::string why_not_private(const fs::path& path) {
  for (const int flags : {AT_SYMLINK_NOFOLLOW, 0}) {
    struct stat status {};
    if (::fstatat(AT_FDCWD, path.c_str(), &status, flags) != 0) return {};
    if (status.st_uid != ::geteuid()) {
      return fmt::format("belongs to user {}, not to user {}", status.st_uid, ::geteuid());
    }
    if (!S_ISLNK(status.st_mode) && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      return fmt::format("has mode {:04o}, with which others may write to it",
                         status.st_mode & 07777);
    }
  }
  return {};
}

}  // namespace tessera
