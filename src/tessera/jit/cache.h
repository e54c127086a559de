// The artifact cache: one folder per built kernel, safe against crashes, races and strangers.
//
// Life of an entry: built in <cache>/tmp/<unique>, every file and the folder fsynced, renamed to
// <cache>/<name>-<key>. A reader checks meta.json, the checksum of the binary and that the binary
// is a whole ELF file. An entry that fails the check, or cannot be loaded, is moved to
// <cache>/damaged and reads as a miss. An entry that cannot be read at the moment (the process is
// out of descriptors, a file server is away) also reads as a miss, but stays. The cache ignores
// files that meta.json does not list, and everything in the folder that this library did not make.
// When two processes rename the same entry, the slower one uses the faster one's entry.
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

#pragma GCC visibility push(default)
namespace tessera::jit {

struct CacheOptions {
  // Empty: TESSERA_CACHE_DIR, XDG_CACHE_HOME/tessera, ~/.cache/tessera.
  std::filesystem::path folder;
  std::int64_t max_bytes = 1LL << 30;  // when there are more, the least recently used entries are
                                       // removed
};

// Where a kernel was found when it was asked for.
enum class ArtifactFrom : std::uint8_t { cache, pack, compiler };

// A built kernel or object: the binary on disk, or in memory when no disk takes it.
struct Artifact {
  std::string name;
  std::string key;
  std::filesystem::path binary;  // the loadable file; an anonymous file when it is in memory only
  // Keeps an anonymous file alive; hold it while the binary is loaded. The file's path is a number
  // that the next anonymous file may get, and the loader identifies libraries by path.
  std::shared_ptr<void> keep;
  bool is_object = false;  // code that kernels share: an object to link, not to load
  // Copied from the source for the loader; the cache itself stores neither.
  int abi = 0;
  std::vector<std::string> entries = {""};
  ArtifactFrom from = ArtifactFrom::cache;
};

struct EntryInfo {
  std::string name;
  std::string key;
  bool is_object = false;  // code that kernels share
  std::filesystem::path folder;
  std::int64_t bytes = 0;
  std::int64_t last_used_unix = 0;
  // The numbers that the compiler states about a GPU's kernel: "registers", "stack_bytes",
  // "shared_bytes" and spills. nvrtc_facts.cc and code_object.cc list all of them.
  std::map<std::string, std::int64_t> facts;
};

struct VerifyReport {
  std::size_t good = 0;
  std::vector<std::string> damaged;  // one sentence each
};

struct ClearReport {
  std::size_t removed = 0;        // entries
  std::vector<std::string> kept;  // a sentence for each entry that could not be removed
};

class Cache {
 public:
  // Creates the folder (0700). Libraries on a disk that is mounted noexec or belongs to a file
  // server are loaded as anonymous files. Throws Error{cache_refused} when the folder belongs to
  // someone else or others may write to it. With a read-only or missing disk, the cache is in
  // memory.
  explicit Cache(CacheOptions options);
  ~Cache();

  // `key` is 32 lower-case hexadecimal digits: see cache_key().
  std::optional<Artifact> find(const std::string& name, const std::string& key) const;

  // `produce` fills an empty folder with an entry's files, "kernel.so", "kernel.cubin" or
  // "object.o" among them. Throws what `produce` throws. Threads with the same name and key share
  // one call of `produce` and its outcome. Processes build one after the other for each key, and
  // later ones take the first one's entry. When the disk fails, `produce` runs again in the
  // temporary folder and the artifact is kept in memory.
  Artifact insert(const std::string& name, const std::string& key,
                  const std::function<void(const std::filesystem::path& folder)>& produce);

  std::vector<EntryInfo> list() const;
  // Reads every file of every entry, has the worker load the kernels (see build.h), and sets the
  // damaged entries aside. Throws Error{io_error} when an entry cannot be read at the moment.
  VerifyReport verify(const std::string& worker = "") const;
  // Moves the artifact's entry to <cache>/damaged with a warning; find() no longer returns it.
  // False when the artifact is not an entry on disk.
  bool set_aside(const Artifact& artifact, const std::string& why);
  // Removes the entries whose names match the wildcard, damaged and failed ones included.
  ClearReport clear(std::string_view name_pattern = "*");
  // The bytes of all entries, and of the damaged and failed ones that are kept for inspection.
  std::int64_t size_bytes() const;
  // The cache's folder; empty when the environment names none.
  const std::filesystem::path& folder() const;
  // Whether new entries stay in memory. Entries that are on a read-only disk are still found.
  bool is_memory_only() const;

 private:
  struct [[gnu::visibility("hidden")]] State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
#pragma GCC visibility pop
