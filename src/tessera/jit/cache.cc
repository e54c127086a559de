#include "tessera/jit/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/fork.h"
#include "tessera/base/log.h"
#include "tessera/base/private_files.h"
#include "tessera/base/text.h"
#include "tessera/jit/cache_entry_internal.h"
#include "tessera/jit/cache_folder_internal.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/load_check_internal.h"
#include "tessera/jit/lock_internal.h"
#include "tessera/jit/memory_file_internal.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

using Produce = std::function<void(const fs::path& folder)>;

constexpr double kLockPatienceSeconds = 150;
constexpr int kInsertsBetweenScans = 64;  // a few, because other processes fill the folder too
constexpr std::string_view kBuildPrefix = "build-";
constexpr std::string_view kScratchPrefix = "tessera-build-";

void check_name(const std::string& name, const std::string& key) {
  const auto is_word = [](char c) { return is_alphanumeric(c) || c == '_'; };
  const auto is_hex = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_word)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a kernel's name must be a C identifier, got '{}'", name));
  }
  if (key.size() != 32 || !std::all_of(key.begin(), key.end(), is_hex)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: a cache key must be 32 hexadecimal digits, got '{}'", name, key));
  }
}

// A failure of the disk is an io_error, or, when the compiler met it, a disk without free space.
bool is_disk_failure(const Error& error, const fs::path& folder) {
  constexpr std::uintmax_t kTooLittle = 1 << 20;
  if (error.code() == ErrorCode::io_error) return true;
  std::error_code failed;
  const fs::space_info space = fs::space(folder, failed);
  return !failed && space.available < kTooLittle;
}

// An entry's meta.json; nothing when it is damaged or cannot be read at the moment.
std::optional<EntryMeta> known_meta(const fs::path& folder) try {
  std::string damage;
  return read_meta(folder, damage);
} catch (const Error&) {
  return std::nullopt;
}

std::int64_t file_bytes(const fs::path& path) {
  std::error_code failed;
  const std::uintmax_t size = fs::file_size(path, failed);
  return failed ? 0 : static_cast<std::int64_t>(size);
}

}  // namespace

struct Cache::State {
  CacheOptions options;
  fs::path folder;
  std::string unusable;           // why the folder cannot be written to; empty when it can
  bool load_from_memory = false;  // whether libraries in the folder must be loaded from memory

  mutable Mutex mutex;
  std::map<std::string, Artifact> memory;
  mutable std::set<std::string> passed_over;  // damaged entries that could not be moved away
  std::map<std::string, std::shared_future<Artifact>> flights;
  unsigned flights_of = fork_generation();
  std::int64_t estimated_bytes = 0;
  int inserts_until_scan = 0;
  std::once_flag swept;
  std::once_flag warned;

  std::optional<Artifact> find(const std::string& name, const std::string& key) const;
  std::optional<Artifact> find_on_disk(const std::string& name, const std::string& key) const;
  Artifact insert(const std::string& name, const std::string& key, const Produce& produce);
  Artifact insert_on_disk(const std::string& name, const std::string& key, const Produce& produce);
  Artifact insert_in_memory(const std::string& name, const std::string& key, const Produce& produce,
                            const std::string& why);
  Artifact publish(const fs::path& built, const std::string& name, const std::string& key,
                   const std::string& binary_file);
  void forget_flights_of_a_parent();
  Artifact loadable(Artifact artifact) const;
  void sweep();
  void keep_within_bounds(const fs::path& newest);
  void set_aside(const fs::path& entry, const std::string& damage) const;
  void warn_of_memory(const std::string& why);
};

std::optional<Artifact> Cache::State::find(const std::string& name, const std::string& key) const {
  {
    const std::lock_guard lock(mutex);
    const auto found = memory.find(entry_folder_name(name, key));
    if (found != memory.end()) return found->second;
  }
  return folder.empty() ? std::nullopt : find_on_disk(name, key);
}

std::optional<Artifact> Cache::State::find_on_disk(const std::string& name,
                                                   const std::string& key) const try {
  const fs::path entry = folder / entry_folder_name(name, key);
  {
    const std::lock_guard lock(mutex);
    if (passed_over.count(entry.filename().string()) > 0) return std::nullopt;
  }
  std::string damage;
  if (const auto binary = good_binary(entry, name, key, damage)) {
    touch_entry(entry);
    return Artifact{.name = name, .key = key, .binary = *binary, .keep = nullptr};
  }
  std::error_code unknown;
  if (fs::exists(fs::symlink_status(entry, unknown))) set_aside(entry, damage);
  return std::nullopt;
} catch (const Error& error) {  // a passing reason; the entry may be good
  warn_once(fmt::format("the cache entry of {} is passed over: {}", name, error.what()));
  return std::nullopt;
}

void Cache::State::set_aside(const fs::path& entry, const std::string& damage) const {
  const fs::path kept = move_to_shelf(folder, "damaged", entry, entry.filename().string());
  log(LogLevel::warning,
      fmt::format("the cache entry {} is damaged: {}; {}", entry.string(), damage,
                  kept.empty() ? "it is ignored" : "it was moved to " + kept.string()));
  if (!kept.empty()) return;
  const std::lock_guard lock(mutex);
  passed_over.insert(entry.filename().string());
}

// The threads that build do not exist in a child of fork(), so the child must not wait for them.
void Cache::State::forget_flights_of_a_parent() {
  if (flights_of == fork_generation()) return;
  flights.clear();
  flights_of = fork_generation();
}

// Removes build folders of processes that were killed during a build.
void Cache::State::sweep() {
  remove_dead_build_folders(folder / "tmp", kBuildPrefix);
  std::error_code error;
  for (const fs::directory_entry& lock : fs::directory_iterator(folder / "locks", error)) {
    if (!is_key(lock.path().filename().string())) continue;
    const FileLock removes_it_if_free(lock.path(), 0);
  }
}

Artifact Cache::State::insert(const std::string& name, const std::string& key,
                              const Produce& produce) {
  std::string why = unusable;
  if (why.empty()) {
    try {
      return insert_on_disk(name, key, produce);
    } catch (const Error& error) {
      if (!is_disk_failure(error, folder)) throw;
      why = error.what();
    }
  }
  if (std::optional<Artifact> found = find(name, key)) return *found;
  return insert_in_memory(name, key, produce, why);
}

Artifact Cache::State::insert_on_disk(const std::string& name, const std::string& key,
                                      const Produce& produce) {
  make_private_folder(folder / "tmp");
  make_private_folder(folder / "locks");
  const FileLock lock(folder / "locks" / key, kLockPatienceSeconds);
  if (std::optional<Artifact> found = find_on_disk(name, key)) return *found;
  std::call_once(swept, [this] { sweep(); });

  const BuildFolder build(folder / "tmp", kBuildPrefix);
  produce(build.path());
  const std::string binary = seal_entry(build.path(), name, key);
  const Artifact artifact = publish(build.path(), name, key, binary);
  keep_within_bounds(artifact.binary.parent_path());
  return artifact;
}

// Renaming to an existing folder fails. Then another process was faster, and its entry is as good.
// If that entry is damaged, find() has moved it away. The rename is not flushed: a power cut may
// undo it, which costs a build, but it cannot leave half an entry.
Artifact Cache::State::publish(const fs::path& built, const std::string& name,
                               const std::string& key, const std::string& binary_file) {
  const fs::path entry = folder / entry_folder_name(name, key);
  const fs::path binary = entry / binary_file;
  constexpr int kTries = 3;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    fs::rename(built, entry, error);
    if (!error) return {.name = name, .key = key, .binary = binary, .keep = nullptr};
    if (error.value() != EEXIST && error.value() != ENOTEMPTY) break;
    if (std::optional<Artifact> winner = find_on_disk(name, key)) return *winner;
  }
  throw Error(ErrorCode::io_error, fmt::format("cannot rename {} to {}: {}", built.string(),
                                               entry.string(), error.message()));
}

Artifact Cache::State::loadable(Artifact artifact) const {
  const bool is_library = is_host_library(artifact.binary.filename().string());
  if (!load_from_memory || !is_library || artifact.keep) return artifact;
  return memory_artifact(artifact.name, artifact.key, read_file(artifact.binary));
}

Artifact Cache::State::insert_in_memory(const std::string& name, const std::string& key,
                                        const Produce& produce, const std::string& why) {
  const fs::path temporary = temporary_folder();
  Binary binary;
  try {
    remove_dead_build_folders(temporary, kScratchPrefix);
    const BuildFolder build(temporary, kScratchPrefix);
    produce(build.path());
    binary = read_binary(build.path(), name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io_error) throw;
    throw Error(ErrorCode::io_error,
                fmt::format("{}: cannot be built: the cache folder {} fails ({}), and so does the "
                            "temporary folder {} ({}); make room, or name other folders with "
                            "TESSERA_CACHE_DIR and TMPDIR",
                            name, folder.string(), why, temporary.string(), error.what()));
  }
  warn_of_memory(why);
  Artifact artifact = memory_artifact(name, key, binary.content);
  artifact.is_object = binary.file == kObjectFile;
  const std::lock_guard lock(mutex);
  return memory.insert_or_assign(entry_folder_name(name, key), artifact).first->second;
}

void Cache::State::warn_of_memory(const std::string& why) {
  std::call_once(warned, [&] {
    warn_once(folder.empty()
                  ? fmt::format("{}; kernels are kept in memory until the process ends", why)
                  : fmt::format("the cache folder {} cannot be written: {}; kernels are kept in "
                                "memory until the process ends",
                                folder.string(), why));
  });
}

void Cache::State::keep_within_bounds(const fs::path& newest) {
  const std::lock_guard lock(mutex);
  estimated_bytes += bytes_below(newest);
  const bool may_be_full = estimated_bytes > options.max_bytes;
  if (!may_be_full && inserts_until_scan-- > 0) return;
  estimated_bytes = evict(folder, options.max_bytes, newest);
  inserts_until_scan = kInsertsBetweenScans;
}

Cache::Cache(CacheOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->folder = resolve_cache_folder(state_->options);
  state_->unusable = state_->folder.empty()
                         ? "no folder is named for the kernel cache by TESSERA_CACHE_DIR, "
                           "XDG_CACHE_HOME or HOME"
                         : open_cache_folder(state_->folder);
  state_->load_from_memory = must_load_from_memory(state_->folder);
}

Cache::~Cache() = default;

std::optional<Artifact> Cache::find(const std::string& name, const std::string& key) const {
  check_name(name, key);
  std::optional<Artifact> found = state_->find(name, key);
  if (found) found = state_->loadable(*std::move(found));
  return found;
}

Artifact Cache::insert(const std::string& name, const std::string& key, const Produce& produce) {
  check_name(name, key);
  const std::string flight = entry_folder_name(name, key);
  std::promise<Artifact> promise;
  {
    std::unique_lock lock(state_->mutex);
    state_->forget_flights_of_a_parent();
    const auto [running, is_first] = state_->flights.try_emplace(flight);
    if (!is_first) {
      const std::shared_future<Artifact> other = running->second;
      lock.unlock();
      return other.get();
    }
    running->second = promise.get_future().share();
  }

  const auto land = [&] {
    const std::lock_guard lock(state_->mutex);
    state_->flights.erase(flight);
  };
  try {
    Artifact artifact = state_->loadable(state_->insert(name, key, produce));
    promise.set_value(artifact);
    land();
    return artifact;
  } catch (...) {
    promise.set_exception(std::current_exception());
    land();
    throw;
  }
}

std::vector<EntryInfo> Cache::list() const {
  std::vector<EntryInfo> entries;
  constexpr std::int64_t kSecond = 1'000'000'000;
  for (const fs::path& folder : entry_folders(state_->folder)) {
    const std::optional<EntryMeta> meta = known_meta(folder);
    if (!meta) continue;
    EntryInfo info{.name = meta->name,
                   .key = meta->key,
                   .is_object = binary_file(*meta) == kObjectFile,
                   .folder = folder,
                   .bytes = file_bytes(folder / kMetaFile),
                   .last_used_unix = last_used_ns(folder) / kSecond,
                   .facts = meta->facts};
    for (const auto& [path, stamp] : meta->files) info.bytes += stamp.bytes;
    entries.push_back(std::move(info));
  }
  const std::lock_guard lock(state_->mutex);
  for (const auto& [id, artifact] : state_->memory) {
    entries.push_back({.name = artifact.name,
                       .key = artifact.key,
                       .is_object = artifact.is_object,
                       .folder = {},
                       .bytes = file_bytes(artifact.binary),
                       .last_used_unix = 0,
                       .facts = {}});
  }
  return entries;
}

VerifyReport Cache::verify(const std::string& worker) const {
  const std::vector<fs::path> entries = entry_folders(state_->folder);
  std::vector<std::string> damage(entries.size());
  std::vector<LibraryToLoad> libraries;
  std::vector<std::size_t> owners;  // the entry that each library belongs to
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::optional<EntryMeta> meta = read_meta(entries[i], damage[i]);
    if (meta) damage[i] = own_damage(entries[i], *meta);
    if (!damage[i].empty()) continue;
    const std::string binary = binary_file(*meta);
    if (!is_host_library(binary)) continue;
    libraries.push_back({.name = meta->name, .file = entries[i] / binary});
    owners.push_back(i);
  }
  const auto unloadable = load_damages(find_worker_program(worker), libraries);
  for (std::size_t i = 0; i < owners.size(); ++i) damage[owners[i]] = unloadable[i].value_or("");

  VerifyReport report;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (damage[i].empty()) {
      ++report.good;
      continue;
    }
    report.damaged.push_back(fmt::format("{}: {}", entries[i].filename().string(), damage[i]));
    state_->set_aside(entries[i], damage[i]);
  }
  const std::lock_guard lock(state_->mutex);
  report.good += state_->memory.size();
  return report;
}

bool Cache::set_aside(const Artifact& artifact, const std::string& why) {
  const fs::path entry = state_->folder / entry_folder_name(artifact.name, artifact.key);
  if (state_->folder.empty() || artifact.binary.parent_path() != entry) return false;
  state_->set_aside(entry, why);
  return true;
}

ClearReport Cache::clear(std::string_view name_pattern) {
  ClearReport report;
  for (const fs::path& folder : all_folders(state_->folder)) {
    const std::optional<EntryMeta> meta = known_meta(folder);
    const std::string name = meta ? meta->name : name_of_folder(folder);
    if (!matches_wildcard(name_pattern, name)) continue;
    if (const std::string why = remove_stored(state_->folder, folder); !why.empty()) {
      report.kept.push_back(fmt::format("cannot remove {}: {}", folder.string(), why));
    } else if (folder.parent_path() == state_->folder) {
      ++report.removed;
    }
  }
  const std::lock_guard lock(state_->mutex);
  state_->estimated_bytes = 0;
  state_->inserts_until_scan = 0;
  report.removed += std::erase_if(state_->memory, [&](const auto& item) {
    return matches_wildcard(name_pattern, item.second.name);
  });
  return report;
}

std::int64_t Cache::size_bytes() const {
  std::int64_t bytes = stored_bytes(state_->folder);
  const std::lock_guard lock(state_->mutex);
  for (const auto& [id, artifact] : state_->memory) bytes += file_bytes(artifact.binary);
  return bytes;
}

const fs::path& Cache::folder() const { return state_->folder; }

bool Cache::is_memory_only() const { return !state_->unusable.empty(); }

}  // namespace tessera::jit
