#include "tessera/jit/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/hash.h"
#include "tessera/jit/memory_file_internal.h"

namespace tessera::jit {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMagic = 0x004b434150525354ULL;  // "TSRPACK" and a zero byte
// Version 1 had the list of kernels alone for an index. It is still read.
constexpr std::uint64_t kPackFormat = 2;
constexpr std::uint64_t kOldestPack = 1;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLargestIndex = 1 << 28;

// In file order, eight bytes each.
struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t version = kPackFormat;
  std::uint64_t file_bytes = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t index_bytes = 0;
  std::uint64_t index_checksum = 0;
  std::uint64_t reserved = 0;
  std::uint64_t header_checksum = 0;  // checksum of the fields before it
};
constexpr std::size_t kHeaderWords = sizeof(Header) / 8;
using HeaderWords = std::array<std::uint64_t, kHeaderWords>;
static_assert(sizeof(Header) == 64);

std::string encode(const Header& header) {
  std::string bytes;
  for (const std::uint64_t word : std::bit_cast<HeaderWords>(header)) {
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(word >> shift & 0xff);
  }
  return bytes;
}

Header decode(std::string_view bytes) {
  HeaderWords words = {};
  for (std::size_t i = 0; i < sizeof(Header); ++i) {
    words[i / 8] |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
  }
  return std::bit_cast<Header>(words);
}

std::uint64_t checksum_of(const Header& header) {
  return hash64(std::string_view(encode(header)).substr(0, sizeof(Header) - 8));
}

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw Error(
      ErrorCode::parse_error,
      fmt::format("the pack {} {}; make it again with 'tessera pack'", file.string(), what));
}

std::uint64_t round_up_to_page(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

using Id = std::pair<std::string, std::string>;  // name, source key

}  // namespace

std::string date_of(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm day{};
  if (gmtime_r(&time, &day) == nullptr) return "an unknown day";
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

std::string to_string(const PackMaker& maker) {
  if (maker.version.empty()) return "a version of Tessera from before packs said theirs";
  if (maker.made == 0) return fmt::format("Tessera {}", maker.version);
  return fmt::format("Tessera {} on {}", maker.version, date_of(maker.made));
}

void write_pack(const fs::path& file, std::span<const PackInput> inputs, const PackMaker& maker) {
  std::map<Id, const PackInput*> sorted;
  for (const PackInput& input : inputs) {
    sorted.try_emplace({input.entry.name, input.entry.source_key}, &input);
  }
  std::string content(kPage, '\0');
  json kernels = json::array();
  for (const auto& [id, input] : sorted) {
    const std::string binary = read_file(input->binary);
    kernels.push_back({{"name", id.first},
                       {"source_key", id.second},
                       {"target", input->entry.target},
                       {"offset", content.size()},
                       {"bytes", binary.size()},
                       {"checksum", hash_hex(binary)}});
    content += binary;
    content.resize(round_up_to_page(content.size()), '\0');
  }
  const json index = {{"version", maker.version},
                      {"made", maker.made},
                      {"compilers", maker.compilers},
                      {"kernels", kernels}};
  const std::string index_text = index.dump();
  Header header{.index_offset = content.size(),
                .index_bytes = index_text.size(),
                .index_checksum = hash64(index_text)};
  content += index_text;
  header.file_bytes = content.size();
  header.header_checksum = checksum_of(header);
  content.replace(0, sizeof(Header), encode(header));
  write_file_atomic(file, content);
}

struct Pack::State {
  struct Blob {  // offset and size of an entry's bytes
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::string checksum;
  };
  fs::path file;
  int fd = -1;
  PackMaker maker;
  std::vector<PackEntry> entries;
  std::map<Id, Blob> blobs;

  ~State() {
    if (fd >= 0) ::close(fd);
  }
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;
  Header read_header(std::uint64_t file_bytes) const;
  void read_index(const Header& header);
  void read_kernels(const json& kernels, const Header& header);
};

// Positioned reads, not a mapping: a file that shrinks under us is an error, not a signal.
std::string Pack::State::read(std::uint64_t offset, std::uint64_t bytes) const {
  std::string content(bytes, '\0');
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(fd, content.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(file, fmt::format("ends at byte {}", offset + done));
    done += static_cast<std::uint64_t>(got);
  }
  return content;
}

Header Pack::State::read_header(std::uint64_t file_bytes) const {
  if (file_bytes < sizeof(Header)) {
    fail(file, fmt::format("is truncated: a header has {} bytes, the file has {}", sizeof(Header),
                           file_bytes));
  }
  const Header header = decode(read(0, sizeof(Header)));
  if (header.magic != kMagic) fail(file, "is not a pack: its first 8 bytes are wrong");
  if (header.header_checksum != checksum_of(header)) {
    fail(file, "is damaged: its header does not have its checksum");
  }
  if (header.version < kOldestPack || header.version > kPackFormat) {
    fail(file, fmt::format("has format version {}, this library reads versions {} to {}",
                           header.version, kOldestPack, kPackFormat));
  }
  if (header.file_bytes != file_bytes) {
    fail(file, fmt::format("is truncated or extended: its header says {} bytes, the file has {}",
                           header.file_bytes, file_bytes));
  }
  if (header.index_bytes > kLargestIndex || header.index_offset > file_bytes ||
      header.index_bytes != file_bytes - header.index_offset) {
    fail(file, "is damaged: its index is outside the file");
  }
  return header;
}

void Pack::State::read_index(const Header& header) {
  const std::string text = read(header.index_offset, header.index_bytes);
  if (hash64(text) != header.index_checksum) {
    fail(file, "is damaged: its index does not have its checksum");
  }
  try {
    const json index = json::parse(text);
    if (header.version == kOldestPack) {
      maker.version.clear();
      return read_kernels(index, header);
    }
    maker.version = index.at("version");
    maker.made = index.at("made");
    maker.compilers = index.at("compilers");
    read_kernels(index.at("kernels"), header);
  } catch (const json::exception& error) {
    fail(file, fmt::format("has a malformed index ({})", error_of(error).what()));
  }
}

void Pack::State::read_kernels(const json& kernels, const Header& header) {
  for (const json& item : kernels) {
    const Blob blob{
        .offset = item.at("offset"), .bytes = item.at("bytes"), .checksum = item.at("checksum")};
    if (blob.offset > header.index_offset || blob.bytes > header.index_offset - blob.offset) {
      fail(file, "is damaged: a kernel is outside the file");
    }
    entries.push_back({.name = item.at("name"),
                       .source_key = item.at("source_key"),
                       .target = item.at("target"),
                       .bytes = static_cast<std::int64_t>(blob.bytes)});
    blobs[{entries.back().name, entries.back().source_key}] = blob;
  }
}

Pack::Pack(const fs::path& file) : state_(std::make_unique<State>()) {
  state_->file = file;
  state_->fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (state_->fd < 0 || ::fstat(state_->fd, &status) != 0) {
    throw Error(ErrorCode::io_error, fmt::format("cannot read the pack {}: {}", file.string(),
                                                 std::generic_category().message(errno)));
  }
  if (!S_ISREG(status.st_mode)) fail(file, "is not a file");
  state_->read_index(state_->read_header(static_cast<std::uint64_t>(status.st_size)));
}

Pack::~Pack() = default;
Pack::Pack(Pack&&) noexcept = default;

const fs::path& Pack::file() const { return state_->file; }

const PackMaker& Pack::maker() const { return state_->maker; }

const std::vector<PackEntry>& Pack::entries() const { return state_->entries; }

bool Pack::lists(const std::string& name) const {
  const auto next = state_->blobs.lower_bound({name, ""});
  return next != state_->blobs.end() && next->first.first == name;
}

bool Pack::lists(const std::string& name, const std::string& source_key) const {
  return state_->blobs.count({name, source_key}) > 0;
}

std::string Pack::other_source(const std::string& name, const std::string& source_key) const {
  const auto listed = state_->blobs.lower_bound({name, ""});
  if (!lists(name) || lists(name, source_key)) return {};
  return fmt::format(
      "the pack {} holds {} of another source, with the key {} where this library has {}: {} made "
      "it, this is Tessera {}; make it again with 'tessera pack'",
      state_->file.string(), name, listed->first.second.substr(0, 12), source_key.substr(0, 12),
      to_string(state_->maker), kVersion);
}

std::optional<Artifact> Pack::find(const std::string& name, const std::string& source_key) const {
  const auto found = state_->blobs.find({name, source_key});
  if (found == state_->blobs.end()) return std::nullopt;
  const State::Blob& blob = found->second;
  const std::string binary = state_->read(blob.offset, blob.bytes);
  if (const std::string got = hash_hex(binary); got != blob.checksum) {
    fail(state_->file, fmt::format("is damaged: {} has checksum {}, the index says {}", name, got,
                                   blob.checksum));
  }
  Artifact artifact = memory_artifact(name, source_key, binary);
  artifact.from = ArtifactFrom::pack;
  return artifact;
}

}  // namespace tessera::jit
