// What is remembered about a compiler between processes. Asking a compiler for its version takes 15
// ms, and hashing it takes as long.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/jit/toolchain.h"

namespace tessera::jit {

// A compiler that does not state its version within this many seconds counts as hanging.
constexpr double kProbeSeconds = 20;

// Throws compile_failed.
[[noreturn]] inline void fail_toolchain(const std::string& message,
                                        const std::string& context = {}) {
  throw Error(ErrorCode::compile_failed, message, context);
}

// A file of the compiler as the file system sees it. Any change of its content changes one of
// these.
struct PartStamp {
  std::filesystem::path path;
  std::filesystem::path resolved;  // with all symbolic links resolved
  std::int64_t bytes = -1;         // -1: there is no such file
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const PartStamp&, const PartStamp&) = default;
};

struct ToolchainMemo {
  std::string id;  // the words by which the compiler was asked for
  Toolchain toolchain;
  std::vector<PartStamp> parts;
};

PartStamp stamp_part(const std::filesystem::path& path);

// Makes a memo of these files: their stamps, and the toolchain's build_id from their content.
ToolchainMemo stamp_parts(const std::vector<std::filesystem::path>& parts);

// The toolchain for `id`: from this process, or from `folder` unless that is empty, or else from
// `probe`, whose result is then remembered in both.
Toolchain remembered(const std::string& id, const std::filesystem::path& folder,
                     const std::function<ToolchainMemo()>& probe);

// Whether no part has changed.
bool is_current(const ToolchainMemo& memo);

// Empty when the file is missing or damaged or the path is empty.
std::optional<ToolchainMemo> load_memo(const std::filesystem::path& file);

// Does nothing for an empty path. Errors of the disk are ignored; the next process then asks the
// compiler again.
void save_memo(const std::filesystem::path& file, const ToolchainMemo& memo);

}  // namespace tessera::jit
