#include "tessera/jit/cache_entry_internal.h"

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/base/private_files.h"
#include "tessera/jit/compilers_internal.h"
#include "tessera/jit/elf_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kNoBinary = "meta.json must list exactly one kernel or object";

// A checksum of meta.json's content, so that a flipped bit in meta.json is noticed too.
std::string seal_of(const EntryMeta& meta) {
  std::string text = fmt::format("{}\n{}\n{}\n", kFormat, meta.name, meta.key);
  for (const auto& [path, stamp] : meta.files) {
    text += fmt::format("{}\n{}\n{}\n", path, stamp.bytes, stamp.checksum);
  }
  for (const auto& [fact, value] : meta.facts) text += fmt::format("{}\n{}\n", fact, value);
  return hash_hex(text);
}

std::string to_text(const EntryMeta& meta) {
  json files = json::object();
  for (const auto& [path, stamp] : meta.files) {
    files[path] = {{"bytes", stamp.bytes}, {"checksum", stamp.checksum}};
  }
  json document = {{"format", kFormat},
                   {"name", meta.name},
                   {"key", meta.key},
                   {"files", files},
                   {"seal", seal_of(meta)}};
  if (!meta.facts.empty()) document["facts"] = meta.facts;
  return document.dump(2) + "\n";
}

// A folder must not hold both a kernel and an object, because it would not say which one it stands
// for.
template <class IsThere>
std::optional<BinaryKind> one_binary(const IsThere& is_there) {
  std::optional<BinaryKind> one;
  for (const BinaryKind& kind : binary_kinds()) {
    if (!is_there(kind.file)) continue;
    if (one) return std::nullopt;
    one = kind;
  }
  return one;
}

FileStamp stamp_of(std::string_view content) {
  return {.bytes = static_cast<std::int64_t>(content.size()), .checksum = hash_hex(content)};
}

std::string file_damage(const fs::path& folder, const std::string& path, const FileStamp& want) {
  std::string why;
  const std::optional<std::string> content = read_regular_file(folder / path, why);
  if (!content) return fmt::format("{} {}", path, why);
  const FileStamp got = stamp_of(*content);
  if (got.bytes != want.bytes) {
    return fmt::format("{} has {} bytes, meta.json says {}", path, got.bytes, want.bytes);
  }
  if (got.checksum != want.checksum) {
    return fmt::format("{} has checksum {}, meta.json says {}", path, got.checksum, want.checksum);
  }
  for (const BinaryKind& kind : binary_kinds()) {
    if (kind.file != path) continue;
    const std::string damage = elf_damage(kind, *content);
    if (!damage.empty()) return fmt::format("{} {}", path, damage);
  }
  return {};
}

// Only regular files are part of an entry. Links and pipes that a compiler leaves are not.
struct Tree {
  std::vector<fs::path> files;
  std::vector<fs::path> folders;
};

Tree tree_below(const fs::path& folder) try {
  Tree tree{.files = {}, .folders = {folder}};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const fs::file_status status = entry.symlink_status();
    if (fs::is_directory(status)) tree.folders.push_back(entry.path());
    if (fs::is_regular_file(status)) tree.files.push_back(entry.path());
  }
  return tree;
} catch (const fs::filesystem_error& error) {
  throw Error(ErrorCode::io_error,
              fmt::format("cannot list {}: {}", folder.string(), error.code().message()));
}

}  // namespace

std::string binary_file(const EntryMeta& meta) {
  const std::optional<BinaryKind> kind =
      one_binary([&](std::string_view file) { return meta.files.count(std::string(file)) > 0; });
  return kind ? std::string(kind->file) : std::string();
}

Binary read_binary(const fs::path& folder, const std::string& name) {
  std::error_code failed;
  const std::optional<BinaryKind> kind = one_binary(
      [&](std::string_view file) { return fs::exists(fs::symlink_status(folder / file, failed)); });
  if (!kind) {
    std::vector<std::string> files;
    for (const BinaryKind& each : binary_kinds()) files.emplace_back(each.file);
    throw Error(ErrorCode::compile_failed,
                fmt::format("{}: an entry needs exactly one of {}, got none or several", name,
                            fmt::join(files, ", ")));
  }
  std::string damage;
  const std::optional<std::string> content = read_regular_file(folder / kind->file, damage);
  if (content) damage = elf_damage(*kind, *content);
  if (damage.empty()) return {.file = std::string(kind->file), .content = *content};
  throw Error(ErrorCode::compile_failed, fmt::format("{}: {} {}", name, kind->file, damage));
}

std::string entry_folder_name(const std::string& name, const std::string& key) {
  constexpr std::size_t kLongestName = 200;
  return name.substr(0, kLongestName) + "-" + key;
}

std::string seal_entry(const fs::path& folder, const std::string& name, const std::string& key) {
  Binary read = read_binary(folder, name);
  std::string binary = std::move(read.file);
  EntryMeta meta{.name = name, .key = key, .files = {}, .facts = {}};
  Tree tree = tree_below(folder);
  for (const fs::path& file : tree.files) {
    meta.files[file.lexically_relative(folder).string()] = stamp_of(read_file(file));
  }
  const CompilerRow* const compiler = compiler_of_binary(binary);
  if (compiler != nullptr && compiler->facts != nullptr) {
    meta.facts =
        compiler->facts(try_read_file(folder / "log.txt").value_or(""), read.content, name);
  }
  tree.files.push_back(folder / kMetaFile);
  write_file_unflushed(tree.files.back(), to_text(meta));
  tree.files.insert(tree.files.end(), tree.folders.begin(), tree.folders.end());
  fsync_files(tree.files);
  return binary;
}

std::optional<EntryMeta> read_meta(const fs::path& folder, std::string& damage) {
  if (const std::string why = why_not_private(folder); !why.empty()) {
    damage = "its folder " + why;
    return std::nullopt;
  }
  const std::optional<std::string> text = read_regular_file(folder / kMetaFile, damage);
  if (!text) {
    damage = fmt::format("{} {}", kMetaFile, damage);
    return std::nullopt;
  }
  damage = "meta.json is damaged";
  const json document = json::parse(*text, nullptr, false);
  try {
    EntryMeta meta{
        .name = document.at("name"), .key = document.at("key"), .files = {}, .facts = {}};
    for (const auto& [path, stamp] : document.at("files").items()) {
      meta.files[path] = {.bytes = stamp.at("bytes"), .checksum = stamp.at("checksum")};
    }
    if (document.contains("facts")) meta.facts = document.at("facts");
    if (document.at("format") != kFormat || document.at("seal") != seal_of(meta)) return {};
    damage.clear();
    return meta;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<fs::path> good_binary(const fs::path& folder, const std::string& name,
                                    const std::string& key, std::string& damage) {
  const std::optional<EntryMeta> meta = read_meta(folder, damage);
  if (!meta) return std::nullopt;
  if (meta->name != name || meta->key != key) {
    damage = fmt::format("meta.json is that of {}", entry_folder_name(meta->name, meta->key));
    return std::nullopt;
  }
  const std::string binary = binary_file(*meta);
  damage = binary.empty() ? kNoBinary : file_damage(folder, binary, meta->files.at(binary));
  return damage.empty() ? std::optional(folder / binary) : std::nullopt;
}

std::string own_damage(const fs::path& folder, const EntryMeta& meta) {
  if (folder.filename() != entry_folder_name(meta.name, meta.key)) {
    return fmt::format("meta.json is that of {}", entry_folder_name(meta.name, meta.key));
  }
  if (binary_file(meta).empty()) return kNoBinary;
  for (const auto& [path, stamp] : meta.files) {
    if (std::string damage = file_damage(folder, path, stamp); !damage.empty()) return damage;
  }
  return {};
}

}  // namespace tessera::jit
