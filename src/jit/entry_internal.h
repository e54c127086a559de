// One entry of the cache on disk: a folder of files and the meta.json that vouches for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tessera/families/family.h"

namespace tessera::jit {

// An entry holds one of these: a kernel, or an object that kernels share.
inline constexpr const char* kLibraryFile = "kernel.so";
inline constexpr const char* kCubinFile = "kernel.cubin";
inline constexpr const char* kObjectFile = "object.o";
inline constexpr const char* kMetaFile = "meta.json";

struct FileStamp {
  std::int64_t bytes = 0;
  std::string checksum;
};

struct EntryMeta {
  std::string name;
  std::string key;
  std::map<std::string, FileStamp> files;     // by path below the entry's folder
  std::map<std::string, std::int64_t> facts;  // of a cubin: registers, spills, shared memory
};

// The file that a source is written to, and the one that it is compiled to.
std::string source_file(const Source& source);
std::string binary_name(const Source& source);

// The entry's loadable file; empty when it has none.
std::string binary_file(const EntryMeta& meta);
// The same for a folder that is not sealed yet.
std::string binary_file_in(const std::filesystem::path& folder);

enum class CheckDepth { binary, everything };

// "<name>-<key>", the name cut where a file name would become too long.
std::string entry_folder_name(const std::string& name, const std::string& key);

// Writes meta.json for the files that are in the folder, with the facts that the log states of a
// cubin, and flushes them all. Throws
// Error{io_error}, or Error{compile_failed} when there is no binary among them.
void seal_entry(const std::filesystem::path& folder, const std::string& name,
                const std::string& key);

// These four throw Error{io_error} for what cannot be read now, which says nothing about the entry:
// the process is out of descriptors or memory, or a server is away.
//
// Empty, with the reason in `damage`, when meta.json is missing or not what seal_entry wrote.
std::optional<EntryMeta> read_meta(const std::filesystem::path& folder, std::string& damage);

// Why the folder is not a good entry of this name and key; empty when it is.
std::string entry_damage(const std::filesystem::path& folder, const std::string& name,
                         const std::string& key, CheckDepth depth);

// The entry's binary, or nothing with the reason in `damage` when it is not a good one.
std::optional<std::filesystem::path> good_binary(const std::filesystem::path& folder,
                                                 const std::string& name, const std::string& key,
                                                 std::string& damage);

// The damage to an entry whose name and key are those it claims, its folder's name being theirs.
std::string own_damage(const std::filesystem::path& folder);

}  // namespace tessera::jit
