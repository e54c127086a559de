#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/hash.h"
#include "tessera/base/private_files.h"
#include "tessera/jit/toolchain_memo_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr int kMemoFormat = 2;

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

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
  return {{"format", kMemoFormat},
          {"id", memo.id},
          {"path", memo.toolchain.path.string()},
          {"version", memo.toolchain.version},
          {"build_id", memo.toolchain.build_id},
          {"arguments", memo.toolchain.arguments},
          {"parts", parts}};
}

// Read in pieces, because a compiler's library may have a hundred megabytes.
std::string hash_content(const fs::path& path) {
  constexpr std::size_t kPiece = 1 << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "unreadable";
  std::string digest, piece(kPiece, '\0');
  for (ssize_t got = 0; (got = ::read(fd, piece.data(), kPiece)) > 0;) {
    digest = hash_hex(digest + hash_hex({piece.data(), static_cast<std::size_t>(got)}));
  }
  ::close(fd);
  return digest;
}

// The memo names the compiler that the next build runs, so it counts only when nobody else can have
// written it.
std::optional<std::string> read_memo(const fs::path& file) try {
  std::string why;
  if (file.empty() || !why_not_private(file).empty()) return std::nullopt;
  return read_regular_file(file, why);
} catch (const Error&) {
  return std::nullopt;
}

struct Known {
  WorkMutex asking;  // one thread at a time asks a compiler
  Mutex mutex;
  std::map<std::string, ToolchainMemo> memos;

  std::optional<ToolchainMemo> find(const std::string& id) {
    const std::lock_guard lock(mutex);
    const auto found = memos.find(id);
    return found == memos.end() ? std::nullopt : std::optional(found->second);
  }
};

Known& known() {
  static Forever<Known> instance;
  return *instance;
}

}  // namespace

PartStamp stamp_part(const fs::path& path) {
  PartStamp part{.path = path};
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return part;
  std::error_code ignored;
  part.resolved = fs::canonical(path, ignored);
  part.bytes = status.st_size;
  part.modified_ns = nanoseconds(status.st_mtim);
  part.changed_ns = nanoseconds(status.st_ctim);
  part.inode = status.st_ino;
  return part;
}

ToolchainMemo stamp_parts(const std::vector<fs::path>& parts) {
  ToolchainMemo memo;
  std::string content;
  for (const fs::path& part : parts) {
    memo.parts.push_back(stamp_part(part));
    content += fmt::format("{} {}\n", part.filename().string(), hash_content(part));
  }
  memo.toolchain.build_id = hash_hex(content);
  return memo;
}

bool is_current(const ToolchainMemo& memo) {
  return std::all_of(memo.parts.begin(), memo.parts.end(),
                     [](const PartStamp& part) { return stamp_part(part.path) == part; });
}

std::optional<ToolchainMemo> load_memo(const fs::path& file) {
  const std::optional<std::string> text = read_memo(file);
  if (!text) return std::nullopt;
  json document = json::parse(*text, nullptr, false);
  try {
    const std::string seal = document.at("seal");
    document.erase("seal");
    if (document.at("format") != kMemoFormat || hash_hex(document.dump()) != seal)
      return std::nullopt;
    ToolchainMemo memo{.id = document.at("id"),
                       .toolchain = {.path = document.at("path").get<std::string>(),
                                     .version = document.at("version"),
                                     .build_id = document.at("build_id"),
                                     .arguments = document.at("arguments"),
                                     .runner = {}},
                       .parts = {}};
    for (const json& part : document.at("parts")) memo.parts.push_back(part_from_json(part));
    return memo;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

void save_memo(const fs::path& file, const ToolchainMemo& memo) {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(file, ignored);
  if (file.empty() || (fs::exists(there) && !fs::is_regular_file(there))) return;
  make_private_folder(file.parent_path());
  json document = to_json(memo);
  try {
    document["seal"] = hash_hex(document.dump());
    write_private_file(file, document.dump(2) + "\n");
  } catch (const Error&) {
    // On a read-only or full disk the memo is not written, and the next process asks the compiler
    // again.
  } catch (const json::exception&) {
    // The same holds when a path or the compiler's output is not UTF-8, which JSON cannot hold.
  }
}

// A memo on disk may belong to another compiler whose id has the same hash, so the id in the file
// must equal the wanted one.
Toolchain remembered(const std::string& id, const fs::path& folder,
                     const std::function<ToolchainMemo()>& probe) {
  const std::lock_guard one_at_a_time(known().asking);
  if (const auto found = known().find(id); found && is_current(*found)) return found->toolchain;
  const fs::path file = folder.empty() ? fs::path() : folder / (hash_hex(id) + ".json");
  std::optional<ToolchainMemo> memo = load_memo(file);
  if (!memo || memo->id != id || !is_current(*memo)) {
    memo = probe();
    memo->id = id;
    save_memo(file, *memo);
  }
  const std::lock_guard lock(known().mutex);
  return known().memos.insert_or_assign(id, *memo).first->second.toolchain;
}

}  // namespace tessera::jit
