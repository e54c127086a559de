#include "tessera/learn/feature_importance.h"

#include <gtest/gtest.h>

#include "host/spec/expect_error.h"
#include "tessera/learn/gzip.h"

namespace tessera {
namespace {

constexpr const char* kText =
    "tree\nfeature_names=c a b d\n\nTree=0\nsplit_feature=1 2 1\nsplit_gain=6 1 0.5\n\n"
    "Tree=1\nsplit_feature=0\nsplit_gain=2.5\n\nTree=2\nleaf_value=1\n\nend of trees\n";

TEST(Gains, SumsOverTrees) {
  for (const std::string& bytes : {std::string(kText), deflate_gzip(kText)}) {
    const std::vector<FeatureGain> gains = feature_gains(bytes, "model");
    ASSERT_EQ(gains.size(), 4U);
    EXPECT_EQ(gains[0].feature, "a");
    EXPECT_DOUBLE_EQ(gains[0].gain, 0.65);
    EXPECT_EQ(gains[0].splits, 2);
    EXPECT_EQ(gains[1].feature, "c");
    EXPECT_DOUBLE_EQ(gains[1].gain, 0.25);
    EXPECT_EQ(gains[2].feature, "b");
    EXPECT_DOUBLE_EQ(gains[2].gain, 0.1);
    EXPECT_EQ(gains[3].feature, "d");
    EXPECT_EQ(gains[3].gain, 0);
  }
}

TEST(Gains, TextThatDoesNotFit) {
  const auto of = [](const char* text) { return [text] { feature_gains(text, "m"); }; };
  expect_error(ErrorCode::parse_error, "m: a split asks for feature 1, there are 1",
               of("feature_names=a\nsplit_feature=1\nsplit_gain=2\n"));
  expect_error(ErrorCode::parse_error, "m: a tree has 1 splits and 2 gains",
               of("feature_names=a\nsplit_feature=0\nsplit_gain=2 3\n"));
  expect_error(ErrorCode::parse_error, "m: a split's feature or gain must be a number, got '-1'",
               of("feature_names=a\nsplit_feature=-1\nsplit_gain=2\n"));
}

}  // namespace
}  // namespace tessera
