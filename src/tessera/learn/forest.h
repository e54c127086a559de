// Forests of decision trees in LightGBM's text format, and their values for one row or for many
// candidates, equal to LightGBM's own to the last bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// LightGBM treats numbers up to this magnitude as zero.
inline constexpr double kForestZero = 1e-35F;

// A question about one feature. Numeric: x <= threshold goes left. NaN goes left when missing_left
// is set. With flip_zero, a zero (up to kForestZero) goes to the opposite side. Categorical: x, cut
// to an integer, goes left when x > -1 and its bit is set in Forest::category_bits.
struct Split {
  double threshold = 0;
  std::uint32_t feature = 0;
  bool categorical = false;
  bool missing_left = false;
  bool flip_zero = false;
  std::uint32_t first_word = 0;  // categorical: the first word of its bits; `words` is how many
                                 // they are
  std::uint32_t words = 0;
};

// A child that is 0 or more is an index into Forest::nodes. A negative child is ~(index into
// leaves).
struct Node {
  std::uint32_t split = 0;
  std::int32_t left = 0;
  std::int32_t right = 0;
};

struct Forest {
  std::string objective;  // LightGBM's word, "regression"; empty: a custom objective
  std::vector<std::string> feature_names;
  bool average_output = false;  // the mean of the trees instead of their sum (random forests)
  std::vector<Split> splits;    // each different question once, by feature, kind and threshold
  std::vector<Node> nodes;
  std::vector<double> leaves;
  std::vector<std::int32_t> roots;  // one for each tree, in the order in which trees are added
  std::vector<std::uint32_t> category_bits;
};

// Reads LightGBM's model text (versions v2 to v4), plain or gzip. `what` begins every message:
// "model.txt: line 17: tree 3: num_leaves must be ...". Throws Error{parse_error} for anything
// malformed, and Error{unsupported} for linear trees, several classes, objectives whose scores are
// not their predictions (binary, poisson, ...) and other versions.
Forest parse_forest(std::string_view bytes, std::string_view what);

// The forest's value for one row. Throws Error{invalid_argument} unless the row has
// feature_names.size() features.
double predict(const Forest& forest, std::span<const double> row);

// Candidates feature by feature: columns[f * count + i] is feature f of candidate i.
struct Candidates {
  std::span<const double> columns;
  std::size_t count = 0;
  // One entry for each feature. Not 0: the feature is the same for all candidates, and only its
  // first value is read. Empty: the function compares the values itself.
  std::span<const std::uint8_t> constant = {};
};

// The instructions that evaluate a batch. All give the same bits.
enum class ForestSimd : std::uint8_t { best, generic, avx512 };
bool can_use(ForestSimd simd);

// out[i] = predict(forest, row i), bit for bit. Features that do not vary over the candidates cost
// nothing per candidate. Throws Error{invalid_argument} when the sizes do not fit together.
void predict(const Forest& forest, const Candidates& candidates, std::span<double> out,
             ForestSimd simd = ForestSimd::best);

}  // namespace tessera
