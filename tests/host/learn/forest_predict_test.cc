#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "host/learn/forests.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ForestPredict, SmallByHand) {
  const Forest forest = parse_forest(kSmall, "small");
  const auto at = [&](double x0, double x1) {
    return predict(forest, std::vector<double>{x0, x1});
  };
  EXPECT_EQ(at(0.5, 1), 1.25);
  EXPECT_EQ(at(0.5, 1.9), 1.25);  // cut to an integer
  EXPECT_EQ(at(0.5, 33), 1.25);
  EXPECT_EQ(at(0.5, 0), 2.25);
  EXPECT_EQ(at(0.5, -0.5), 2.25);
  EXPECT_EQ(at(0.5, -1), 2.25);
  EXPECT_EQ(at(0.5, 64), 2.25);
  EXPECT_EQ(at(0.5, 1e300), 2.25);
  EXPECT_EQ(at(0.5, kNan), 2.25);
  EXPECT_EQ(at(0.5000001, 1), 4.25);
  EXPECT_EQ(at(kNan, 1), 1.25);  // missing type none: NaN is 0
}

TEST(ForestPredict, AverageOutput) {
  const std::string text = edited(kSmall, "label_index=0\n", "label_index=0\naverage_output\n");
  const Forest forest = parse_forest(text, "small");
  EXPECT_EQ(predict(forest, std::vector<double>{1, 1}), 4.25 / 2);
  double out = 0;
  predict(forest, {std::vector<double>{1, 1}, 1}, {&out, 1});
  EXPECT_EQ(out, 4.25 / 2);
}

// Missing types: 0 none, 4 zero, 8 NaN; 2 more: default left.
TEST(ForestPredict, MissingTypesAndDefaults) {
  const auto at = [](int type, double threshold, double x) {
    std::string text = edited(kSmall, "decision_type=2 1", fmt::format("decision_type={} 1", type));
    text = edited(text, "threshold=0.5 0", fmt::format("threshold={} 0", threshold));
    return predict(parse_forest(text, "small"), std::vector<double>{x, 1}) == 1.25;  // left
  };
  EXPECT_TRUE(at(0, 0.5, kNan));
  EXPECT_FALSE(at(2, -0.5, kNan));
  for (const double zero : {0.0, -0.0, 1e-36, -1e-36, kNan}) {
    EXPECT_TRUE(at(6, -0.5, zero)) << zero;
    EXPECT_FALSE(at(4, 0.5, zero)) << zero;
    EXPECT_FALSE(at(4, 0, zero)) << zero;
  }
  EXPECT_TRUE(at(4, 0.5, 0.4));
  EXPECT_TRUE(at(4, 0.5, -7));
  EXPECT_TRUE(at(10, -0.5, kNan));
  EXPECT_FALSE(at(8, 0.5, kNan));
  EXPECT_TRUE(at(8, 0.5, 0));
  // What counts as zero is on zero's side of a threshold within it.
  EXPECT_TRUE(at(0, 0, 1e-36));
  EXPECT_FALSE(at(0, -1e-36, -1e-35));
  EXPECT_TRUE(at(0, -1e-36, -1e-34));
}

void expect_same_bits(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(double)), 0)
        << "candidate " << i << ": " << got[i] << " and " << expected[i];
  }
}

// The batch equals the single row whatever the shape of the trees and the number of candidates:
// tables of 8, 16, 32 and 256 leaves, and more than a byte can number.
void check_batches(std::size_t trees, std::size_t most_leaves, std::size_t count) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(
      fmt::format("seed {}, {} trees, {} leaves, {} candidates", seed, trees, most_leaves, count));
  RandomForest maker(seed);
  const Forest forest = parse_forest(maker.text(trees, most_leaves), "random");
  const std::vector<double> columns = maker.columns(count);
  std::vector<double> expected;
  for (std::size_t i = 0; i < count; ++i) {
    expected.push_back(predict(forest, row_of(columns, count, i)));
  }
  for (const ForestSimd simd : {ForestSimd::best, ForestSimd::generic, ForestSimd::avx512}) {
    if (!can_use(simd)) continue;
    std::vector<double> out(count, kNan);
    predict(forest, {columns, count}, out, simd);
    expect_same_bits(out, expected);
  }
}

TEST(ForestPredict, BatchEqualsSingleRow) {
  for (const std::size_t leaves : {1, 2, 8, 9, 16, 17, 32, 33, 100}) {
    for (const std::size_t count : {1, 7, 64, 65, 600}) check_batches(20, leaves, count);
  }
}
TEST(ForestPredict, BatchOfManyLeaves) { check_batches(3, 1500, 3000); }
TEST(ForestPredict, BatchInParts) { check_batches(40, 20, 20000); }

TEST(ForestPredict, NoCandidates) { predict(parse_forest(kSmall, "small"), {{}, 0}, {}); }

// What is said to be constant is read once only.
TEST(ForestPredict, ConstantFeaturesAreReadOnce) {
  const Forest forest = parse_forest(kSmall, "small");
  const std::vector<double> columns = {0, kNan, 1e300, 1, 0, 33};
  const std::vector<std::uint8_t> constant = {1, 0};
  std::vector<double> out(3);
  predict(forest, {columns, 3, constant}, out);
  EXPECT_EQ(out, (std::vector<double>{1.25, 2.25, 1.25}));
}

TEST(ForestPredict, SizesMustFit) {
  const Forest forest = parse_forest(kSmall, "small");
  std::vector<double> values(6);
  const std::vector<std::uint8_t> one(1);
  EXPECT_EQ(error_of([&] { predict(forest, values); }),
            "invalid_argument: forest: a row holds 2 features, got 6");
  EXPECT_EQ(error_of([&] {
              predict(forest, {values, 4}, values);
            }),
            "invalid_argument: forest: 2 features of 4 candidates are 8 numbers, got 6");
  EXPECT_EQ(error_of([&] {
              predict(forest, {values, 3}, values);
            }),
            "invalid_argument: forest: out must hold 3 values, one per candidate, got 6");
  EXPECT_EQ(error_of([&] {
              predict(forest, {values, 3, one}, std::span(values).first(3));
            }),
            "invalid_argument: forest: constant must be empty or hold 2 features, got 1");
}

}  // namespace
}  // namespace tessera
