#include "tessera/families/headers.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/hash.h"

namespace tessera {
namespace {

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

// The header that a line includes; empty when it includes none. Conditions around the line are
// ignored, so a closure may hold more headers than a kernel needs, but never fewer.
std::string_view included_by(std::string_view line) {
  constexpr std::string_view kInclude = "include";
  line = without_blanks(line);
  if (!line.starts_with('#')) return {};
  line = without_blanks(line.substr(1));
  if (!line.starts_with(kInclude)) return {};
  line = without_blanks(line.substr(kInclude.size()));
  const std::size_t end = line.find('"', 1);
  return line.starts_with('"') && end != line.npos ? line.substr(1, end - 1) : line;
}

std::vector<std::string> included_headers(std::string_view text) {
  std::set<std::string> headers;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view header = included_by(text.substr(0, end));
    if (!header.empty()) headers.emplace(header);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return {headers.begin(), headers.end()};
}

std::vector<EmbeddedFile> every_backends_headers() {
  std::vector<EmbeddedFile> all;
  for (const std::span<const EmbeddedFile> some : {cpu_headers(), cuda_headers(), hip_headers()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace

Headers::Headers(std::vector<EmbeddedFile> unsorted) : files(std::move(unsorted)) {
  std::sort(files.begin(), files.end(),
            [](const EmbeddedFile& a, const EmbeddedFile& b) { return a.path < b.path; });
  std::string text;
  for (const EmbeddedFile& file : files) {
    text += fmt::format("{}:{} {}\n", file.path.size(), file.path, hash_hex(file.content));
  }
  hash = hash_hex(text);
}

HeaderMap::HeaderMap(std::span<const EmbeddedFile> files) {
  for (const EmbeddedFile& file : files) files_.emplace(file.path, file);
}

std::shared_ptr<const Headers> HeaderMap::of(std::string_view text) {
  const std::vector<std::string> roots = included_headers(text);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Headers>& answer = answers_[roots];
  if (answer == nullptr) answer = closure(roots);
  return answer;
}

std::shared_ptr<const Headers> HeaderMap::closure(const std::vector<std::string>& roots) const {
  struct Include {
    std::string header;
    std::string_view by;
  };
  std::vector<Include> open;
  for (const std::string& root : roots) open.push_back({root, "the text of a kernel"});
  std::map<std::string_view, EmbeddedFile> found;
  while (!open.empty()) {
    const Include next = open.back();
    open.pop_back();
    const auto file = files_.find(next.header);
    if (file == files_.end()) {
      throw Error(ErrorCode::internal,
                  fmt::format("{} includes {}, which is none of the {} headers that the library "
                              "carries: a kernel includes nothing else, by lines such as #include "
                              "\"tessera/device/cpu/math.h\"",
                              next.by, next.header, files_.size()));
    }
    if (!found.emplace(file->first, file->second).second) continue;
    for (std::string& header : included_headers(file->second.content)) {
      open.push_back({std::move(header), file->first});
    }
  }
  std::vector<EmbeddedFile> files;
  for (const auto& [path, file] : found) files.push_back(file);
  return std::make_shared<const Headers>(std::move(files));
}

std::shared_ptr<const Headers> headers_of(std::string_view text) {
  static Forever<HeaderMap> ours(every_backends_headers());
  return ours->of(text);
}

}  // namespace tessera
