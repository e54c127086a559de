// Forests to test with: one made by hand, and random ones in LightGBM's text format.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/learn/forest.h"

namespace tessera {

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

inline unsigned fresh_seed() { return std::random_device{}(); }

// Two features; tree 0: x0 <= 0.5 ? (x1 in {1, 33} ? 1 : 2) : 4, tree 1: the constant 0.25.
inline const std::string kSmall = R"(tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=x0 x1
feature_infos=[-1:1] -1:0:1:33
tree_sizes=400 60

Tree=0
num_leaves=3
num_cat=1
split_feature=0 1
split_gain=2 1
threshold=0.5 0
decision_type=2 1
left_child=1 -1
right_child=-2 -3
leaf_value=1 4 2
leaf_weight=1 1 1
leaf_count=1 1 1
internal_value=0 0
internal_weight=0 0
internal_count=3 2
cat_boundaries=0 2
cat_threshold=2 2
is_linear=0
shrinkage=1


Tree=1
num_leaves=1
num_cat=0
split_feature=
split_gain=
threshold=
decision_type=
left_child=
right_child=
leaf_value=0.25
leaf_weight=
leaf_count=
internal_value=
internal_weight=
internal_count=
is_linear=0
shrinkage=1


end of trees

feature_importances:
x0=1
x1=1

parameters:
[boosting: gbdt]
end of parameters

pandas_categorical:null
)";

// The text with one occurrence replaced; tells when there is none, so that a test cannot rot.
inline std::string edited(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return "cannot edit: no " + from;
  return text.replace(at, from.size(), to);
}

struct RandomForest {
  std::mt19937_64 random;
  std::size_t features = 6;  // the last one is categorical
  explicit RandomForest(unsigned seed) : random(seed) {}

  std::size_t below(std::size_t limit) { return random() % limit; }
  double uniform() { return std::uniform_real_distribution<>(-2, 2)(random); }

  // Values where something could go wrong, and thresholds at and around them.
  double edge() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::vector<double> all = {0,
                                     -0.0,
                                     1e-36,
                                     -1e-36,
                                     1.0000000180025095e-35,
                                     -1.0000000180025095e-35,
                                     1e-34,
                                     1,
                                     -1,
                                     1e300,
                                     kInfinity,
                                     -kInfinity,
                                     std::numeric_limits<double>::quiet_NaN()};
    return all[below(all.size())];
  }
  double finite_edge() {
    for (;;) {
      const double x = edge();
      if (x - x == 0) return x;
    }
  }
  double threshold() {
    if (below(4) == 0) return finite_edge();
    return below(2) == 0 ? static_cast<double>(below(8)) / 4 : uniform();
  }

  // Trees grow as LightGBM's do: a random leaf becomes a node.
  std::string tree(std::size_t index, std::size_t leaves) {
    std::vector<int> left, right, feature, type, sets = {0};
    std::vector<double> thresholds, values;
    std::vector<unsigned> words;
    std::vector<int*> unused;
    for (std::size_t i = 0; i < leaves; ++i) values.push_back(uniform());
    struct Slot {
      std::size_t node;
      bool is_left;
    };
    std::vector<Slot> open;
    left.resize(leaves - 1);
    right.resize(leaves - 1);
    for (std::size_t node = 0; node + 1 < leaves; ++node) {
      if (node > 0) {
        const std::size_t at = below(open.size());
        (open[at].is_left ? left : right)[open[at].node] = static_cast<int>(node);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      }
      open.push_back({node, true});
      open.push_back({node, false});
      feature.push_back(static_cast<int>(below(features)));
      if (feature.back() + 1 == static_cast<int>(features)) {
        type.push_back(1 + 4 * static_cast<int>(below(3)));
        thresholds.push_back(static_cast<double>(sets.size() - 1));
        for (std::size_t w = below(3); w-- > 0;) words.push_back(static_cast<unsigned>(random()));
        sets.push_back(static_cast<int>(words.size()));
      } else {
        type.push_back(2 * static_cast<int>(below(2)) + 4 * static_cast<int>(below(3)));
        thresholds.push_back(threshold());
      }
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      (open[i].is_left ? left : right)[open[i].node] = ~static_cast<int>(i);
    }
    std::string text = fmt::format("Tree={}\nnum_leaves={}\nnum_cat={}\nsplit_feature={}\n", index,
                                   leaves, sets.size() - 1, fmt::join(feature, " "));
    text += fmt::format("threshold={:.17g}\ndecision_type={}\nleft_child={}\nright_child={}\n",
                        fmt::join(thresholds, " "), fmt::join(type, " "), fmt::join(left, " "),
                        fmt::join(right, " "));
    text += fmt::format("leaf_value={:.17g}\n", fmt::join(values, " "));
    if (sets.size() > 1) {
      text += fmt::format("cat_boundaries={}\ncat_threshold={}\n", fmt::join(sets, " "),
                          fmt::join(words, " "));
    }
    return text + "is_linear=0\nshrinkage=1\n\n\n";
  }

  std::string text(std::size_t trees, std::size_t most_leaves) {
    std::string names, infos;
    for (std::size_t f = 0; f < features; ++f) {
      names += fmt::format(" f{}", f);
      infos += " none";
    }
    std::string out = fmt::format(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
        "max_feature_idx={}\nobjective=regression\nfeature_names={}\nfeature_infos={}\n\n",
        features - 1, names.substr(1), infos.substr(1));
    for (std::size_t i = 0; i < trees; ++i) out += tree(i, 1 + below(most_leaves));
    return out + "end of trees\n\nparameters:\nend of parameters\n\npandas_categorical:null\n";
  }

  // Columns: one constant, some of few values, some of many, some of edges, some with a number so
  // large that all others are alike beside it, one of categories.
  std::vector<double> columns(std::size_t count) {
    std::vector<double> out(features * count);
    for (std::size_t f = 0; f < features; ++f) {
      const std::size_t kind =
          f + 1 == features ? 4 : std::array<std::size_t, 5>{0, 1, 2, 3, 5}[below(5)];
      const double constant = below(2) == 0 ? edge() : uniform();
      for (std::size_t i = 0; i < count; ++i) {
        double& x = out[f * count + i];
        if (kind == 0) x = constant;
        if (kind == 1) x = static_cast<double>(below(8)) / 4;
        if (kind == 2) x = uniform();
        if (kind == 3) x = edge();
        if (kind == 5) x = below(16) == 0 ? 1e12 : static_cast<double>(below(8)) / 4;
        if (kind == 4) x = below(8) == 0 ? edge() : static_cast<double>(below(90)) - 2.5;
      }
    }
    return out;
  }
};

inline std::vector<double> row_of(const std::vector<double>& columns, std::size_t count,
                                  std::size_t i) {
  std::vector<double> row;
  for (std::size_t at = i; at < columns.size(); at += count) row.push_back(columns[at]);
  return row;
}

}  // namespace tessera
