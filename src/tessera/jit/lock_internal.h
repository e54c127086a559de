// Locks that die with their process, and build folders whose owner can be seen to be alive.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera::jit {

// An exclusive lock between processes (and between two of these in one process). The system lets
// go of it when the process ends in whatever way.
class FileLock {
 public:
  // The file is empty; where something else lies in its place, it is left alone and there is no
  // lock. Waits at most `patience_seconds`, then goes on without the lock: a stopped process must
  // not stop the others, and what the lock guards is only work that would be done twice.
  FileLock(std::filesystem::path file, double patience_seconds);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path file_;
  int fd_ = -1;
};

// A fresh folder that may be renamed away. It lies in one that is locked while this object lives,
// and removed with it; a mark in there tells whoever cleans up that it is of this library's making.
class BuildFolder {
 public:
  // Throws Error{io_error}.
  BuildFolder(const std::filesystem::path& parent, std::string_view prefix);
  ~BuildFolder();
  BuildFolder(const BuildFolder&) = delete;
  BuildFolder& operator=(const BuildFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  void fill();

  std::filesystem::path outer_;
  std::filesystem::path path_;
  int fd_ = -1;
};

// Removes the build folders below `parent` whose process is dead: those that belong to this user
// and have the mark, or nothing, inside. Where the file system knows no locks, those untouched for
// a day.
void remove_dead_build_folders(const std::filesystem::path& parent, std::string_view prefix);

}  // namespace tessera::jit
