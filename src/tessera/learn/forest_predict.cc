// Evaluating a forest. For many candidates, each tree is walked once. A node divides the set of
// candidates that reach it by the answers to its question. The answers to each different question
// are computed once in a batch. Questions about features that do not vary divide nothing, so few
// nodes of a tree remain. A column that varies is turned into small integers of the same order
// once, because every question about it reads the whole column.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/per_thread.h"
#include "tessera/learn/forest_batch_internal.h"

namespace tessera {
namespace {

constexpr std::size_t kMostAtOnce = 8192;  // candidates
constexpr std::size_t kMostAnswerBytes = std::size_t{64} << 20;
constexpr std::size_t kKeptWords = std::size_t{2} << 20;  // 16 MB that a thread keeps
constexpr std::size_t kReadAtOnce = 32;                   // values of a table

// The state of a question or of a feature in this batch. Values from first_answer on are the place
// of the set of candidates that go left.
enum Known : std::uint32_t { unknown, left, right, first_answer };

// A feature's column in this batch.
struct Column {
  enum class Kind : std::uint8_t { unknown, same, coded, plain } kind = Kind::unknown;
  Coding coding = {};
  double low = 0;
  double high = 0;
  std::size_t codes = 0;  // where the column's codes begin
};

// Memory that the thread keeps from one batch to the next.
struct Workspace {
  std::vector<std::uint32_t> known;  // per split
  std::vector<Column> columns;       // per feature
  std::vector<std::int16_t> codes;   // of `coded` columns, whole words each
  std::vector<std::uint64_t> answers;
  std::vector<std::uint64_t> sets;
  std::vector<std::uint64_t> scratch;
  std::vector<double> values;
  std::vector<double> sums;
  struct Pending {
    std::int32_t node;
    std::size_t set;
  };
  std::vector<Pending> pending;
};

struct Batch {
  const Forest& forest;
  const ForestKernels& kernels;
  const Candidates& candidates;
  std::size_t first;  // the candidates of this part
  std::size_t count;
  std::size_t words;
  Workspace& work;
  std::size_t answers = 0;
  std::size_t coded = 0;

  const double* column(std::uint32_t feature) const {
    return candidates.columns.data() + feature * candidates.count + first;
  }
};

// Encodes a column. A column stays as it is when a number is not finite, or when the numbers are
// too close together or too far apart to be scaled.
Column describe(Batch& batch, std::uint32_t feature) {
  const auto& constant = batch.candidates.constant;
  if (!constant.empty() && constant[feature] != 0) return {Column::Kind::same};
  const double* values = batch.column(feature);
  const Extent extent = batch.kernels.extent(values, batch.count);
  if (extent.finite && extent.low == extent.high) return {Column::Kind::same};
  const double scale = kMostCode / (extent.high - extent.low);
  if (!extent.finite || !std::isnormal(scale)) return {Column::Kind::plain};
  const std::size_t size = batch.words * kWordBits;
  Column column{
      Column::Kind::coded, {extent.low, scale}, extent.low, extent.high, batch.coded++ * size};
  std::vector<std::int16_t>& codes = batch.work.codes;
  if (codes.size() < column.codes + size) codes.resize(2 * column.codes + size);
  batch.kernels.encode(values, batch.count, column.coding, &codes[column.codes]);
  return column;
}

const Column& column_of(Batch& batch, std::uint32_t feature) {
  Column& column = batch.work.columns[feature];
  if (column.kind == Column::Kind::unknown) column = describe(batch, feature);
  return column;
}

// Sets the bits of the candidates that go left.
void answer_categorical(const Batch& batch, const Split& split, std::uint64_t* left) {
  const double* column = batch.column(split.feature);
  std::fill_n(left, batch.words, 0);
  for (std::size_t i = 0; i < batch.count; ++i) {
    const bool is_left = goes_left(split, batch.forest.category_bits.data(), column[i]);
    left[i / kWordBits] |= static_cast<std::uint64_t>(is_left) << (i % kWordBits);
  }
}

std::uint64_t last_word(const Batch& batch) {
  const std::size_t rest = batch.count % kWordBits;
  return rest == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << rest) - 1;
}

bool is_all(const Batch& batch, const std::uint64_t* set) {
  const auto whole = [](std::uint64_t word) { return word == ~std::uint64_t{0}; };
  return std::all_of(set, set + batch.words - 1, whole) && set[batch.words - 1] == last_word(batch);
}

bool is_none(const Batch& batch, const std::uint64_t* set) {
  return std::all_of(set, set + batch.words, [](std::uint64_t word) { return word == 0; });
}

// An answer is: all members, none, or a stored set.
std::uint32_t keep_answer(Batch& batch, const std::uint64_t* set) {
  if (is_all(batch, set)) return left;
  if (is_none(batch, set)) return right;
  return static_cast<std::uint32_t>(first_answer + batch.answers++);
}

// Questions are sorted by feature and threshold. Neighbouring questions whose thresholds lie in the
// same gap of the column have the same answer. Columns have few different values, so this saves
// most comparisons.
void spread_answer(Batch& batch, std::size_t index, const Gap& gap) {
  const std::span<const Split> splits = batch.forest.splits;
  const std::uint32_t known = batch.work.known[index];
  const auto in_gap = [&](std::size_t i) {
    return same_kind(splits[i], splits[index]) && splits[i].threshold >= gap.most_left &&
           splits[i].threshold < gap.least_right;
  };
  for (std::size_t i = index + 1; i < splits.size() && in_gap(i); ++i) batch.work.known[i] = known;
  for (std::size_t i = index; i-- > 0 && in_gap(i);) batch.work.known[i] = known;
}

// The same with codes: a threshold whose code lies between the codes of the gap also lies between
// their numbers.
void spread_answer(Batch& batch, std::size_t index, const Column& column, const CodeGap& gap) {
  const std::span<const Split> splits = batch.forest.splits;
  const std::uint32_t known = batch.work.known[index];
  const auto in_gap = [&](std::size_t i) {
    const double threshold = splits[i].threshold;
    if (!same_kind(splits[i], splits[index])) return false;
    if (threshold < column.low || threshold >= column.high) return false;
    const std::int16_t code = column.coding.code(threshold);
    return code > gap.most_left && code < gap.least_right;
  };
  for (std::size_t i = index + 1; i < splits.size() && in_gap(i); ++i) batch.work.known[i] = known;
  for (std::size_t i = index; i-- > 0 && in_gap(i);) batch.work.known[i] = known;
}

// Makes room for one more set.
std::uint64_t* next_answer(Batch& batch) {
  std::vector<std::uint64_t>& answers = batch.work.answers;
  const std::size_t begin = batch.answers * batch.words;
  if (answers.size() < begin + batch.words) answers.resize(2 * begin + batch.words);
  return &answers[begin];
}

// Answers a question by codes. False when a number has the threshold's code, because equal codes
// decide nothing.
bool answer_by_code(Batch& batch, std::size_t index, const Column& column) {
  const double threshold = batch.forest.splits[index].threshold;
  std::uint32_t& known = batch.work.known[index];
  if (threshold < column.low || threshold >= column.high) {
    known = threshold < column.low ? right : left;
    return true;
  }
  const std::int16_t code = column.coding.code(threshold);
  const CodeGap gap = batch.kernels.compare_codes(&batch.work.codes[column.codes], batch.words,
                                                  code, next_answer(batch));
  if (gap.most_left == code) return false;
  known = static_cast<std::uint32_t>(first_answer + batch.answers++);
  spread_answer(batch, index, column, gap);
  return true;
}

void find_answer(Batch& batch, std::size_t index) {
  const Split& split = batch.forest.splits[index];
  std::uint32_t& known = batch.work.known[index];
  const Column& column = column_of(batch, split.feature);
  const double* values = batch.column(split.feature);
  if (column.kind == Column::Kind::same) {
    known = goes_left(split, batch.forest.category_bits.data(), *values) ? left : right;
    return;
  }
  if (split.categorical) {
    std::uint64_t* answer = next_answer(batch);
    answer_categorical(batch, split, answer);
    known = keep_answer(batch, answer);
    return;
  }
  const bool by_code = column.kind == Column::Kind::coded && !split.flip_zero;
  if (by_code && answer_by_code(batch, index, column)) return;
  std::uint64_t* answer = next_answer(batch);
  const Gap gap = batch.kernels.compare(values, batch.count, split, answer);
  known = keep_answer(batch, answer);
  if (!split.flip_zero) spread_answer(batch, index, gap);
}

// Divides the set in place. Returns the next node when all members go the same way, otherwise the
// set of those that go left.
struct Division {
  Sides sides;
  std::size_t left_set;
};
Division divide(Batch& batch, std::uint32_t answer, std::size_t set, std::size_t& used) {
  std::vector<std::uint64_t>& sets = batch.work.sets;
  const std::size_t words = batch.words;
  if (sets.size() < (used + 1) * words) sets.resize(2 * (used + 1) * words);
  const std::uint64_t* mask = &batch.work.answers[(answer - first_answer) * words];
  std::uint64_t* from = &sets[set * words];
  std::uint64_t* to = &sets[used * words];
  const Sides sides = batch.kernels.divide(from, mask, to, words);
  if (!sides.right) std::copy_n(to, words, from);
  if (sides.left && sides.right) ++used;
  return {sides, used - 1};
}

// Adds the leaves of a tree that candidates reach to the list, with their values. Their sets begin
// at `used`.
void walk(Batch& batch, std::int32_t root, std::size_t& used) {
  Workspace& work = batch.work;
  const std::size_t words = batch.words;
  if (work.sets.size() < (used + 1) * words) work.sets.resize(2 * (used + 1) * words);
  std::fill_n(&work.sets[used * words], words, ~std::uint64_t{0});
  work.sets[(used + 1) * words - 1] = last_word(batch);
  work.pending.push_back({root, used++});
  while (!work.pending.empty()) {
    auto [node, set] = work.pending.back();
    work.pending.pop_back();
    while (node >= 0) {
      const Node& at = batch.forest.nodes[static_cast<std::size_t>(node)];
      if (work.known[at.split] == unknown) find_answer(batch, at.split);
      const std::uint32_t known = work.known[at.split];
      if (known < first_answer) {
        node = known == left ? at.left : at.right;
        continue;
      }
      const Division division = divide(batch, known, set, used);
      node = division.sides.left ? at.left : at.right;
      if (!division.sides.left || !division.sides.right) continue;
      work.pending.push_back({at.right, set});
      set = division.left_set;
    }
    if (work.values.size() < set + kReadAtOnce) work.values.resize(2 * set + kReadAtOnce);
    work.values[set] = batch.forest.leaves[static_cast<std::size_t>(~node)];
  }
}

// Walks a group of trees and adds their values. Between trees the tables are padded, because up
// to 32 values are read at once.
void add_group(Batch& batch, std::span<const std::int32_t> roots) {
  struct Extent {
    std::size_t begin, end;
  };
  std::array<Extent, kTreeGroup> extents;
  std::array<ReachedTree, kTreeGroup> trees;
  std::size_t used = 0;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    extents[i].begin = used;
    walk(batch, roots[i], used);
    extents[i].end = used;
  }
  Workspace& work = batch.work;
  if (work.values.size() < used + kReadAtOnce) work.values.resize(used + kReadAtOnce);
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const auto [begin, end] = extents[i];
    trees[i] = {&work.sets[begin * batch.words], &work.values[begin], end - begin};
  }
  batch.kernels.add(std::span(trees).first(roots.size()), batch.words, work.scratch.data(),
                    work.sums.data());
}

void predict_part(Batch& batch, std::span<double> out) {
  Workspace& work = batch.work;
  const std::span<const std::int32_t> roots = batch.forest.roots;
  work.known.assign(batch.forest.splits.size(), unknown);
  work.columns.assign(batch.forest.feature_names.size(), {});
  work.scratch.resize(kScratchSets * batch.words);
  work.sums.assign(batch.words * kWordBits, 0.0);
  for (std::size_t i = 0; i < roots.size(); i += kTreeGroup) {
    add_group(batch, roots.subspan(i, std::min(kTreeGroup, roots.size() - i)));
  }
  batch.kernels.copy(work.sums.data(), out);
  if (!batch.forest.average_output) return;
  for (double& value : out) value /= static_cast<double>(roots.size());
}

const ForestKernels& kernels_of(ForestSimd simd) {
  check_enum("forest: simd", simd, ForestSimd::avx512);
  const ForestKernels* avx512 = avx512_kernels();
  if (simd == ForestSimd::generic) return generic_kernels();
  if (avx512 != nullptr) return *avx512;
  if (simd == ForestSimd::best) return generic_kernels();
  throw Error(ErrorCode::unsupported, "forest: this machine has no AVX-512");
}

void check_sizes(const Forest& forest, const Candidates& candidates, std::size_t out) {
  const std::size_t features = forest.feature_names.size();
  const std::size_t count = candidates.count;
  if (count > std::size_t{1} << 32 || candidates.columns.size() != features * count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("forest: {} features of {} candidates are {} numbers, got {}", features,
                            count, features * count, candidates.columns.size()));
  }
  if (!candidates.constant.empty() && candidates.constant.size() != features) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("forest: constant must be empty or hold {} features, got {}", features,
                            candidates.constant.size()));
  }
  if (out != count) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("forest: out must hold {} values, one per candidate, got {}", count, out));
  }
}

// All candidates are evaluated at once, unless the answers to all questions would need too much
// memory.
std::size_t part_size(const Forest& forest) {
  const std::size_t most_bits = 8 * kMostAnswerBytes / (forest.splits.size() + 1);
  return std::clamp(most_bits / kWordBits * kWordBits, kWordBits, kMostAtOnce);
}

}  // namespace

bool goes_left(const Split& split, const std::uint32_t* category_bits, double x) {
  if (!split.categorical) {
    const bool is_left = split.missing_left ? !(x > split.threshold) : x <= split.threshold;
    return is_left != (split.flip_zero && std::fabs(x) <= kForestZero);
  }
  // Rounded towards zero, so that -0.5 is category 0. LightGBM finds no category beyond 32 bits
  // either.
  constexpr double kMost = 2147483648.0;
  if (!(x > -1 && x < kMost)) return false;
  const auto category = static_cast<std::uint32_t>(static_cast<std::int64_t>(x));
  if (category / 32 >= split.words) return false;
  return (category_bits[split.first_word + category / 32] >> (category % 32) & 1) != 0;
}

bool can_use(ForestSimd simd) {
  check_enum("forest: simd", simd, ForestSimd::avx512);
  return simd != ForestSimd::avx512 || avx512_kernels() != nullptr;
}

double predict(const Forest& forest, std::span<const double> row) {
  if (row.size() != forest.feature_names.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("forest: a row holds {} features, got {}",
                                                         forest.feature_names.size(), row.size()));
  }
  double sum = 0;
  for (std::int32_t node : forest.roots) {
    while (node >= 0) {
      const Node& at = forest.nodes[static_cast<std::size_t>(node)];
      const Split& split = forest.splits[at.split];
      const bool left = goes_left(split, forest.category_bits.data(), row[split.feature]);
      node = left ? at.left : at.right;
    }
    sum += forest.leaves[static_cast<std::size_t>(~node)];
  }
  return forest.average_output ? sum / static_cast<double>(forest.roots.size()) : sum;
}

void predict(const Forest& forest, const Candidates& candidates, std::span<double> out,
             ForestSimd simd) {
  check_sizes(forest, candidates, out.size());
  Workspace& work = per_thread<Workspace>();
  const ForestKernels& kernels = kernels_of(simd);
  const std::size_t size = part_size(forest);
  for (std::size_t first = 0; first < candidates.count; first += size) {
    const std::size_t count = std::min(size, candidates.count - first);
    Batch batch{forest, kernels, candidates, first, count, (count + kWordBits - 1) / kWordBits,
                work};
    predict_part(batch, out.subspan(first, count));
  }
  if (work.answers.size() + work.sets.size() > kKeptWords) work = {};
}

}  // namespace tessera
