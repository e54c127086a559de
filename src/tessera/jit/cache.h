// The artifact cache: one folder per built kernel, safe against crashes, races and strangers.
//
// Life of an entry: built in <cache>/tmp/<unique>, every file and the folder fsynced, renamed to
// <cache>/<name>-<key>. A reader checks meta.json, the checksum of the binary and that it is a
// whole ELF file; an entry that fails is moved to <cache>/damaged and reads as a miss, and so is
// one that cannot be loaded. One that cannot be read at the moment (the process is out of
// descriptors, a file server is away) is a miss too, but stays. Files that meta.json does not list
// are not looked at, nor is anything in the folder that is not of this library's making. Losing the
// rename race is success.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jit {

struct CacheOptions {
  // Empty: TESSERA_CACHE_DIR, XDG_CACHE_HOME/tessera, ~/.cache/tessera.
  std::filesystem::path folder;
  std::int64_t max_bytes = 1LL << 30;  // least recently used entries go first
};

// A built kernel or object: the binary on disk, or in memory when no disk would take it.
struct Artifact {
  std::string name;
  std::string key;
  std::filesystem::path binary;  // loadable file; for memory-only artifacts an anonymous one
  // Keeps an anonymous file alive. Hold it as long as the binary is loaded: its path is a number
  // that the next anonymous file may get, and the loader knows libraries by their path.
  std::shared_ptr<void> keep;
  bool is_object = false;  // code that kernels share: an object to link, not to load
  // What its source says and its loader demands; the cache itself knows neither.
  int abi = 0;
  std::vector<std::string> entries = {""};
};

struct EntryInfo {
  std::string name;
  std::string key;
  bool is_object = false;  // code that kernels share
  std::filesystem::path folder;
  std::int64_t bytes = 0;
  std::int64_t last_used_unix = 0;
  // Of a cubin, as the assembler states them: "registers", "stack_bytes", "spill_store_bytes",
  // "spill_load_bytes", "barriers", "shared_bytes".
  std::map<std::string, std::int64_t> facts;
};

struct VerifyReport {
  std::size_t good = 0;
  std::vector<std::string> damaged;  // one sentence each
};

struct ClearReport {
  std::size_t removed = 0;        // entries
  std::vector<std::string> kept;  // what could not be removed, one sentence each
};

class Cache {
 public:
  // Creates the folder (0700). From a disk that is mounted noexec, or is a server's, libraries are
  // loaded as anonymous files. Throws Error{cache_refused} when it belongs to someone else or
  // others may write to it; a read-only or missing disk is no error: the cache then lives in
  // memory.
  explicit Cache(CacheOptions options);
  ~Cache();

  // `key` is 32 lower-case hexadecimal digits: see cache_key().
  std::optional<Artifact> find(const std::string& name, const std::string& key) const;

  // `produce` fills an empty folder with an entry's files, "kernel.so", "kernel.cubin" or
  // "object.o" among them. Throws what produce throws. Callers with the same name and key share one
  // call of produce and its outcome; across processes, one at a time per key; the loser takes the
  // winner's entry. When the disk fails, produce runs again in the temporary folder and the
  // artifact lives in memory.
  Artifact insert(const std::string& name, const std::string& key,
                  const std::function<void(const std::filesystem::path& folder)>& produce);

  std::vector<EntryInfo> list() const;
  // Reads every file of every entry, has the worker load the kernels (see build.h), and sets the
  // damaged entries aside. Throws Error{io_error} at one that cannot be read at the moment.
  VerifyReport verify(const std::string& worker = "") const;
  // Sets the artifact's entry aside with a warning and does not find it again. False when it is no
  // entry on disk.
  bool set_aside(const Artifact& artifact, const std::string& why);
  // Removes all entries (or those whose name matches the wildcard), and what is kept of damaged and
  // failed ones.
  ClearReport clear(std::string_view name_pattern = "*");
  // Of all entries, and of the damaged and failed ones that are kept for inspection.
  std::int64_t size_bytes() const;
  // Empty when the environment names none.
  const std::filesystem::path& folder() const;
  // Whether new entries stay in memory; those on a read-only disk are found all the same.
  bool is_memory_only() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
