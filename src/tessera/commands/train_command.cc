// tessera train: trains a model from the measurements of sweeps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/learning.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

constexpr double kMostPower = 1e9;

constexpr std::size_t kShownFeatures = 10;

struct TrainCommand {
  std::vector<std::string> data;
  std::string target;
  std::string op;
  train::DatasetFilter filter;
  std::string output;
  std::vector<std::string> quantities = {std::string(to_string(train::TrainOptions{}.goal))};
  std::string transform;
  bool ranking = false;
  std::string warm_start;
  std::vector<std::string> params;
  bool plain = false;
  train::TrainOptions options;
};

[[noreturn]] void refuse_training(const std::string& words) {
  throw Error(ErrorCode::invalid_argument, "train: " + words);
}

std::vector<train::Goal> goals_of(const TrainCommand& command) {
  if (command.ranking) return {train::Goal::ranking};
  std::vector<train::Goal> goals;
  for (const std::string& word : command.quantities) {
    const train::Goal goal = train::parse_goal(word);
    if (std::ranges::count(goals, goal) > 0) {
      refuse_training(fmt::format("--quantity names '{}' twice", word));
    }
    goals.push_back(goal);
  }
  return goals;
}

train::TrainOptions options_of(const TrainCommand& command, train::Goal goal) {
  train::TrainOptions options = command.options;
  options.goal = goal;
  options.version = kVersion;
  if (!command.transform.empty()) options.transform = parse_model_transform(command.transform);
  for (const std::string& word : command.params) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos || word.find(' ') != std::string::npos) {
      refuse_training(fmt::format("--param is NAME=VALUE without spaces, got '{}'", word));
    }
    options.params[word.substr(0, equals)] = word.substr(equals + 1);
  }
  if (command.warm_start.empty()) return options;
  options.warm_start = load_model_folder(command.warm_start).model;
  options.warm_start_text =
      model_text(read_file(fs::path(command.warm_start) / options.warm_start->manifest.file));
  return options;
}

Json to_json(const std::string& folder, const train::TrainResult& result) {
  Json folds = Json::array();
  for (const train::FoldResult& fold : result.folds) {
    folds.push_back({{"trees", fold.trees}, {"summary", summary_json(fold.evaluation.summary)}});
  }
  Json features = Json::array();
  for (const train::FeatureImportance& f : result.importances) {
    features.push_back({{"feature", f.name}, {"gain", f.gain}, {"splits", f.splits}});
  }
  Json out_of_fold;
  if (result.evaluation) out_of_fold = summary_json(result.evaluation->summary);
  Json rounds = Json::array();
  for (const train::Summary& round : result.rounds) rounds.push_back(summary_json(round));
  return {{"model", folder},
          {"rows", result.manifest.rows},
          {"problems", result.manifest.problems},
          {"data_hash", result.manifest.data_hash},
          {"folds", folds},
          {"out_of_fold", out_of_fold},
          {"hard_rounds", rounds},
          {"importances", features}};
}

void print_text(const Console& console, const std::string& folder, const train::TrainResult& result,
                const train::Summary& analytic) {
  std::vector<Rated> rows;
  for (std::size_t i = 0; i < result.folds.size(); ++i) {
    const train::FoldResult& fold = result.folds[i];
    rows.push_back({fmt::format("fold {}, {} trees", i, fold.trees), fold.evaluation.summary});
  }
  for (std::size_t i = 0; i < result.rounds.size(); ++i) {
    rows.push_back({i == 0 ? "before hard examples" : fmt::format("hard examples, round {}", i),
                    result.rounds[i]});
  }
  if (result.evaluation) rows.push_back({"out of fold", result.evaluation->summary});
  rows.push_back({"analytic", analytic});
  console.write_out("{}", summary_table(rows));
  for (std::size_t i = 0; i < std::min(kShownFeatures, result.importances.size()); ++i) {
    const train::FeatureImportance& f = result.importances[i];
    console.write_out("{:<10} {:>7}  {}\n", i == 0 ? "gain" : "", format_share(f.gain), f.name);
  }
  console.write_out("{} rows of {} problems learned; the model is in {}\n", result.manifest.rows,
                    result.manifest.problems, folder);
  if (!result.evaluation) {
    console.write_out(
        "no folds after a warm start, whose trees may know every problem: evaluate it on the "
        "unseen ones\n");
  }
}

// A model that was trained with a nominal row would never be used on this machine, and no other
// message would say so.
void print_where_it_holds(const Console& console, const Target& target) {
  const Target here = host_target();
  if (is_gpu(target) || target.name != here.name) return;
  if (const Verdict same = is_same_core(target, here); !same) {
    console.write_out(
        "note: this machine's choices will not ask it: {}; leave out --target to train for "
        "this machine\n",
        same.reason);
  }
}

// One model of the data. Returns what JSON tells of it.
Json train_one(const TrainCommand& command, const train::Dataset& dataset, const Target& target,
               train::Goal goal, const std::string& folder, const Console& console) {
  train::TrainOptions options = options_of(command, goal);
  Progress progress(console, "train", Plain::signs);
  options.on_forest = [&](int forest, int forests, const train::Split& split) {
    progress.step(static_cast<std::size_t>(forest), static_cast<std::size_t>(forests),
                  fmt::format("{} rows", split.train.size()));
    console.check_stop();
  };
  const train::TrainResult result = train::train(dataset, target, options);
  progress.clear();
  save_model(folder, result.manifest, result.forest,
             command.plain ? ModelFile::text : ModelFile::gzip);
  if (!console.json) {
    const auto analytic = train::evaluate(dataset.problems, train::score_analytic(dataset, target));
    print_text(console, folder, result, analytic.summary);
  }
  return to_json(folder, result);
}

// Several quantities make several models, in folders of their names.
int train(const TrainCommand& command, const Console& console) {
  const std::vector<train::Goal> goals = goals_of(command);
  const Target target = resolve_target(command.target);
  train::DatasetFilter filter = command.filter;
  if (!command.op.empty()) filter.op = parse_op(command.op);
  filter.target = target.name;
  filter.least_problems = static_cast<std::size_t>(command.options.folds);
  const train::Dataset dataset = train::make_dataset(read_all_data(command.data), filter);
  Json models = Json::array();
  for (const train::Goal goal : goals) {
    const fs::path folder(command.output);
    const fs::path own = goals.size() > 1 ? folder / to_string(goal) : folder;
    models.push_back(train_one(command, dataset, target, goal, own.string(), console));
  }
  if (console.json) {
    console.print_json(models.size() == 1 ? models.front() : Json{{"models", models}});
    return 0;
  }
  print_where_it_holds(console, target);
  return 0;
}

}  // namespace

Action declare_train(CLI::App& app) {
  auto command = std::make_shared<TrainCommand>();
  train::TrainOptions& options = command->options;
  add_data_option(app, command->data);
  add_target_option(app, command->target);
  app.add_option("--op", command->op, "The operation; the only one of the data if left out");
  app.add_option("--dtype", command->filter.dtypes,
                 "Types as kernel names spell them, bf16 or fp8_bf8; all if left out")
      ->delimiter(',');
  app.add_option("--kernels", command->filter.kernels,
                 "Learn only from kernels that one of these wildcards matches");
  app.add_option("--threads", command->filter.threads,
                 "Numbers of threads of the measurements, which the model will know; left out: the "
                 "only number there is")
      ->delimiter(',')
      ->check(whole_from(1));
  app.add_option("--output", command->output, "The model's folder")->required();
  app.add_option("--quantity", command->quantities,
                 "What is predicted: seconds, tflops, bandwidth or efficiency; of several each "
                 "gets a model, in a folder of its name")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--transform", command->transform, "none, log or log1p of it; log if left out");
  app.add_flag("--ranking", command->ranking, "Order only, by LambdaRank, instead of a quantity");
  add_integer_option(app, "--trees", options.trees, 1, "At most this many");
  add_integer_option(app, "--patience", options.patience, 0,
                     "Trees without gain before it stops; 0: never, all --trees are kept");
  add_integer_option(app, "--leaves", options.leaves, 2, "Of a tree, at most");
  add_integer_option(app, "--folds", options.folds, 2, "Parts that are scored in turn");
  add_integer_option(app, "--hard-examples", options.hard_rounds, 0,
                     "Rounds in which the problems with the worst choices get twice the weight; "
                     "the best round counts");
  add_real_option(app, "--weight-power", options.weight_power, -kMostPower,
                  "A row counts as its efficiency to this power; 0: all the same", kMostPower);
  app.add_option("--param", command->params, "NAME=VALUE for LightGBM, such as learning_rate=0.05");
  add_seed_option(app, options.seed, "Of the trees' sampling");
  add_integer_option(app, "--jobs", options.threads, 1, "Threads of LightGBM, at most 1024");
  app.add_option("--warm-start", command->warm_start, "Go on from this folder's model");
  app.add_flag("--plain", command->plain, "Write the trees as text, not as gzip");
  return [command](const Console& console) { return train(*command, console); };
}

}  // namespace tessera::commands
