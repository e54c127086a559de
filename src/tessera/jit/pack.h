// Packs: one file with many built kernels, made once and used where there is no compiler.
//
// A header of 64 bytes (little-endian: magic, version, sizes, checksums), the kernels, each at a
// multiple of 4096 bytes, and a JSON index that holds names, source keys, offsets and checksums.
// Equal kernels give equal bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/jit/cache.h"

namespace tessera::jit {

struct PackEntry {
  std::string name;
  std::string source_key;  // hash of text, headers, target and ABI: independent of the compiler
  std::string target;
  std::int64_t bytes = 0;
};

// Writes the binaries with names, source keys and checksums, sorted by name; atomic. An input's
// `bytes` is ignored. When several inputs have the same name and source key, the first one counts.
// Throws Error{io_error}.
struct PackInput {
  PackEntry entry;
  std::filesystem::path binary;
};
void write_pack(const std::filesystem::path& file, std::span<const PackInput> inputs);

// An opened pack. Thread-safe.
class Pack {
 public:
  // Reads the header and the index. Throws Error{io_error} for a file that cannot be read, and
  // Error{parse_error} for a truncated or damaged one.
  explicit Pack(const std::filesystem::path& file);
  ~Pack();
  Pack(Pack&&) noexcept;
  const std::vector<PackEntry>& entries() const;
  // Whether the index lists a kernel of this name; the second function also compares the source
  // key.
  bool lists(const std::string& name) const;
  bool lists(const std::string& name, const std::string& source_key) const;
  // The kernel as a loadable file in memory. Empty when it is not in the pack. Throws
  // Error{parse_error} when its bytes do not have its checksum.
  std::optional<Artifact> find(const std::string& name, const std::string& source_key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
