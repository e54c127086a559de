#include "tessera/train/train.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <set>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/processors.h"
#include "tessera/base/text.h"
#include "tessera/learn/lightgbm.h"

namespace tessera::train {
namespace {

constexpr int kGains = 31;  // gains of ranking: 0 to 30
constexpr int kMostTrees = 100000;
constexpr int kMostLeaves = 4096;
constexpr int kMostHardRounds = 100;
constexpr double kHardShare = 0.25;  // of the problems
constexpr float kHarderWeight = 2;   // times the weight of the round before

template <class... Args>
[[noreturn]] void refuse_training(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "train: " + fmt::format(sentence, std::forward<Args>(args)...));
}

struct GoalRow {
  std::string_view name;
  ModelQuantity quantity;
  ModelTransform transform;
  std::string_view objective;
};
constexpr auto kGoals = std::to_array<GoalRow>({
    {"seconds", ModelQuantity::seconds, ModelTransform::log, "regression"},
    {"tflops", ModelQuantity::tflops, ModelTransform::log, "regression"},
    {"bandwidth", ModelQuantity::bandwidth, ModelTransform::log, "regression"},
    {"efficiency", ModelQuantity::efficiency, ModelTransform::log, "regression"},
    {"ranking", ModelQuantity::rank, ModelTransform::none, "lambdarank"},
});
static_assert(kGoals.size() == static_cast<std::size_t>(Goal::ranking) + 1);

const GoalRow& row_of(Goal goal) { return row_of_enum(kGoals, "goal", goal); }

// ---- what LightGBM is given ----

struct TrainingData {
  std::size_t width = 0;
  std::vector<double> values;  // rows x width
  std::vector<float> labels;   // one for each row, like the next three
  std::vector<float> weights;  // empty: all weights are equal
  std::vector<std::size_t> problems;
  std::vector<std::size_t> groups;  // see groups_of()
  std::vector<double> old_scores;   // scores of a warm start's trees; empty without one
};

std::vector<double> best_seconds(const Dataset& d) {
  std::vector<double> best(d.problems.size(), HUGE_VAL);
  for (const Dataset::Row& row : d.rows) {
    best[row.problem] = std::min(best[row.problem], row.seconds);
  }
  return best;
}

ModelTransform transform_of(const TrainOptions& options) {
  return options.transform.value_or(row_of(options.goal).transform);
}

double transformed(ModelTransform transform, double value) {
  switch (transform) {
    case ModelTransform::none:
      return value;
    case ModelTransform::log:
      return std::log(value);
    case ModelTransform::log1p:
      return std::log1p(value);
  }
  return value;
}

double label_of(const TrainOptions& options, const Dataset& d, const Dataset::Row& row,
                double best) {
  const Problem& problem = d.problems[row.problem];
  const Family& family = family_of(problem);
  const ModelTransform transform = transform_of(options);
  switch (options.goal) {
    case Goal::seconds:
      return transformed(transform, row.seconds);
    case Goal::tflops:
      return transformed(transform, family.flops(problem) / row.seconds / 1e12);
    case Goal::bandwidth:
      return transformed(transform, family.bytes(problem) / row.seconds / 1e9);
    case Goal::efficiency:
      return transformed(transform, best / row.seconds);
    case Goal::ranking:
      return std::round((kGains - 1) * best / row.seconds);
  }
  return 0;
}

TrainingData material_of(const Dataset& d, const Target& target, const TrainOptions& options) {
  TrainingData m;
  m.width = family_of(op_of(d)).features().size();
  m.values = feature_rows(d, target);
  m.groups = groups_of(d);
  const std::vector<double> best = best_seconds(d);
  for (const Dataset::Row& row : d.rows) {
    const double fastest = best[row.problem];
    m.labels.push_back(static_cast<float>(label_of(options, d, row, fastest)));
    m.problems.push_back(row.problem);
    if (options.weight_power == 0) continue;
    m.weights.push_back(static_cast<float>(std::pow(fastest / row.seconds, options.weight_power)));
  }
  if (!options.warm_start) return m;
  for (std::size_t i = 0; i < d.rows.size(); ++i) {
    const std::span<const double> row = std::span(m.values).subspan(i * m.width, m.width);
    m.old_scores.push_back(predict(options.warm_start->forest, row));
  }
  return m;
}

template <class Value>
std::vector<Value> picked(const std::vector<Value>& all, std::span<const std::size_t> rows) {
  std::vector<Value> some;
  if (all.empty()) return some;
  some.reserve(rows.size());
  for (const std::size_t row : rows) some.push_back(all[row]);
  return some;
}

std::vector<double> picked_values(const TrainingData& m, std::span<const std::size_t> rows) {
  std::vector<double> some;
  some.reserve(rows.size() * m.width);
  for (const std::size_t row : rows) {
    const auto begin = m.values.begin() + static_cast<std::ptrdiff_t>(row * m.width);
    some.insert(some.end(), begin, begin + static_cast<std::ptrdiff_t>(m.width));
  }
  return some;
}

// The number of rows of each problem, in order. The rows of a problem are neighbours.
std::vector<std::int32_t> queries_of(const std::vector<std::size_t>& groups) {
  std::vector<std::int32_t> counts;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == 0 || groups[i] != groups[i - 1]) counts.push_back(0);
    ++counts.back();
  }
  return counts;
}

lightgbm::Dataset data_of(const TrainingData& m, std::span<const std::size_t> rows,
                          const Dataset& d, Goal goal, const std::string& params,
                          const lightgbm::Dataset& reference = {}) {
  const auto data = lightgbm::make_dataset(picked_values(m, rows), rows.size(), m.width,
                                           lightgbm::Order::by_row, params, reference);
  lightgbm::set_field(data, "label", std::span<const float>(picked(m.labels, rows)));
  const std::vector<float> weights = picked(m.weights, rows);
  if (!weights.empty()) lightgbm::set_field(data, "weight", std::span<const float>(weights));
  const std::vector<double> scores = picked(m.old_scores, rows);
  if (!scores.empty()) lightgbm::set_field(data, "init_score", std::span<const double>(scores));
  if (goal == Goal::ranking) {
    const std::vector<std::int32_t> queries = queries_of(picked(m.problems, rows));
    lightgbm::set_field(data, "group", std::span<const std::int32_t>(queries));
  }
  std::vector<std::string_view> names;
  for (const Feature& feature : family_of(op_of(d)).features()) names.push_back(feature.name);
  lightgbm::set_feature_names(data, names);
  return data;
}

std::string num_threads(const TrainOptions& options) {
  return std::to_string(bounded_threads(options.threads));
}

std::map<std::string, std::string> params_of(const TrainOptions& options) {
  std::map<std::string, std::string> params = {
      {"objective", std::string(row_of(options.goal).objective)},
      {"num_leaves", std::to_string(options.leaves)},
      {"learning_rate", "0.1"},
      {"min_data_in_leaf", "20"},
      {"feature_fraction", "0.7"},
      {"bagging_fraction", "0.85"},
      {"bagging_freq", "1"},
      {"lambda_l2", "0.5"},
      {"max_bin", "255"},
      {"seed", std::to_string(options.seed)},
      {"num_threads", num_threads(options)},
      {"deterministic", "true"},
      {"force_row_wise", "true"},
      {"verbosity", "-1"},
  };
  if (options.goal == Goal::ranking) {
    std::vector<std::string> gains;
    for (int gain = 0; gain < kGains; ++gain) gains.push_back(std::to_string(gain));
    params["label_gain"] = join(gains, ",");
    params["metric"] = "ndcg";
    params["eval_at"] = "3";
    params["lambdarank_truncation_level"] = "10";
  }
  for (const auto& [name, value] : options.params) params[name] = value;
  return params;
}

std::string text_of(const std::map<std::string, std::string>& params) {
  std::vector<std::string> words;
  for (const auto& [name, value] : params) words.push_back(name + "=" + value);
  return join(words, " ");
}

// ---- fitting ----

struct Fitted {
  lightgbm::Booster booster;
  int trees = 0;
};

// Adds trees until the metric on the stopping rows has not improved for `patience` trees, and then
// removes the trees after the best one. Without patience all trees are made and stay.
Fitted fit_with_stop(const TrainingData& m, const Dataset& d, const Split& split,
                     const TrainOptions& options, const std::string& params) {
  const auto train = data_of(m, split.train, d, options.goal, params);
  const auto stop = data_of(m, split.stop, d, options.goal, params, train);
  Fitted fitted{lightgbm::make_booster(train, params), 0};
  lightgbm::add_validation(fitted.booster, stop);
  const double sign = options.goal == Goal::ranking ? -1 : 1;  // more NDCG is better
  double least = HUGE_VAL;
  int tree = 0;
  const int patience = options.patience > 0 ? options.patience : options.trees;
  while (tree < options.trees && tree - fitted.trees < patience) {
    if (!lightgbm::update(fitted.booster)) break;
    ++tree;
    const double loss = sign * lightgbm::evaluate(fitted.booster, 1).at(0);
    if (loss >= least) continue;
    least = loss;
    fitted.trees = tree;
  }
  if (options.patience == 0) fitted.trees = tree;
  for (; tree > std::max(fitted.trees, 1); --tree) lightgbm::roll_back(fitted.booster);
  fitted.trees = std::max(fitted.trees, 1);
  return fitted;
}

Fitted fit_all(const TrainingData& m, const Dataset& d, int trees, const TrainOptions& options,
               const std::string& params) {
  std::vector<std::size_t> rows(d.rows.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (options.on_forest) options.on_forest(options.folds, options.folds + 1, {rows, {}, {}});
  Fitted fitted{lightgbm::make_booster(data_of(m, rows, d, options.goal, params), params), 0};
  while (fitted.trees < trees && lightgbm::update(fitted.booster)) ++fitted.trees;
  return fitted;
}

// A model's score for a row; more is better.
double score_of(Goal goal, double prediction) {
  return goal == Goal::seconds ? -prediction : prediction;
}

Evaluation evaluate_rows(const Dataset& d, std::span<const std::size_t> rows,
                         std::span<const double> predictions, Goal goal) {
  std::vector<ScoredRow> scored;
  for (const std::size_t i : rows) {
    const Dataset::Row& row = d.rows[i];
    scored.push_back(
        {row.problem, d.kernel_names[row.kernel], row.seconds, score_of(goal, predictions[i])});
  }
  return evaluate(d.problems, scored);
}

void run_fold(const TrainingData& m, const Dataset& d, std::span<const int> fold_of_row, int fold,
              const TrainOptions& options, const std::string& params, TrainResult& result) {
  const Split split = split_rows(m.groups, fold_of_row, fold, options.stop_share);
  if (options.on_forest) options.on_forest(fold, options.folds + 1, split);
  const Fitted fitted = fit_with_stop(m, d, split, options, params);
  const std::vector<double> predictions =
      lightgbm::predict(fitted.booster, picked_values(m, split.score), split.score.size(), m.width,
                        lightgbm::Order::by_row, "num_threads=" + num_threads(options));
  for (std::size_t i = 0; i < split.score.size(); ++i) {
    result.out_of_fold[split.score[i]] = predictions[i];
  }
  result.folds.push_back(
      {fitted.trees, evaluate_rows(d, split.score, result.out_of_fold, options.goal)});
}

int median_trees(const std::vector<FoldResult>& folds) {
  std::vector<int> trees;
  for (const FoldResult& fold : folds) trees.push_back(fold.trees);
  std::ranges::sort(trees);
  return trees[trees.size() / 2];
}

void run_folds(const TrainingData& m, const Dataset& d, std::span<const int> fold_of_row,
               const TrainOptions& options, const std::string& params, TrainResult& result) {
  result.folds.clear();
  result.out_of_fold.assign(d.rows.size(), 0);
  for (int fold = 0; fold < options.folds; ++fold) {
    run_fold(m, d, fold_of_row, fold, options, params, result);
  }
  std::vector<std::size_t> all(d.rows.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  result.evaluation = evaluate_rows(d, all, result.out_of_fold, options.goal);
}

// Gives the rows of the problems with the worst choices more weight.
void weigh_hard_problems(const Evaluation& evaluation, TrainingData& m) {
  std::vector<const ProblemResult*> results;
  for (const ProblemResult& result : evaluation.results) results.push_back(&result);
  std::ranges::stable_sort(results, {}, &ProblemResult::efficiency);
  results.resize(static_cast<std::size_t>(std::ceil(kHardShare * double(results.size()))));
  std::set<std::size_t> hard;
  for (const ProblemResult* result : results) hard.insert(result->problem);
  if (m.weights.empty()) m.weights.assign(m.problems.size(), 1);
  for (std::size_t i = 0; i < m.problems.size(); ++i) {
    if (hard.contains(m.problems[i])) m.weights[i] *= kHarderWeight;
  }
}

// Leaves the folds, and in the material the weights, of the best round.
void mine_hard_examples(TrainingData& m, const Dataset& d, std::span<const int> fold_of_row,
                        const TrainOptions& options, const std::string& params,
                        TrainResult& result) {
  result.rounds = {result.evaluation->summary};
  TrainingData tried = m;
  TrainResult round = result;
  for (int i = 0; i < options.hard_rounds; ++i) {
    weigh_hard_problems(*round.evaluation, tried);
    run_folds(tried, d, fold_of_row, options, params, round);
    const Summary& summary = round.evaluation->summary;
    const bool is_better = summary.mean > result.evaluation->summary.mean;
    std::vector<Summary> rounds = std::move(result.rounds);
    rounds.push_back(summary);
    if (is_better) {
      m.weights = tried.weights;
      result = round;
    }
    result.rounds = std::move(rounds);
  }
}

// The number of trees after a warm start. The part of the fold that is usually scored is trained on
// as well, because the old trees may know it.
int trees_after_warm_start(const TrainingData& m, const Dataset& d,
                           std::span<const int> fold_of_row, const TrainOptions& options,
                           const std::string& params) {
  Split split = split_rows(m.groups, fold_of_row, 0, options.stop_share);
  split.train.insert(split.train.end(), split.score.begin(), split.score.end());
  std::ranges::sort(split.train);
  split.score.clear();
  if (options.on_forest) options.on_forest(0, options.folds + 1, split);
  return fit_with_stop(m, d, split, options, params).trees;
}

// ---- what is told about it ----

// The ranges of problems' features, and of the machine's features that differ between rows, which
// are the numbers of threads.
std::vector<TrainingRange> ranges_of(const TrainingData& m, std::span<const Feature> features) {
  std::vector<TrainingRange> ranges;
  for (std::size_t f = 0; f < features.size(); ++f) {
    const bool is_machine = features[f].group == FeatureGroup::hardware;
    if (features[f].group != FeatureGroup::problem && !is_machine) continue;
    TrainingRange range{std::string(features[f].name), HUGE_VAL, -HUGE_VAL};
    for (std::size_t i = f; i < m.values.size(); i += m.width) {
      range.min = std::min(range.min, m.values[i]);
      range.max = std::max(range.max, m.values[i]);
    }
    if (is_machine && range.min == range.max) continue;
    ranges.push_back(std::move(range));
  }
  return ranges;
}

void widen(std::vector<TrainingRange>& ranges, const std::vector<TrainingRange>& before) {
  for (TrainingRange& range : ranges) {
    for (const TrainingRange& old : before) {
      if (old.feature != range.feature) continue;
      range.min = std::min(range.min, old.min);
      range.max = std::max(range.max, old.max);
    }
  }
}

// LightGBM's C API does not return its version, so the version of its Python wheel is read.
std::string lightgbm_version() {
  namespace fs = std::filesystem;
  constexpr std::string_view kBegin = "lightgbm-";
  constexpr std::string_view kEnd = ".dist-info";
  std::error_code error;
  const fs::path packages = fs::path(lightgbm::library_path()).parent_path() / ".." / "..";
  for (const fs::directory_entry& entry : fs::directory_iterator(packages, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    return name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  }
  return "unknown";
}

std::map<std::string, double> metrics_of(const Evaluation& e) {
  const Summary& s = e.summary;
  return {{"mean_efficiency", s.mean},
          {"p50_efficiency", s.p50},
          {"p10_efficiency", s.p10},
          {"min_efficiency", s.min},
          {"top1", s.top1},
          {"top3", s.top3},
          {"top5", s.top5},
          {"ndcg", s.ndcg},
          {"mean_regret_top3", s.mean_regret[1]}};
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

Manifest manifest_of(const Dataset& d, const Target& target, const TrainingData& m,
                     const TrainOptions& options, const TrainResult& result) {
  const std::span<const Feature> features = family_of(op_of(d)).features();
  const GoalRow& goal = row_of(options.goal);
  Manifest o;
  o.op = to_string(op_of(d));
  o.target = d.target;
  std::set<std::string> keys;
  for (const KernelSpec& kernel : d.kernels) keys.insert(model_key(kernel));
  o.dtypes.assign(keys.begin(), keys.end());
  o.machine = to_json(target);
  const std::vector<int> threads = thread_numbers(d);
  o.threads = counts_threads(target) && threads.size() == 1 ? threads.front() : 0;
  o.quantity = goal.quantity;
  o.transform = transform_of(options);
  o.feature_hash = feature_hash_text(features);
  for (const Feature& feature : features) o.features.emplace_back(feature.name);
  o.ranges = ranges_of(m, features);
  if (options.warm_start) widen(o.ranges, options.warm_start->manifest.ranges);
  o.data_hash = d.hash;
  o.rows = static_cast<std::int64_t>(d.rows.size());
  o.problems = static_cast<std::int64_t>(d.problems.size());
  o.date = options.date.empty() ? today() : options.date;
  o.versions = {{"lightgbm", lightgbm_version()}, {"tessera", options.version}};
  if (result.evaluation) o.metrics = metrics_of(*result.evaluation);
  o.params = params_of(options);
  o.params["goal"] = goal.name;
  o.params["weight_power"] = fmt::format("{}", options.weight_power);
  if (options.hard_rounds > 0) o.params["hard_rounds"] = fmt::format("{}", options.hard_rounds);
  if (options.warm_start) o.params["warm_start"] = options.warm_start->manifest.model_hash;
  return o;
}

std::vector<FeatureImportance> importances_of(const lightgbm::Booster& booster, const Dataset& d) {
  const std::span<const Feature> features = family_of(op_of(d)).features();
  const auto gains = lightgbm::importance(booster, features.size(), lightgbm::Importance::gain);
  const auto splits = lightgbm::importance(booster, features.size(), lightgbm::Importance::splits);
  const double all = std::accumulate(gains.begin(), gains.end(), 0.0);
  std::vector<FeatureImportance> list;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const double share = all > 0 ? gains[i] / all : 0;
    list.push_back({std::string(features[i].name), share, splits[i]});
  }
  std::ranges::stable_sort(list, std::greater<>(), &FeatureImportance::gain);
  return list;
}

// LightGBM's names for the number of threads, which TrainOptions::threads sets.
constexpr std::array<std::string_view, 5> kThreadNames = {"num_threads", "num_thread", "nthread",
                                                          "nthreads", "n_jobs"};

void check_params(const std::map<std::string, std::string>& params) {
  for (const auto& [name, value] : params) {
    if ((name + value).find_first_of(" \t\r\n") != std::string::npos) {
      refuse_training("a parameter of LightGBM has no blanks, got '{}={}'", name, value);
    }
    if (std::ranges::find(kThreadNames, name) == kThreadNames.end()) continue;
    refuse_training(
        "the number of threads is an option of its own (tessera train --jobs), got the "
        "parameter '{}'",
        name);
  }
}

void check_hard_rounds(const TrainOptions& o) {
  if (o.hard_rounds < 0 || o.hard_rounds > kMostHardRounds) {
    refuse_training("rounds of hard examples must be 0 to {}, got {}", kMostHardRounds,
                    o.hard_rounds);
  }
  if (o.hard_rounds > 0 && o.warm_start) {
    refuse_training(
        "hard examples are found out of fold, and a warm start has no folds; got {} rounds",
        o.hard_rounds);
  }
}

void check(const Dataset& d, const Target& target, const TrainOptions& o) {
  check_params(o.params);
  check_hard_rounds(o);
  if (target.name != d.target) {
    refuse_training("the data are of target '{}', got the row of '{}'", d.target, target.name);
  }
  if (o.trees < 1 || o.trees > kMostTrees) {
    refuse_training("trees must be 1 to {}, got {}", kMostTrees, o.trees);
  }
  if (o.leaves < 2 || o.leaves > kMostLeaves) {
    refuse_training("leaves must be 2 to {}, got {}", kMostLeaves, o.leaves);
  }
  if (!(o.weight_power >= 0 && o.weight_power <= 16)) {
    refuse_training("the power of the weights must be 0 to 16, got {}", o.weight_power);
  }
  check_enum("train: goal", o.goal, Goal::ranking);
  if (o.transform) check_enum("train: transform", *o.transform, ModelTransform::log1p);
  if (o.transform && row_of(o.goal).quantity == ModelQuantity::rank) {
    refuse_training("the goal '{}' takes no transform, got '{}'", to_string(o.goal),
                    to_string(*o.transform));
  }
  if (o.patience < 0) refuse_training("patience must be at least 0 trees, got {}", o.patience);
  if (!o.warm_start) return;
  const Manifest& before = o.warm_start->manifest;
  const auto goal = before.params.find("goal");
  const std::string word = goal == before.params.end() ? "unknown" : goal->second;
  if (word != to_string(o.goal)) {
    refuse_training("the warm start's goal is '{}', wanted is '{}': their sums would mean nothing",
                    word, to_string(o.goal));
  }
  if (before.transform != transform_of(o)) {
    refuse_training("the warm start's transform is '{}', wanted is '{}'",
                    to_string(before.transform), to_string(transform_of(o)));
  }
  const std::vector<int> threads = thread_numbers(d);
  if (before.threads != 0 && threads != std::vector<int>{before.threads}) {
    refuse_training("the warm start's data are of {} threads, these are of {}", before.threads,
                    fmt::join(threads, ", "));
  }
  const std::size_t features = family_of(op_of(d)).features().size();
  if (before.features.size() != features) {
    refuse_training("the warm start's model has {} features, there are {} today; train it anew",
                    before.features.size(), features);
  }
}

}  // namespace

std::string_view to_string(Goal goal) { return row_of(goal).name; }

Goal parse_goal(std::string_view word) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kGoals.size(); ++i) {
    if (kGoals[i].name == word) return static_cast<Goal>(i);
    names.emplace_back(kGoals[i].name);
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown quantity '{}'{} (known: {})", word,
                                                did_you_mean(word, names), join(names, ", ")));
}

TrainResult train(const Dataset& dataset, const Target& target, const TrainOptions& options) {
  check(dataset, target, options);
  const std::vector<int> fold_of_row = group_folds(groups_of(dataset), options.folds);
  lightgbm::load();
  TrainingData material = material_of(dataset, target, options);
  const std::string params = text_of(params_of(options));

  TrainResult result;
  int trees = 0;
  if (options.warm_start) {
    trees = trees_after_warm_start(material, dataset, fold_of_row, options, params);
  } else {
    run_folds(material, dataset, fold_of_row, options, params, result);
    if (options.hard_rounds > 0) {
      mine_hard_examples(material, dataset, fold_of_row, options, params, result);
    }
    trees = median_trees(result.folds);
  }

  const Fitted fitted = fit_all(material, dataset, trees, options, params);
  if (options.warm_start) {
    lightgbm::merge(fitted.booster, lightgbm::load_booster(options.warm_start_text));
  }
  result.forest = lightgbm::save_text(fitted.booster);
  result.importances = importances_of(fitted.booster, dataset);
  result.manifest = manifest_of(dataset, target, material, options, result);
  return result;
}

}  // namespace tessera::train
