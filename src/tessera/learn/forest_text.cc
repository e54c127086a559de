// The file: its header, and where each tree begins and ends.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/learn/forest_text_internal.h"
#include "tessera/learn/gzip.h"

namespace tessera {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr std::size_t kShown = 60;  // characters of a value that a message shows

// Objectives whose prediction is the sum of the trees and nothing else.
constexpr std::array<std::string_view, 9> kPlainObjectives = {
    "regression", "regression_l1", "huber",       "fair",  "quantile",
    "mape",       "lambdarank",    "rank_xendcg", "custom"};

struct Header {
  TextField version, num_class, trees_per_iteration, max_feature, objective, names, sizes, average;
};

struct HeaderKey {
  std::string_view key;
  TextField Header::*field;
};
constexpr std::array kHeaderKeys = {
    HeaderKey{"version", &Header::version},
    HeaderKey{"num_class", &Header::num_class},
    HeaderKey{"num_tree_per_iteration", &Header::trees_per_iteration},
    HeaderKey{"max_feature_idx", &Header::max_feature},
    HeaderKey{"objective", &Header::objective},
    HeaderKey{"feature_names", &Header::names},
    HeaderKey{"tree_sizes", &Header::sizes},
    HeaderKey{"average_output", &Header::average},
};

constexpr std::array<std::string_view, static_cast<std::size_t>(TreeField::count)> kTreeFields = {
    "num_leaves",  "num_cat",    "split_feature",  "threshold",     "decision_type", "left_child",
    "right_child", "leaf_value", "cat_boundaries", "cat_threshold", "is_linear"};

std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShown));
  for (char& letter : out) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return fmt::format("'{}{}'", out, text.size() > kShown ? "..." : "");
}

// "key=value", or a word alone.
std::pair<std::string_view, std::string_view> key_and_value(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {line, {}};
  return {line.substr(0, equals), line.substr(equals + 1)};
}

void refuse_twice(const TextReader& reader, std::string_view key, const TextField& field) {
  if (field.line == 0) return;
  refuse_text(reader, reader.line,
              fmt::format("{} is given twice, first on line {}", key, field.line));
}

bool is_end(std::string_view line) {
  return line == "end of trees" || line == "feature importances:" || line == "feature_importances:";
}

// Reads up to the first tree, or to the end of the trees when there is none; `line` is that line.
Header read_header(TextReader& reader, std::string_view& line) {
  if (!reader.next(line) || line != "tree") {
    refuse_text(
        reader, 1,
        fmt::format("a model of LightGBM begins with the line 'tree', got {}", shown(line)));
  }
  Header header;
  while (reader.next(line)) {
    if (line.starts_with("Tree=") || is_end(line)) return header;
    const auto [key, value] = key_and_value(line);
    for (const HeaderKey& known : kHeaderKeys) {
      if (known.key != key) continue;
      refuse_twice(reader, key, header.*known.field);
      header.*known.field = {value, reader.line};
    }
  }
  refuse_text(reader, reader.line, "the file ends before its first tree");
}

void check_version(const TextReader& reader, const Header& header) {
  const TextField& version = header.version;
  if (version.line == 0) refuse_text(reader, reader.line, "the header has no version");
  if (version.value == "v2" || version.value == "v3" || version.value == "v4") return;
  throw Error(ErrorCode::unsupported, fmt::format("{}: line {}: versions v2, v3 and v4 are read, "
                                                  "got {}",
                                                  reader.what, version.line, shown(version.value)));
}

void check_single(const TextReader& reader, const TextField& field, std::string_view name) {
  if (field.line == 0) return;
  const std::int64_t value = read_integer(reader, field, name, 1, 1 << 20);
  if (value == 1) return;
  throw Error(ErrorCode::unsupported, fmt::format("{}: line {}: {} must be 1, for one number is "
                                                  "predicted, got {}",
                                                  reader.what, field.line, name, value));
}

std::string read_objective(const TextReader& reader, const Header& header) {
  const std::vector<std::string_view> words = split_words(header.objective.value);
  if (words.empty()) return "";
  const bool known = std::find(kPlainObjectives.begin(), kPlainObjectives.end(), words[0]) !=
                     kPlainObjectives.end();
  const bool sqrt = std::find(words.begin(), words.end(), "sqrt") != words.end();
  if (known && !sqrt) return std::string(words[0]);
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: line {}: the predictions of objective {} are not the sums of its "
                          "trees; known are {}",
                          reader.what, header.objective.line, shown(header.objective.value),
                          fmt::join(kPlainObjectives, ", ")));
}

void read_header_into(const TextReader& reader, const Header& header, Forest& forest) {
  check_version(reader, header);
  check_single(reader, header.num_class, "num_class");
  check_single(reader, header.trees_per_iteration, "num_tree_per_iteration");
  forest.objective = read_objective(reader, header);
  forest.average_output = header.average.line != 0;

  const std::int64_t features =
      read_integer(reader, header.max_feature, "max_feature_idx", 0, 1 << 24) + 1;
  for (const std::string_view name : split_words(header.names.value)) {
    forest.feature_names.emplace_back(name);
  }
  if (forest.feature_names.size() != static_cast<std::size_t>(features)) {
    refuse_text(reader, header.names.line == 0 ? reader.line : header.names.line,
                fmt::format("feature_names must hold {} names (max_feature_idx {}), got {}",
                            features, features - 1, forest.feature_names.size()));
  }
}

// Reads from "Tree=3" to the line that begins the next tree or ends them all.
TreeText read_tree(TextReader& reader, std::string_view& line) {
  TreeText text;
  text.line = reader.line;
  const TextField index{line.substr(line.find('=') + 1), reader.line};
  const std::int64_t number = read_integer(reader, index, "Tree", 0, 1 << 30);
  if (number != reader.tree) {
    refuse_text(reader, reader.line,
                fmt::format("trees must come in order: expected Tree={}, got "
                            "Tree={}",
                            reader.tree, number));
  }
  while (reader.next(line)) {
    if (line.starts_with("Tree=") || is_end(line)) return text;
    const auto [key, value] = key_and_value(line);
    const TreeField known = tree_field(key);
    if (known == TreeField::count) continue;
    TextField& field = text.fields[static_cast<std::size_t>(known)];
    refuse_twice(reader, key, field);
    field = {value, reader.line};
  }
  refuse_text(reader, reader.line, "the file ends in this tree, without the line 'end of trees'");
}

// A header that lists the trees' sizes also says how many trees there are.
void check_count(const TextReader& reader, const Header& header, std::size_t trees) {
  if (header.sizes.line == 0) return;
  const std::size_t listed = split_words(header.sizes.value).size();
  if (listed == trees) return;
  refuse_text(reader, header.sizes.line,
              fmt::format("tree_sizes lists {} trees, but {} are there", listed, trees));
}

}  // namespace

bool TextReader::next(std::string_view& out) {
  if (at >= text.size()) return false;
  const std::size_t end = std::min(text.find('\n', at), text.size());
  out = text.substr(at, end - at);
  if (out.ends_with('\r')) out.remove_suffix(1);
  at = end + 1;
  ++line;
  return true;
}

void refuse_text(const TextReader& reader, int line, const std::string& message) {
  const std::string tree = reader.tree < 0 ? "" : fmt::format("tree {}: ", reader.tree);
  throw Error(ErrorCode::parse_error,
              fmt::format("{}: line {}: {}{}", reader.what, line, tree, message));
}

TreeField tree_field(std::string_view key) {
  const auto found = std::find(kTreeFields.begin(), kTreeFields.end(), key);
  return static_cast<TreeField>(found - kTreeFields.begin());
}

std::string_view to_string(TreeField field) {
  return kTreeFields.at(static_cast<std::size_t>(field));
}

namespace {

template <class T>
void read_list(const TextReader& reader, const TextField& field, std::string_view name,
               std::size_t count, std::vector<T>& out) {
  out.clear();
  const char* at = field.value.data();
  const char* const end = at + field.value.size();
  for (;;) {
    while (at != end && *at == ' ') ++at;
    if (at == end) break;
    T value{};
    const auto [stop, error] = std::from_chars(at, end, value);
    bool good = error == std::errc() && (stop == end || *stop == ' ');
    if constexpr (std::is_floating_point_v<T>) good = good && !std::isnan(value);
    if (!good || out.size() == count) {
      const std::string_view rest(at, static_cast<std::size_t>(end - at));
      const std::string_view word = rest.substr(0, rest.find(' '));
      if (good)
        refuse_text(reader, field.line,
                    fmt::format("{} must hold {} numbers, got more: {}", name, count, shown(word)));
      refuse_text(
          reader, field.line,
          fmt::format("{}[{}] must be {}, got {}", name, out.size(),
                      std::is_floating_point_v<T> ? "a number" : "an integer", shown(word)));
    }
    out.push_back(value);
    at = stop;
  }
  if (out.size() == count) return;
  if (field.line == 0) refuse_text(reader, reader.line, fmt::format("{} is missing", name));
  refuse_text(reader, field.line,
              fmt::format("{} must hold {} numbers, got {}", name, count, out.size()));
}

}  // namespace

void read_numbers(const TextReader& reader, const TextField& field, std::string_view name,
                  std::size_t count, std::vector<double>& out) {
  read_list(reader, field, name, count, out);
}

void read_numbers(const TextReader& reader, const TextField& field, std::string_view name,
                  std::size_t count, std::vector<std::int64_t>& out) {
  read_list(reader, field, name, count, out);
}

std::int64_t read_integer(const TextReader& reader, const TextField& field, std::string_view name,
                          std::int64_t least, std::int64_t most) {
  if (field.line == 0) refuse_text(reader, reader.line, fmt::format("{} is missing", name));
  std::int64_t value = 0;
  const char* const end = field.value.data() + field.value.size();
  const auto [stop, error] = std::from_chars(field.value.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    refuse_text(reader, field.line,
                fmt::format("{} must be an integer from {} to {}, got {}", name, least, most,
                            shown(field.value)));
  }
  return value;
}

// Sorts the questions by feature, kind and threshold, as the evaluator of batches needs them.
void sort_splits(Forest& forest) {
  const auto key = [](const Split& split) {
    return std::tuple(split.feature, split.categorical, split.flip_zero, split.missing_left,
                      split.threshold, split.first_word);
  };
  std::vector<std::uint32_t> order(forest.splits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return key(forest.splits[a]) < key(forest.splits[b]);
  });
  std::vector<std::uint32_t> place(order.size());
  std::vector<Split> sorted(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted[i] = forest.splits[order[i]];
  }
  forest.splits = std::move(sorted);
  for (Node& node : forest.nodes) node.split = place[node.split];
}

Forest parse_forest(std::string_view bytes, std::string_view what) {
  if (bytes.size() > kMostBytes) {
    throw Error(ErrorCode::parse_error, fmt::format("{}: a model holds at most {} bytes, got {}",
                                                    what, kMostBytes, bytes.size()));
  }
  std::string inflated;
  if (is_gzip(bytes)) {
    inflated = inflate_gzip(bytes, what, kMostBytes);
    bytes = inflated;
  }
  TextReader reader{.text = bytes, .what = what};
  Forest forest;
  std::string_view line;
  const Header header = read_header(reader, line);
  read_header_into(reader, header, forest);
  TreeScratch scratch;
  while (!is_end(line)) {
    ++reader.tree;
    const TreeText tree = read_tree(reader, line);
    add_tree(reader, tree, scratch, forest);
  }
  reader.tree = -1;
  check_count(reader, header, forest.roots.size());
  if (forest.roots.empty()) refuse_text(reader, reader.line, "the model has no tree");
  sort_splits(forest);
  return forest;
}

}  // namespace tessera
