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

// Empty when the file does not exist or cannot be read, errno then saying why; never throws.
std::optional<std::string> try_read_file(const fs::path& path) noexcept;

// Reads a file where somebody else may have put a link, a pipe or a device: follows no link at the
// end of the path, waits for nobody and reads 256 MiB at most. Empty when there is no such file,
// with the reason in `why`: "is missing", "is not a regular file", "has 9 bytes, which is more than
// 8", "cannot be read: ...". Throws Error{io_error} only for a reason that passes and tells nothing
// about the file: the process is short of descriptors or memory, or a file server is away.
std::optional<std::string> read_regular_file(const fs::path& path, std::string& why);

// Writes and fsyncs the file in place; the caller makes it visible by renaming what holds it.
void write_file(const fs::path& path, std::string_view content);

// The same without the flush, for files that nobody needs after a crash or that are flushed later.
void write_file_unflushed(const fs::path& path, std::string_view content);

// Replaces `path` by a complete file or leaves it untouched (temporary sibling, fsync, rename). A
// link keeps pointing where it did; a device or a pipe is written to.
void write_file_atomic(const fs::path& path, std::string_view content);

// Flushes files and folders to the disk, side by side: a disk takes many flushes at once for the
// price of one.
void fsync_files(const std::vector<fs::path>& paths);

// Flushes a folder's own entries to the disk.
void fsync_folder(const fs::path& folder);

// Makes a fresh, private (0700) folder below `parent` whose name starts with `prefix`.
fs::path make_unique_folder(const fs::path& parent, std::string_view prefix);

// Removes a tree; failures are ignored, as for a temporary folder that is already gone.
void remove_tree(const fs::path& path) noexcept;

// $HOME-independent look-up of an environment variable; empty if unset.
std::string environment(const char* name);

}  // namespace tessera
