// Files and folders with errors as sentences. Every function throws Error{io_error} unless it says
// otherwise.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path);

// The file's content. Empty when the file does not exist or cannot be read; errno then says why.
// Never throws.
std::optional<std::string> try_read_file(const fs::path& path) noexcept;

// Reads a file in a place where somebody else may have put a link, a pipe or a device. It does not
// follow a link at the end of the path, does not block, and reads at most 256 MiB. Empty when there
// is no such regular file, with the reason in `why`: "is missing", "is not a regular file", "has 9
// bytes, which is more than 8", "cannot be read: ...". Throws Error{io_error} only for a passing
// reason that says nothing about the file: the process is short of descriptors or memory, or a file
// server is away.
std::optional<std::string> read_regular_file(const fs::path& path, std::string& why);

// Writes and fsyncs the file in place. The caller makes it visible by renaming its folder.
void write_file(const fs::path& path, std::string_view content);

// The same without the flush, for files that are not needed after a crash or are flushed later.
void write_file_unflushed(const fs::path& path, std::string_view content);

// Replaces `path` by a complete file or leaves it untouched (temporary sibling, fsync, rename).
// When `path` is a link, its target is replaced. A device or a pipe is written to.
void write_file_atomic(const fs::path& path, std::string_view content);

// Flushes files and folders to the disk in parallel, because a disk does many flushes at once in
// the time of one.
void fsync_files(const std::vector<fs::path>& paths);

// Flushes a folder's own entries to the disk.
void fsync_folder(const fs::path& folder);

// Makes a fresh, private (0700) folder below `parent` whose name starts with `prefix`.
fs::path make_unique_folder(const fs::path& parent, std::string_view prefix);

// Removes a tree; failures are ignored, as for a temporary folder that is already gone.
void remove_tree(const fs::path& path) noexcept;

// The value of an environment variable; empty if it is unset.
std::string environment(const char* name);

}  // namespace tessera
