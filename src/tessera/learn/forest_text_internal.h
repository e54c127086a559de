// Reading LightGBM's text line by line: shared by the reader of the header and the reader of the
// trees.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/learn/forest.h"

namespace tessera {

// Walks over the text and knows the current line, for messages.
struct TextReader {
  std::string_view text;
  std::string_view what;
  std::size_t at = 0;
  int line = 0;   // number of the line that next() returned last, from 1
  int tree = -1;  // -1: not in a tree

  bool next(std::string_view& out);
};

// A value that was read: "num_leaves=31" on line 17.
struct TextField {
  std::string_view value;
  int line = 0;  // 0: not given
};

// Throws Error{parse_error} "<what>: line 17: tree 3: <message>".
[[noreturn]] void refuse_text(const TextReader& reader, int line, const std::string& message);

// Reads exactly `count` numbers separated by spaces. NaN is not a number here.
void read_numbers(const TextReader& reader, const TextField& field, std::string_view name,
                  std::size_t count, std::vector<double>& out);
void read_numbers(const TextReader& reader, const TextField& field, std::string_view name,
                  std::size_t count, std::vector<std::int64_t>& out);

// Reads one integer from `least` to `most`.
std::int64_t read_integer(const TextReader& reader, const TextField& field, std::string_view name,
                          std::int64_t least, std::int64_t most);

// A hash table of the questions, so that equal questions are stored, and answered in a batch, once.
struct SplitTable {
  std::vector<std::uint32_t> slots;  // open addressing; a slot is an index into splits plus 1
};

// The fields of a tree that matter for its value, in the order of kTreeFields.
enum class TreeField : std::uint8_t {
  num_leaves,
  num_cat,
  split_feature,
  threshold,
  decision_type,
  left_child,
  right_child,
  leaf_value,
  cat_boundaries,
  cat_threshold,
  is_linear,
  count,
};
struct TreeText {
  TextField fields[static_cast<std::size_t>(TreeField::count)];
  int line = 0;  // the line of "Tree=3"
  const TextField& operator[](TreeField field) const {
    return fields[static_cast<std::size_t>(field)];
  }
};

// The field that a key names; TreeField::count for any other key.
TreeField tree_field(std::string_view key);
std::string_view to_string(TreeField field);

// Buffers that are reused from tree to tree.
struct TreeScratch {
  SplitTable table;
  std::vector<std::int64_t> features, types, left, right, boundaries, words;
  std::vector<double> thresholds, values;
  std::vector<std::uint8_t> seen;
};

// Checks a tree and adds it to the forest.
void add_tree(const TextReader& reader, const TreeText& text, TreeScratch& scratch, Forest& forest);

}  // namespace tessera
