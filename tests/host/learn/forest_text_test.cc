#include <gtest/gtest.h>

#include "host/learn/forests.h"
#include "tessera/learn/gzip.h"

namespace tessera {
namespace {

std::string error_in(const std::string& text) {
  return error_of([&] { parse_forest(text, "model.txt"); });
}

TEST(Forest, SmallIsRead) {
  const Forest forest = parse_forest(kSmall, "model.txt");
  EXPECT_EQ(forest.objective, "regression");
  EXPECT_EQ(forest.feature_names, (std::vector<std::string>{"x0", "x1"}));
  EXPECT_FALSE(forest.average_output);
  EXPECT_EQ(forest.roots, (std::vector<std::int32_t>{0, ~3}));
  EXPECT_EQ(forest.leaves, (std::vector<double>{1, 4, 2, 0.25}));
  EXPECT_EQ(forest.splits.size(), 2u);
}

TEST(Forest, GzipIsSeenByItsFirstBytes) {
  const Forest forest = parse_forest(deflate_gzip(kSmall), "model.txt.gz");
  EXPECT_EQ(forest.leaves, (std::vector<double>{1, 4, 2, 0.25}));
}

TEST(Forest, WindowsLineEndsAndUnknownKeys) {
  std::string text;
  for (const char c : edited(kSmall, "label_index=0\n", "label_index=0\nfuture=1\n")) {
    if (c == '\n') text += '\r';
    text += c;
  }
  EXPECT_EQ(parse_forest(text, "model.txt").leaves.size(), 4u);
}

// LightGBM writes them for features that hold infinities.
TEST(Forest, InfiniteThresholds) {
  const auto at = [](const char* threshold, double x0) {
    const std::string text = edited(kSmall, "threshold=0.5", std::string("threshold=") + threshold);
    return predict(parse_forest(text, "model.txt"), std::vector<double>{x0, 1});
  };
  EXPECT_EQ(at("inf", 1e308), 1.25);
  EXPECT_EQ(at("-inf", -1e308), 4.25);
  EXPECT_EQ(at("-inf", -std::numeric_limits<double>::infinity()), 1.25);
}

TEST(Forest, OlderVersionsAreRead) {
  const std::string v2 = edited(edited(kSmall, "version=v4", "version=v2"), "end of trees\n\n", "");
  EXPECT_EQ(parse_forest(v2, "model.txt").leaves.size(), 4u);
  EXPECT_EQ(parse_forest(edited(kSmall, "version=v4", "version=v3"), "m").leaves.size(), 4u);
}

TEST(Forest, EqualQuestionsAreKeptOnce) {
  RandomForest maker(fresh_seed());
  std::string text = maker.text(1, 40);
  const std::size_t begin = text.find("Tree=0");
  const std::size_t end = text.find("end of trees");
  std::string second = text.substr(begin, end - begin);
  text.insert(end, edited(second, "Tree=0", "Tree=1"));
  const Forest forest = parse_forest(text, "model.txt");
  std::size_t numeric = 0;
  for (const Split& split : forest.splits) numeric += split.categorical ? 0 : 1;
  EXPECT_LE(numeric, forest.nodes.size() / 2);
}

struct BadText {
  std::string from, to, message;
};

const std::vector<BadText> kBadTexts = {
    {"tree\n", "forest\n",
     "parse_error: model.txt: line 1: a model of LightGBM begins with the line 'tree', got "
     "'forest'"},
    {"version=v4", "version=v9",
     "unsupported: model.txt: line 2: versions v2, v3 and v4 are read, got 'v9'"},
    {"num_class=1", "num_class=3",
     "unsupported: model.txt: line 3: num_class must be 1, for one number is predicted, got 3"},
    {"num_tree_per_iteration=1", "num_tree_per_iteration=2",
     "unsupported: model.txt: line 4: num_tree_per_iteration must be 1, for one number is "
     "predicted, got 2"},
    {"max_feature_idx=1", "max_feature_idx=-1",
     "parse_error: model.txt: line 6: max_feature_idx must be an integer from 0 to 16777216, got "
     "'-1'"},
    {"max_feature_idx=1", "max_feature_idx=7",
     "parse_error: model.txt: line 8: feature_names must hold 8 names (max_feature_idx 7), got "
     "2"},
    {"objective=regression", "objective=binary sigmoid:1",
     "unsupported: model.txt: line 7: the predictions of objective 'binary sigmoid:1' are not "
     "the sums of its trees; known are regression, regression_l1, huber, fair, quantile, mape, "
     "lambdarank, rank_xendcg, custom"},
    {"objective=regression", "objective=regression sqrt",
     "unsupported: model.txt: line 7: the predictions of objective 'regression sqrt' are not the "
     "sums of its trees; known are regression, regression_l1, huber, fair, quantile, mape, "
     "lambdarank, rank_xendcg, custom"},
    {"tree_sizes=400 60", "tree_sizes=400 60 7",
     "parse_error: model.txt: line 10: tree_sizes lists 3 trees, but 2 are there"},
    {"Tree=1", "Tree=2",
     "parse_error: model.txt: line 33: tree 1: trees must come in order: expected Tree=1, got "
     "Tree=2"},
    {"num_leaves=3", "num_leaves=0",
     "parse_error: model.txt: line 13: tree 0: num_leaves must be an integer from 1 to 16777216, "
     "got '0'"},
    {"num_leaves=3", "num_leaves=99999999999999999999",
     "parse_error: model.txt: line 13: tree 0: num_leaves must be an integer from 1 to 16777216, "
     "got '99999999999999999999'"},
    {"num_leaves=3", "num_leaves=16777216",
     "parse_error: model.txt: line 21: tree 0: leaf_value must hold 16777216 numbers, got 3"},
    {"num_leaves=3", "num_leaves=2",
     "parse_error: model.txt: line 21: tree 0: leaf_value must hold 2 numbers, got more: '2'"},
    {"num_cat=1\n", "", "parse_error: model.txt: line 32: tree 0: num_cat is missing"},
    {"split_feature=0 1", "split_feature=0 2",
     "parse_error: model.txt: line 15: tree 0: split_feature[1] must be from 0 to 1 "
     "(max_feature_idx), got 2"},
    {"split_feature=0 1", "split_feature=-1 1",
     "parse_error: model.txt: line 15: tree 0: split_feature[0] must be from 0 to 1 "
     "(max_feature_idx), got -1"},
    {"threshold=0.5 0", "threshold=nan 0",
     "parse_error: model.txt: line 17: tree 0: threshold[0] must be a number, got 'nan'"},
    {"threshold=0.5 0", "threshold=1e999 0",
     "parse_error: model.txt: line 17: tree 0: threshold[0] must be a number, got "
     "'1e999'"},
    {"threshold=0.5 0", "threshold=0.5 1",
     "parse_error: model.txt: line 17: tree 0: threshold[1] must be one of the 1 category sets, "
     "got 1"},
    {"threshold=0.5 0", "threshold=0.5 0.5",
     "parse_error: model.txt: line 17: tree 0: threshold[1] must be one of the 1 category sets, "
     "got 0.5"},
    {"decision_type=2 1", "decision_type=2 12",
     "parse_error: model.txt: line 18: tree 0: decision_type[1] must be from 0 to 11, got 12"},
    {"left_child=1 -1", "left_child=2 -1",
     "parse_error: model.txt: line 19: tree 0: left_child[0] must be a node from 1 to 1 or a "
     "leaf from -1 to -3, got 2"},
    {"right_child=-2 -3", "right_child=-2 -4",
     "parse_error: model.txt: line 20: tree 0: right_child[1] must be a node from 1 to 1 or a "
     "leaf from -1 to -3, got -4"},
    {"right_child=-2 -3", "right_child=-2 0",
     "parse_error: model.txt: line 20: tree 0: right_child[1] must be a node from 1 to 1 or a "
     "leaf from -1 to -3, got 0"},
    {"right_child=-2 -3", "right_child=-2 -2",
     "parse_error: model.txt: line 20: tree 0: right_child[1] names child -2 a second time"},
    {"left_child=1 -1\nright_child=-2 -3", "left_child=-1 1\nright_child=-2 -3",
     "parse_error: model.txt: line 19: tree 0: left_child and right_child go round in a circle: "
     "the root reaches 1 of 2 nodes"},
    {"leaf_value=1 4 2", "leaf_value=1 four 2",
     "parse_error: model.txt: line 21: tree 0: leaf_value[1] must be a number, got "
     "'four'"},
    {"leaf_value=1 4 2", "leaf_value=1 -inf 2",
     "parse_error: model.txt: line 21: tree 0: leaf_value[1] must be finite, got -inf"},
    {"cat_boundaries=0 2", "cat_boundaries=0 3",
     "parse_error: model.txt: line 28: tree 0: cat_threshold must hold 3 numbers, got 2"},
    {"cat_boundaries=0 2", "cat_boundaries=1 2",
     "parse_error: model.txt: line 27: tree 0: cat_boundaries[0] must be from 0 to 0, got 1"},
    {"cat_boundaries=0 2", "cat_boundaries=0 -2",
     "parse_error: model.txt: line 27: tree 0: cat_boundaries[1] must be from 0 to 16777216, got "
     "-2"},
    {"cat_threshold=2 2", "cat_threshold=2 4294967296",
     "parse_error: model.txt: line 28: tree 0: cat_threshold[1] must be from 0 to 4294967295, "
     "got 4294967296"},
    {"is_linear=0", "is_linear=1",
     "unsupported: model.txt: line 29: tree 0: linear trees are not read; train without "
     "linear_tree"},
    {"leaf_value=1 4 2\n", "leaf_value=1 4 2\nleaf_value=1 4 2\n",
     "parse_error: model.txt: line 22: tree 0: leaf_value is given twice, first on line 21"},
    {"num_class=1\n", "num_class=1\nnum_class=1\n",
     "parse_error: model.txt: line 4: num_class is given twice, first on line 3"},
};

TEST(Forest, EveryErrorSaysWhereAndBothNumbers) {
  for (const BadText& bad : kBadTexts) {
    EXPECT_EQ(error_in(edited(kSmall, bad.from, bad.to)), bad.message) << bad.to;
  }
}

TEST(Forest, TruncatedTree) {
  const std::size_t end = kSmall.find("end of trees");
  for (std::size_t size = 0; size < end; ++size) {
    const std::string error = error_in(kSmall.substr(0, size));
    EXPECT_NE(error, "no error") << size;
    EXPECT_EQ(error.find("parse_error: model.txt: line "), 0u) << error;
  }
  EXPECT_EQ(error_in(kSmall.substr(0, kSmall.find("leaf_weight"))),
            "parse_error: model.txt: line 21: tree 0: the file ends in this tree, without the line "
            "'end of trees'");
}

TEST(Forest, NoTree) {
  const std::string text = kSmall.substr(0, kSmall.find("tree_sizes")) + "end of trees\n";
  EXPECT_EQ(error_in(text), "parse_error: model.txt: line 10: the model has no tree");
}

TEST(Gzip, DamagedTruncatedAndFollowed) {
  const std::string packed = deflate_gzip(kSmall);
  EXPECT_EQ(inflate_gzip(packed, "x.gz", kSmall.size()), kSmall);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    const std::string error =
        error_of([&] { inflate_gzip(packed.substr(0, size), "x.gz", kSmall.size()); });
    EXPECT_EQ(error, fmt::format("parse_error: x.gz: the gzip data end after {} bytes, in "
                                 "mid-stream",
                                 size));
  }
  EXPECT_EQ(error_of([&] { inflate_gzip(packed + "more", "x.gz", kSmall.size()); }),
            fmt::format("parse_error: x.gz: the gzip data end after {} bytes, but {} are there",
                        packed.size(), packed.size() + 4));
  std::string damaged = packed;
  damaged[packed.size() / 2] ^= 0x55;
  EXPECT_EQ(error_of([&] {
              inflate_gzip(damaged, "x.gz", kSmall.size());
            }).find("parse_error: x.gz: the gzip data "),
            0u);
}

TEST(Gzip, BombIsBounded) {
  const std::string bomb = deflate_gzip(std::string(std::size_t{16} << 20, 'a'));
  EXPECT_LT(bomb.size(), 100000u);
  EXPECT_EQ(error_of([&] { inflate_gzip(bomb, "x.gz", 1 << 20); }),
            "parse_error: x.gz: inflates to more than 1048576 bytes");
}

}  // namespace
}  // namespace tessera
