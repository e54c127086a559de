// Locks that end with their process, and build folders that show whether their owner is alive.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera::jit {

// An exclusive lock between processes (and between two objects in one process). The system releases
// it when the process ends, however it ends.
class FileLock {
 public:
  // The lock's file is empty; anything else in its place is left alone, and then there is no lock.
  // Waits at most `patience_seconds` and then goes on without the lock, so that a stopped process
  // does not stop others. Without the lock, work may be done twice, but nothing breaks.
  FileLock(std::filesystem::path file, double patience_seconds);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path file_;
  int fd_ = -1;
};

// A new folder that may be renamed away. It lies in an outer folder that is locked while this
// object lives and is removed with it. A mark in the outer folder shows that this library made it.
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

// Removes the build folders below `parent` whose process has ended, if they belong to this user and
// contain the mark or nothing. On a file system without locks, removes those that have not changed
// for a day.
void remove_dead_build_folders(const std::filesystem::path& parent, std::string_view prefix);

}  // namespace tessera::jit
