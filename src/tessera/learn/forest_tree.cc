// One tree: from its lines to nodes and leaves, with checks against everything that a hostile file
// may contain.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/learn/forest_text_internal.h"

namespace tessera {
namespace {

// LightGBM's decision_type: bit 0 categorical, bit 1 default left, bits 2-3 the missing type.
enum class Missing : std::uint8_t { none, zero, nan };
constexpr std::int64_t kMostDecisionType = 11;

constexpr std::int64_t kMostLeaves = 1 << 24;
constexpr std::size_t kMostNodes = std::size_t{1} << 30;  // children are 32-bit indices

struct Tree {
  const TextReader& reader;
  const TreeText& text;
  std::size_t leaves;
  std::int64_t categories;  // num_cat
};

[[noreturn]] void refuse(const Tree& tree, TreeField field, std::size_t index,
                         const std::string& rule) {
  refuse_text(tree.reader, tree.text[field].line,
              fmt::format("{}[{}] {}", to_string(field), index, rule));
}

void read_doubles(const Tree& tree, TreeField field, std::size_t count, std::vector<double>& out) {
  read_numbers(tree.reader, tree.text[field], to_string(field), count, out);
}
void read_integers(const Tree& tree, TreeField field, std::size_t count,
                   std::vector<std::int64_t>& out) {
  read_numbers(tree.reader, tree.text[field], to_string(field), count, out);
}

// A threshold within LightGBM's zero is moved to the edge of that interval, so that every x that
// counts as zero is on the same side as 0.
double outside_of_zero(double threshold) {
  if (std::fabs(threshold) > kForestZero) return threshold;
  if (threshold >= 0) return kForestZero;
  return std::nextafter(-kForestZero, -std::numeric_limits<double>::infinity());
}

Split numeric_split(std::int64_t feature, double threshold, std::int64_t type) {
  const bool default_left = (type & 2) != 0;
  const auto missing = static_cast<Missing>(type >> 2);
  const bool zero_left = 0 <= threshold;
  Split split;
  split.feature = static_cast<std::uint32_t>(feature);
  split.threshold = outside_of_zero(threshold);
  split.missing_left = missing == Missing::none ? zero_left : default_left;
  split.flip_zero = missing == Missing::zero && zero_left != default_left;
  return split;
}

Split categorical_split(const Tree& tree, const TreeScratch& scratch, std::size_t node,
                        std::size_t first_word) {
  const double index = scratch.thresholds[node];
  if (!(index >= 0 && index < static_cast<double>(tree.categories)) || index != std::floor(index)) {
    refuse(tree, TreeField::threshold, node,
           fmt::format("must be one of the {} category sets, got {}", tree.categories, index));
  }
  const auto at = static_cast<std::size_t>(index);
  Split split;
  split.feature = static_cast<std::uint32_t>(scratch.features[node]);
  split.categorical = true;
  split.first_word =
      static_cast<std::uint32_t>(first_word) + static_cast<std::uint32_t>(scratch.boundaries[at]);
  split.words = static_cast<std::uint32_t>(scratch.boundaries[at + 1] - scratch.boundaries[at]);
  return split;
}

bool same(const Split& a, const Split& b) {
  return a.threshold == b.threshold && a.feature == b.feature && a.categorical == b.categorical &&
         a.missing_left == b.missing_left && a.flip_zero == b.flip_zero &&
         a.first_word == b.first_word && a.words == b.words;
}

std::uint64_t hash_of(const Split& split) {
  const std::uint64_t flags =
      (split.categorical ? 4 : 0) + (split.missing_left ? 2 : 0) + (split.flip_zero ? 1 : 0);
  const std::uint64_t where = (std::uint64_t{split.feature} << 32) + split.first_word * 8 + flags;
  return hash_combine(std::bit_cast<std::uint64_t>(split.threshold), where);
}

void grow(SplitTable& table, const std::vector<Split>& splits) {
  constexpr std::size_t kLeast = 1024;
  table.slots.assign(std::max(kLeast, table.slots.size() * 2), 0);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    std::size_t at = hash_of(splits[i]) & (table.slots.size() - 1);
    while (table.slots[at] != 0) at = (at + 1) & (table.slots.size() - 1);
    table.slots[at] = static_cast<std::uint32_t>(i + 1);
  }
}

// The index of an equal question; if there is none, adds the question.
std::uint32_t intern(SplitTable& table, std::vector<Split>& splits, const Split& split) {
  if (table.slots.size() < 2 * (splits.size() + 1)) grow(table, splits);
  std::size_t at = hash_of(split) & (table.slots.size() - 1);
  for (; table.slots[at] != 0; at = (at + 1) & (table.slots.size() - 1)) {
    if (same(splits[table.slots[at] - 1], split)) return table.slots[at] - 1;
  }
  splits.push_back(split);
  table.slots[at] = static_cast<std::uint32_t>(splits.size());
  return table.slots[at] - 1;
}

void read_categories(const Tree& tree, TreeScratch& scratch, Forest& forest) {
  if (tree.categories == 0) return;
  const auto sets = static_cast<std::size_t>(tree.categories);
  read_integers(tree, TreeField::cat_boundaries, sets + 1, scratch.boundaries);
  for (std::size_t i = 0; i <= sets; ++i) {
    const std::int64_t least = i == 0 ? 0 : scratch.boundaries[i - 1];
    const std::int64_t most = i == 0 ? 0 : kMostLeaves;
    if (scratch.boundaries[i] < least || scratch.boundaries[i] > most) {
      refuse(tree, TreeField::cat_boundaries, i,
             fmt::format("must be from {} to {}, got {}", least, most, scratch.boundaries[i]));
    }
  }
  const auto words = static_cast<std::size_t>(scratch.boundaries.back());
  read_integers(tree, TreeField::cat_threshold, words, scratch.words);
  for (std::size_t i = 0; i < words; ++i) {
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    if (scratch.words[i] < 0 || scratch.words[i] > kMost) {
      refuse(tree, TreeField::cat_threshold, i,
             fmt::format("must be from 0 to {}, got {}", kMost, scratch.words[i]));
    }
    forest.category_bits.push_back(static_cast<std::uint32_t>(scratch.words[i]));
  }
}

// Every node but the root must have exactly one parent, and so must every leaf.
void mark_child(const Tree& tree, TreeField field, std::size_t node, std::int64_t child,
                std::vector<std::uint8_t>& seen) {
  const auto leaves = static_cast<std::int64_t>(tree.leaves);
  if (child < -leaves || child > leaves - 2 || child == 0) {
    refuse(tree, field, node,
           fmt::format("must be a node from 1 to {} or a leaf from -1 to {}, got {}", leaves - 2,
                       -leaves, child));
  }
  std::uint8_t& mark = seen[static_cast<std::size_t>(child + leaves)];
  if (mark != 0) refuse(tree, field, node, fmt::format("names child {} a second time", child));
  mark = 1;
}

void check_children(const Tree& tree, TreeScratch& scratch) {
  scratch.seen.assign(2 * tree.leaves, 0);
  for (std::size_t i = 0; i + 1 < tree.leaves; ++i) {
    mark_child(tree, TreeField::left_child, i, scratch.left[i], scratch.seen);
    mark_child(tree, TreeField::right_child, i, scratch.right[i], scratch.seen);
  }

  // When every node has one parent, nodes that the root does not reach form a circle.
  std::vector<std::int64_t> stack = {0};
  std::size_t reached = 0;
  while (!stack.empty()) {
    const auto node = static_cast<std::size_t>(stack.back());
    stack.pop_back();
    ++reached;
    for (const std::int64_t child : {scratch.left[node], scratch.right[node]}) {
      if (child > 0) stack.push_back(child);
    }
  }
  if (reached + 1 == tree.leaves) return;
  refuse_text(tree.reader, tree.text[TreeField::left_child].line,
              fmt::format("left_child and right_child go round in a circle: the root reaches {} "
                          "of {} nodes",
                          reached, tree.leaves - 1));
}

Split read_split(const Tree& tree, const TreeScratch& scratch, std::size_t node,
                 std::size_t first_word, std::size_t features) {
  const std::int64_t feature = scratch.features[node];
  const std::int64_t type = scratch.types[node];
  if (feature < 0 || feature >= static_cast<std::int64_t>(features)) {
    refuse(tree, TreeField::split_feature, node,
           fmt::format("must be from 0 to {} (max_feature_idx), got {}", features - 1, feature));
  }
  if (type < 0 || type > kMostDecisionType) {
    refuse(tree, TreeField::decision_type, node,
           fmt::format("must be from 0 to {}, got {}", kMostDecisionType, type));
  }
  if ((type & 1) == 0) return numeric_split(feature, scratch.thresholds[node], type);
  return categorical_split(tree, scratch, node, first_word);
}

void add_nodes(const Tree& tree, TreeScratch& scratch, Forest& forest) {
  const std::size_t nodes = tree.leaves - 1;
  read_integers(tree, TreeField::split_feature, nodes, scratch.features);
  read_integers(tree, TreeField::decision_type, nodes, scratch.types);
  read_integers(tree, TreeField::left_child, nodes, scratch.left);
  read_integers(tree, TreeField::right_child, nodes, scratch.right);
  read_doubles(tree, TreeField::threshold, nodes, scratch.thresholds);
  const std::size_t first_word = forest.category_bits.size();
  read_categories(tree, scratch, forest);
  check_children(tree, scratch);

  const auto first_node = static_cast<std::int64_t>(forest.nodes.size());
  const auto first_leaf = static_cast<std::int64_t>(forest.leaves.size());
  const auto child = [&](std::int64_t index) {
    return static_cast<std::int32_t>(index >= 0 ? index + first_node : index - first_leaf);
  };
  for (std::size_t i = 0; i < nodes; ++i) {
    const Split split = read_split(tree, scratch, i, first_word, forest.feature_names.size());
    forest.nodes.push_back({intern(scratch.table, forest.splits, split), child(scratch.left[i]),
                            child(scratch.right[i])});
  }
}

}  // namespace

void add_tree(const TextReader& reader, const TreeText& text, TreeScratch& scratch,
              Forest& forest) {
  const auto number = [&](TreeField field, std::int64_t least, std::int64_t most) {
    return read_integer(reader, text[field], to_string(field), least, most);
  };
  if (text[TreeField::is_linear].line != 0 && number(TreeField::is_linear, 0, 1) == 1) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: line {}: tree {}: linear trees are not read; train without "
                            "linear_tree",
                            reader.what, text[TreeField::is_linear].line, reader.tree));
  }
  const Tree tree{reader, text,
                  static_cast<std::size_t>(number(TreeField::num_leaves, 1, kMostLeaves)),
                  number(TreeField::num_cat, 0, kMostLeaves)};
  read_doubles(tree, TreeField::leaf_value, tree.leaves, scratch.values);
  for (std::size_t i = 0; i < tree.leaves; ++i) {  // thresholds may be infinite, leaf values may
                                                   // not
    if (std::isfinite(scratch.values[i])) continue;
    refuse(tree, TreeField::leaf_value, i,
           fmt::format("must be finite, got {}", scratch.values[i]));
  }
  const std::size_t first_leaf = forest.leaves.size();
  if (first_leaf + tree.leaves > kMostNodes) {
    refuse_text(reader, text.line,
                fmt::format("a forest holds at most {} leaves, got {}", kMostNodes,
                            first_leaf + tree.leaves));
  }
  if (tree.leaves == 1) {
    forest.roots.push_back(~static_cast<std::int32_t>(first_leaf));
  } else {
    forest.roots.push_back(static_cast<std::int32_t>(forest.nodes.size()));
    add_nodes(tree, scratch, forest);
  }
  forest.leaves.insert(forest.leaves.end(), scratch.values.begin(), scratch.values.end());
}

}  // namespace tessera
