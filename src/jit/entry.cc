#include "tessera/jit/entry_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/hash.h"
#include "tessera/jit/nvrtc_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::array kBinaryFiles = {kLibraryFile, kCubinFile, kObjectFile};

// A checksum over the meaning of meta.json, so that a flipped bit in it is seen too.
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

FileStamp stamp_of(std::string_view content) {
  return {.bytes = static_cast<std::int64_t>(content.size()), .checksum = hash_hex(content)};
}

// Empty when the file is missing, which is damage. What the process or a server lacks at the moment
// is none: entries that others can read must not be set aside for it.
std::optional<std::string> read_entry_file(const fs::path& file) {
  constexpr std::array kPassing = {EMFILE, ENFILE, ENOMEM, EAGAIN, ESTALE, ETIMEDOUT};
  std::optional<std::string> content = try_read_file(file);
  const int error = errno;
  const bool passes = std::find(kPassing.begin(), kPassing.end(), error) != kPassing.end();
  if (content || !passes) return content;
  throw Error(ErrorCode::io_error, fmt::format("{} cannot be read now: {}", file.string(),
                                               std::generic_category().message(error)));
}

std::string file_damage(const fs::path& folder, const std::string& path, const FileStamp& want) {
  const std::optional<std::string> content = read_entry_file(folder / path);
  if (!content) return path + " is missing";
  const FileStamp got = stamp_of(*content);
  if (got.bytes != want.bytes) {
    return fmt::format("{} has {} bytes, meta.json says {}", path, got.bytes, want.bytes);
  }
  if (got.checksum != want.checksum) {
    return fmt::format("{} has checksum {}, meta.json says {}", path, got.checksum, want.checksum);
  }
  return {};
}

struct Tree {
  std::vector<fs::path> files;
  std::vector<fs::path> folders;
};

Tree tree_below(const fs::path& folder) try {
  Tree tree{.files = {}, .folders = {folder}};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    (entry.is_directory() ? tree.folders : tree.files).push_back(entry.path());
  }
  return tree;
} catch (const fs::filesystem_error& error) {
  throw Error(ErrorCode::io_error,
              fmt::format("cannot list {}: {}", folder.string(), error.code().message()));
}

}  // namespace

std::string binary_file(const EntryMeta& meta) {
  for (const char* name : kBinaryFiles) {
    if (meta.files.count(name) > 0) return name;
  }
  return {};
}

std::string binary_file_in(const fs::path& folder) {
  std::error_code failed;
  for (const char* name : kBinaryFiles) {
    if (fs::exists(folder / name, failed)) return name;
  }
  return kLibraryFile;
}

std::string entry_folder_name(const std::string& name, const std::string& key) {
  constexpr std::size_t kLongestName = 200;
  return name.substr(0, kLongestName) + "-" + key;
}

void seal_entry(const fs::path& folder, const std::string& name, const std::string& key) {
  EntryMeta meta{.name = name, .key = key, .files = {}, .facts = {}};
  Tree tree = tree_below(folder);
  for (const fs::path& file : tree.files) {
    meta.files[file.lexically_relative(folder).string()] = stamp_of(read_file(file));
  }
  const std::string binary = binary_file(meta);
  if (binary.empty() || meta.files[binary].bytes == 0) {
    throw Error(ErrorCode::compile_failed,
                fmt::format("{}: an entry needs a {}, got none or an empty one", name,
                            binary.empty() ? kLibraryFile : binary));
  }
  if (binary == kCubinFile) {
    meta.facts = cubin_facts(try_read_file(folder / "log.txt").value_or(""), name);
  }
  tree.files.push_back(folder / kMetaFile);
  write_file_unflushed(tree.files.back(), to_text(meta));
  tree.files.insert(tree.files.end(), tree.folders.begin(), tree.folders.end());
  fsync_files(tree.files);
}

std::optional<EntryMeta> read_meta(const fs::path& folder, std::string& damage) {
  const std::optional<std::string> text = read_entry_file(folder / kMetaFile);
  if (!text) {
    damage = "meta.json is missing";
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

std::string entry_damage(const fs::path& folder, const std::string& name, const std::string& key,
                         CheckDepth depth) {
  std::string damage;
  const std::optional<EntryMeta> meta = read_meta(folder, damage);
  if (!meta) return damage;
  if (meta->name != name || meta->key != key) {
    return fmt::format("meta.json is that of {}", entry_folder_name(meta->name, meta->key));
  }
  const std::string binary = binary_file(*meta);
  if (binary.empty()) return std::string(kLibraryFile) + " is not in meta.json";
  if (depth == CheckDepth::binary) return file_damage(folder, binary, meta->files.at(binary));
  for (const auto& [path, stamp] : meta->files) {
    damage = file_damage(folder, path, stamp);
    if (!damage.empty()) return damage;
  }
  return {};
}

std::optional<fs::path> good_binary(const fs::path& folder, const std::string& name,
                                    const std::string& key, std::string& damage) {
  damage = entry_damage(folder, name, key, CheckDepth::binary);
  if (!damage.empty()) return std::nullopt;
  return folder / binary_file_in(folder);
}

std::string own_damage(const fs::path& folder) {
  std::string damage;
  const std::optional<EntryMeta> meta = read_meta(folder, damage);
  if (!meta) return damage;
  if (folder.filename() != entry_folder_name(meta->name, meta->key)) {
    return fmt::format("meta.json is that of {}", entry_folder_name(meta->name, meta->key));
  }
  return entry_damage(folder, meta->name, meta->key, CheckDepth::everything);
}

}  // namespace tessera::jit
