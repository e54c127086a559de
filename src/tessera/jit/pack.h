// Packs: one file with many built kernels, made once and used where there is no compiler.
//
// A header of 64 bytes (little-endian: magic, version, sizes, checksums), the kernels, each at a
// multiple of 4096 bytes, and a JSON index that holds names, source keys, offsets and checksums,
// and who made the pack when. Equal kernels of equal makers give equal bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/version.h"
#include "tessera/jit/cache.h"

namespace tessera::jit {

struct PackEntry {
  std::string name;
  std::string source_key;  // hash of text, headers, target and ABI: independent of the compiler
  std::string target;
  std::int64_t bytes = 0;
};

// Who made a pack. Packs that were made before version 2 of the format say none of it.
struct PackMaker {
  std::string version = std::string(kVersion);   // of the library; empty: unknown
  std::int64_t made = 0;                         // seconds since 1970, UTC; 0: unknown
  std::map<std::string, std::string> compilers;  // by target: the compiler's own version text
  friend bool operator==(const PackMaker&, const PackMaker&) = default;
};
// "Tessera 0.1.0 on 2026-11-30".
std::string to_string(const PackMaker& maker);
// "2026-11-30", in UTC.
std::string date_of(std::int64_t seconds);

// Writes the binaries with names, source keys and checksums, sorted by name; atomic. An input's
// `bytes` is ignored. When several inputs have the same name and source key, the first one counts.
// Throws Error{io_error}.
struct PackInput {
  PackEntry entry;
  std::filesystem::path binary;
};
void write_pack(const std::filesystem::path& file, std::span<const PackInput> inputs,
                const PackMaker& maker = {});

// An opened pack. Thread-safe.
class Pack {
 public:
  // Reads the header and the index. Throws Error{io_error} for a file that cannot be read, and
  // Error{parse_error} for a truncated or damaged one.
  explicit Pack(const std::filesystem::path& file);
  ~Pack();
  Pack(Pack&&) noexcept;
  const std::filesystem::path& file() const;
  const PackMaker& maker() const;
  const std::vector<PackEntry>& entries() const;
  // Whether the index lists a kernel of this name; the second function also compares the source
  // key.
  bool lists(const std::string& name) const;
  bool lists(const std::string& name, const std::string& source_key) const;
  // A sentence where the pack lists the name, but with other keys alone: which keys, and who made
  // it. Empty otherwise.
  std::string other_source(const std::string& name, const std::string& source_key) const;
  // The kernel as a loadable file in memory. Empty when it is not in the pack. Throws
  // Error{parse_error} when its bytes do not have its checksum.
  std::optional<Artifact> find(const std::string& name, const std::string& source_key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
