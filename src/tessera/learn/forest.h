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

// What LightGBM takes for zero.
inline constexpr double kForestZero = 1e-35F;

// A question about one feature. Numeric: x <= threshold goes left, NaN where missing_left says,
// and with flip_zero a zero (up to kForestZero) goes to the other side than the threshold says.
// Categorical: x cut to an integer goes left when x > -1 and its bit is set in
// Forest::category_bits.
struct Split {
  double threshold = 0;
  std::uint32_t feature = 0;
  bool categorical = false;
  bool missing_left = false;
  bool flip_zero = false;
  std::uint32_t first_word = 0;  // categorical: where its bits begin, and how many words they are
  std::uint32_t words = 0;
};

// A child not below 0 is an index into Forest::nodes, one below 0 is ~(index into leaves).
struct Node {
  std::uint32_t split = 0;
  std::int32_t left = 0;
  std::int32_t right = 0;
};

struct Forest {
  std::string objective;  // LightGBM's word, "regression"; empty: trained with one of its own
  std::vector<std::string> feature_names;
  bool average_output = false;  // the mean of the trees instead of their sum (random forests)
  std::vector<Split> splits;    // each different question once, by feature, kind and threshold
  std::vector<Node> nodes;
  std::vector<double> leaves;
  std::vector<std::int32_t> roots;  // one per tree, in the order in which they are added
  std::vector<std::uint32_t> category_bits;
};

// Reads LightGBM's model text (versions v2 to v4), plain or gzip. `what` leads every message:
// "model.txt: line 17: tree 3: num_leaves must be ...". Throws Error{parse_error} for anything
// malformed, and Error{unsupported} for linear trees, several classes, objectives whose scores are
// not their predictions (binary, poisson, ...) and other versions.
Forest parse_forest(std::string_view bytes, std::string_view what);

// The forest's value for one row of feature_names.size() features. Throws
// Error{invalid_argument} for another number.
double predict(const Forest& forest, std::span<const double> row);

// Candidates feature by feature: columns[f * count + i] is feature f of candidate i.
struct Candidates {
  std::span<const double> columns;
  std::size_t count = 0;
  // One per feature, not 0: known to be the same for all candidates, so that only its first value
  // is read. Empty: found out by looking.
  std::span<const std::uint8_t> constant = {};
};

// Which instructions a batch is evaluated with; the bits are the same.
enum class ForestSimd : std::uint8_t { best, generic, avx512 };
bool can_use(ForestSimd simd);

// out[i] = predict(forest, row i), bit for bit. Features that do not vary over the candidates cost
// nothing per candidate. Throws Error{invalid_argument} where sizes do not fit together.
void predict(const Forest& forest, const Candidates& candidates, std::span<double> out,
             ForestSimd simd = ForestSimd::best);

}  // namespace tessera
