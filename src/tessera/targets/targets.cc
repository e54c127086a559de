#include "tessera/targets/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kExtension = ".json";

std::string stem_of(const EmbeddedFile& row) {
  return std::string(row.path.substr(0, row.path.size() - kExtension.size()));
}

// Rows of the same rank keep the order of their names.
int rank_of(std::string_view name) {
  constexpr std::array<std::string_view, 4> kFirst = {"avx512", "avx2", "generic", "sm90a"};
  const auto found = std::find(kFirst.begin(), kFirst.end(), name);
  return static_cast<int>(found - kFirst.begin());
}

// Parses a row; errors begin with the place that the row came from.
Target parse_row(std::string_view origin, std::string_view text) {
  try {
    return target_from_json(text);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", origin, error.what()), error.context());
  }
}

}  // namespace

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& row : target_rows()) names.push_back(stem_of(row));
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(rank_of(a), a) < std::pair(rank_of(b), b);
  });
  return names;
}

Target load_target(std::string_view name_or_file) {
  if (name_or_file.ends_with(kExtension)) {
    return parse_row(name_or_file, read_file(std::filesystem::path(name_or_file)));
  }
  for (const EmbeddedFile& row : target_rows()) {
    if (stem_of(row) == name_or_file) return parse_row(row.path, row.content);
  }
  const std::vector<std::string> names = target_names();
  throw Error(ErrorCode::not_found,
              fmt::format("unknown target '{}'{} (known: {}; a row of your own is a file that ends "
                          "in .json)",
                          name_or_file, did_you_mean(name_or_file, names), join(names, ", ")));
}

}  // namespace tessera
