// One entry of the cache on disk: a folder of files and the meta.json that vouches for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tessera/families/answers.h"

namespace tessera::jit {

inline constexpr const char* kMetaFile = "meta.json";

struct FileStamp {
  std::int64_t bytes = 0;
  std::string checksum;
};

struct EntryMeta {
  std::string name;
  std::string key;
  std::map<std::string, FileStamp> files;     // by path below the entry's folder
  std::map<std::string, std::int64_t> facts;  // for a cubin: registers, spills, shared memory
};

// The name of the file that a source is written to.
std::string source_file(const Source& source);

// The entry's one binary, a kernel or an object that kernels share; empty when it has none or
// several. See binary_kinds().
std::string binary_file(const EntryMeta& meta);

// Reads the binary in a folder that is not sealed yet. Throws Error{compile_failed} unless there is
// exactly one binary and it is whole, see elf_damage().
struct Binary {
  std::string file;
  std::string content;
};
Binary read_binary(const std::filesystem::path& folder, const std::string& name);

// "<name>-<key>"; the name is cut when the file name would become too long.
std::string entry_folder_name(const std::string& name, const std::string& key);

// Writes meta.json for the regular files in the folder, with the facts that the log states about a
// cubin, and flushes all files. Returns the binary's name. Throws Error{io_error}, and what
// read_binary throws.
std::string seal_entry(const std::filesystem::path& folder, const std::string& name,
                       const std::string& key);

// The functions below throw Error{io_error} when something cannot be read at the moment, because
// the process is out of descriptors or memory or a server is away. That says nothing about the
// entry.
//
// Empty, with the reason in `damage`, when meta.json is missing or not what seal_entry wrote.
std::optional<EntryMeta> read_meta(const std::filesystem::path& folder, std::string& damage);

// Both functions read only the files that meta.json lists.
//
// The path of the binary of this name and key if it is undamaged; otherwise nothing, with the
// reason in `damage`.
std::optional<std::filesystem::path> good_binary(const std::filesystem::path& folder,
                                                 const std::string& name, const std::string& key,
                                                 std::string& damage);

// A sentence about the first file of an entry that does not fit its meta.json; empty when all do.
std::string own_damage(const std::filesystem::path& folder, const EntryMeta& meta);

}  // namespace tessera::jit
