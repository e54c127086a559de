// The cache's folder as a whole: where it is, whether it is safe, what it holds, what must be
// removed.
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

// Creates the folder, or checks the existing one. Returns a sentence when nothing can be written to
// it, otherwise an empty string. Throws Error{cache_refused}.
std::string open_cache_folder(const std::filesystem::path& folder);

// Whether libraries cannot be mapped from the folder's disk: it is mounted noexec, or it belongs to
// a file server. On a server, another machine may remove a file that a process has mapped, which
// ends that process.
bool must_load_from_memory(const std::filesystem::path& folder);

// The folder of a good, damaged or failed entry, with its size and time of last use.
struct StoredFolder {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::int64_t last_used_ns = 0;
};

// Whether a file may be named after a cache key: 32 lower-case hexadecimal digits.
bool is_key(std::string_view text);

// The folders <cache>/<name>-<key>; none when `cache` is empty.
std::vector<std::filesystem::path> entry_folders(const std::filesystem::path& cache);
// The same, and the folders under damaged/ and failed/.
std::vector<std::filesystem::path> all_folders(const std::filesystem::path& cache);

// The kernel's name for a folder without readable meta.json: "<name>-<key>" without the key.
std::string name_of_folder(const std::filesystem::path& folder);

// The bytes of all files below a folder.
std::int64_t bytes_below(const std::filesystem::path& folder);
// The bytes of all_folders().
std::int64_t stored_bytes(const std::filesystem::path& cache);

// If the folders have more than `max_bytes`, removes the least recently used ones until a tenth of
// `max_bytes` is free. The folder `keep` stays. Returns the bytes that remain.
std::int64_t evict(const std::filesystem::path& cache, std::int64_t max_bytes,
                   const std::filesystem::path& keep);

// Removes a folder in such a way that no process sees half of it. Returns the reason when that
// fails, otherwise an empty string.
std::string remove_stored(const std::filesystem::path& cache, const std::filesystem::path& folder);

// Moves a folder to <cache>/<shelf>/<its name>, and replaces an older folder there. Returns the new
// path; empty when the disk refuses.
std::filesystem::path move_to_shelf(const std::filesystem::path& cache, std::string_view shelf,
                                    const std::filesystem::path& folder, const std::string& name);

// Updates an entry's time of last use, at most once a minute.
void touch_entry(const std::filesystem::path& folder);
std::int64_t last_used_ns(const std::filesystem::path& folder);

}  // namespace tessera::jit
