// The cache's folder as a whole: where it is, whether it is safe, what it holds, what must go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/cache.h"

namespace tessera::jit {

// The folder that the options and the environment name; empty when they name none.
std::filesystem::path resolve_cache_folder(const CacheOptions& options);

// Creates the folder, or checks the one that is there. Returns why nothing can be written to it, or
// an empty string. Throws Error{cache_refused}.
std::string open_cache_folder(const std::filesystem::path& folder);

// Whether libraries cannot be mapped from the folder's disk: it is mounted noexec, or belongs to a
// server, where another machine may remove a file under a process that has it mapped, which ends
// that process.
bool must_load_from_memory(const std::filesystem::path& folder);

// A folder of an entry, good, damaged or failed, by what the file system says about it.
struct StoredFolder {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::int64_t last_used_ns = 0;
};

// Whether a file may be named after a cache key: 32 lower-case hexadecimal digits.
bool is_key(std::string_view text);

// <cache>/<name>-<key>; none when `cache` is empty.
std::vector<std::filesystem::path> entry_folders(const std::filesystem::path& cache);
// These and those under damaged/ and failed/.
std::vector<std::filesystem::path> all_folders(const std::filesystem::path& cache);

// Of a set-aside or nameless folder: "<name>-<key>" without the key.
std::string name_of_folder(const std::filesystem::path& folder);

// Of all files below a folder.
std::int64_t bytes_below(const std::filesystem::path& folder);
// Of all_folders().
std::int64_t stored_bytes(const std::filesystem::path& cache);

// Removes the least recently used folders until a tenth of `max_bytes` is free, if there is more
// than `max_bytes`; `keep` stays. Returns the bytes that remain.
std::int64_t evict(const std::filesystem::path& cache, std::int64_t max_bytes,
                   const std::filesystem::path& keep);

// Removes a folder so that nobody sees half of it. Returns why that failed; empty when it is gone.
std::string remove_stored(const std::filesystem::path& cache, const std::filesystem::path& folder);

// Moves a folder to <cache>/<shelf>/<its name>, in place of what is there. Returns its new path;
// empty when the disk refuses.
std::filesystem::path move_to_shelf(const std::filesystem::path& cache, std::string_view shelf,
                                    const std::filesystem::path& folder, const std::string& name);

// Marks an entry as used, at most once a minute.
void touch_entry(const std::filesystem::path& folder);
std::int64_t last_used_ns(const std::filesystem::path& folder);

}  // namespace tessera::jit
