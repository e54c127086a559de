// What is remembered of a compiler between processes: to ask it takes 15 ms and to hash it as much.
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

// Seconds after which a compiler that is asked what it is counts as hanging.
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
  std::filesystem::path resolved;  // behind all symbolic links
  std::int64_t bytes = -1;         // -1: there is no such file
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const PartStamp&, const PartStamp&) = default;
};

struct ToolchainMemo {
  std::string id;  // what it was asked for as
  Toolchain toolchain;
  std::vector<PartStamp> parts;
};

PartStamp stamp_part(const std::filesystem::path& path);

// A memo of these files: their stamps, and the toolchain's build_id from their content.
ToolchainMemo stamp_parts(const std::vector<std::filesystem::path>& parts);

// The toolchain that is known as `id`, from this process, from `folder` unless that is empty, or
// else found out by `probe` and remembered in both.
Toolchain remembered(const std::string& id, const std::filesystem::path& folder,
                     const std::function<ToolchainMemo()>& probe);

// Whether every part is still what it was.
bool is_current(const ToolchainMemo& memo);

// Empty for a file that is missing or damaged, or an empty path.
std::optional<ToolchainMemo> load_memo(const std::filesystem::path& file);

// Does nothing for an empty path, and what a disk refuses is simply found out again.
void save_memo(const std::filesystem::path& file, const ToolchainMemo& memo);

}  // namespace tessera::jit
