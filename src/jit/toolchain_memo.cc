#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

std::int64_t to_ns(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

json to_json(const PartStamp& part) {
  return {{"path", part.path.string()},    {"resolved", part.resolved.string()},
          {"bytes", part.bytes},           {"modified_ns", part.modified_ns},
          {"changed_ns", part.changed_ns}, {"inode", part.inode}};
}

PartStamp part_from_json(const json& part) {
  return {.path = part.at("path").get<std::string>(),
          .resolved = part.at("resolved").get<std::string>(),
          .bytes = part.at("bytes"),
          .modified_ns = part.at("modified_ns"),
          .changed_ns = part.at("changed_ns"),
          .inode = part.at("inode")};
}

json to_json(const ToolchainMemo& memo) {
  json parts = json::array();
  for (const PartStamp& part : memo.parts) parts.push_back(to_json(part));
  return {{"format", kFormat},
          {"path", memo.toolchain.path.string()},
          {"version", memo.toolchain.version},
          {"build_id", memo.toolchain.build_id},
          {"arguments", memo.toolchain.arguments},
          {"parts", parts}};
}

}  // namespace

PartStamp stamp_part(const fs::path& path) {
  PartStamp part{.path = path};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return part;
  std::error_code ignored;
  part.resolved = fs::canonical(path, ignored);
  part.bytes = status.st_size;
  part.modified_ns = to_ns(status.st_mtim);
  part.changed_ns = to_ns(status.st_ctim);
  part.inode = status.st_ino;
  return part;
}

bool is_current(const ToolchainMemo& memo) {
  return std::all_of(memo.parts.begin(), memo.parts.end(),
                     [](const PartStamp& part) { return stamp_part(part.path) == part; });
}

std::optional<ToolchainMemo> load_memo(const fs::path& file) {
  const std::optional<std::string> text = file.empty() ? std::nullopt : try_read_file(file);
  if (!text) return std::nullopt;
  json document = json::parse(*text, nullptr, false);
  try {
    const std::string seal = document.at("seal");
    document.erase("seal");
    if (document.at("format") != kFormat || hash_hex(document.dump()) != seal) return std::nullopt;
    ToolchainMemo memo{.toolchain = {.path = document.at("path").get<std::string>(),
                                     .version = document.at("version"),
                                     .build_id = document.at("build_id"),
                                     .arguments = document.at("arguments")},
                       .parts = {}};
    for (const json& part : document.at("parts")) memo.parts.push_back(part_from_json(part));
    return memo;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

void save_memo(const fs::path& file, const ToolchainMemo& memo) {
  if (file.empty()) return;
  std::error_code ignored;
  fs::create_directory(file.parent_path(), ignored);
  json document = to_json(memo);
  const std::string seal = hash_hex(document.dump());
  document["seal"] = seal;
  try {
    write_file_atomic(file, document.dump(2) + "\n");
  } catch (const Error&) {
    // A read-only or full disk: the next process asks the compiler again.
  }
}

}  // namespace tessera::jit
