// tessera evaluate: how good a model's choices are, on measurements.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tessera/commands/format.h"
#include "tessera/commands/learning.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

constexpr std::uint64_t kRandomSeed = 1;
constexpr int kRetrainFolds = 3;  // fewer than usual: what counts is the unseen side

struct EvaluateCommand {
  std::string model;
  std::vector<std::string> compare;
  std::vector<std::string> data;
  std::vector<std::string> oracle;
  std::vector<std::string> by;
  std::vector<std::string> kernels;
  std::string save;
  int threads = 0;
  bool unseen = false;
  bool learned = false;
  bool retrain = false;
  bool offered = false;
};

train::Dataset dataset_of(const EvaluateCommand& command, const Manifest& manifest,
                          const std::vector<std::string>& files) {
  train::DatasetFilter filter;
  filter.op = parse_op(manifest.op);
  filter.target = manifest.target;
  filter.dtypes = manifest.dtypes;
  filter.kernels = command.kernels;
  filter.drop_unseen = command.learned;
  filter.only_unseen = command.unseen;
  const measure::SweepData data = read_all_data(files);
  const int threads = command.threads > 0 ? command.threads : manifest.threads;
  filter.threads = threads > 0 ? std::vector<int>{threads} : train::thread_numbers(data);
  return train::make_dataset(data, filter);
}

// The tables' title where they are of other threads than the model learned.
std::string threads_title(const Manifest& manifest, const train::Dataset& dataset) {
  const std::vector<int> threads = thread_numbers(dataset);
  if (manifest.threads == 0 || threads == std::vector<int>{manifest.threads}) return "";
  return fmt::format("{} of {} threads, by a model that learned {}\n\n", dataset.target,
                     fmt::join(threads, ", "), manifest.threads);
}

// The fastest kernels by other measurements, for the problems' indices in these measurements.
train::Oracle oracle_of(const EvaluateCommand& command, const Manifest& manifest,
                        const train::Dataset& dataset) {
  if (command.oracle.empty()) return {};
  const train::Dataset others = dataset_of(command, manifest, command.oracle);
  const train::Oracle fastest = train::fastest_of(train::score_random(others, kRandomSeed));
  std::map<std::pair<std::string, int>, std::size_t> places;
  for (std::size_t i = 0; i < dataset.problems.size(); ++i) {
    places[{to_string(dataset.problems[i]), dataset.threads[i]}] = i;
  }
  train::Oracle oracle;
  for (const auto& [problem, kernel] : fastest) {
    const auto place = places.find({to_string(others.problems[problem]), others.threads[problem]});
    if (place != places.end()) oracle[place->second] = kernel;
  }
  if (!oracle.empty()) return oracle;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("evaluate: none of the {} problems of --oracle is among the {} of --data",
                          others.problems.size(), dataset.problems.size()));
}

// How often the chosen kernel was timed. A sweep drops a kernel after one reading that is much
// slower than the best, and that reading may have met a pause.
int readings_of_chosen(const train::ProblemResult& result, const train::Dataset& dataset) {
  const std::vector<std::size_t> first = train::first_rows(dataset);
  for (std::size_t i = first[result.problem]; i < first[result.problem + 1]; ++i) {
    const train::Dataset::Row& row = dataset.rows[i];
    if (dataset.kernel_names[row.kernel] == result.chosen) return row.readings;
  }
  return 0;
}

Json to_json(const train::ProblemResult& result, const train::Dataset& dataset) {
  return {{"problem", to_string(dataset.problems[result.problem])},
          {"efficiency", result.efficiency},
          {"chosen", result.chosen},
          {"chosen_seconds", result.chosen_seconds},
          {"chosen_readings", readings_of_chosen(result, dataset)},
          {"best", result.best},
          {"best_seconds", result.best_seconds}};
}

void check_slices(const std::vector<train::Slice>& slices, const std::vector<std::string>& by) {
  std::set<std::string> found = {"all"};
  for (const train::Slice& slice : slices) found.insert(slice.by);
  const std::vector<std::string> known(found.begin(), found.end());
  for (const std::string& word : by) {
    if (found.contains(word)) continue;
    throw Error(ErrorCode::not_found,
                fmt::format("evaluate: unknown slice '{}'{} (known: {})", word,
                            did_you_mean(word, known), join(known, ", ")));
  }
}

void print_slices(const Console& console, const std::vector<train::Slice>& slices,
                  const std::vector<std::string>& by) {
  std::vector<Rated> rows;
  for (const train::Slice& slice : slices) {
    const bool wanted = std::ranges::count(by, slice.by) + std::ranges::count(by, "all") > 0;
    if (wanted) rows.push_back({slice.by + " " + slice.value, slice.summary});
  }
  if (!rows.empty()) console.write_out("\n{}", summary_table(rows));
}

void print_worst(const Console& console, const train::Evaluation& evaluation,
                 const train::Dataset& dataset) {
  console.write_out("\nworst of {} problems:\n", evaluation.results.size());
  for (const train::ProblemResult& r : evaluation.worst) {
    const bool is_doubtful = readings_of_chosen(r, dataset) == 1;
    console.write_out("{:>7}  {}\n         chosen {:>8}  {}{}\n         best   {:>8}  {}\n",
                      format_share(r.efficiency), to_string(dataset.problems[r.problem]),
                      format_seconds(r.chosen_seconds), r.chosen,
                      is_doubtful ? "  (one reading)" : "", format_seconds(r.best_seconds), r.best);
  }
}

void print_outside(const Console& console, const std::vector<train::Outside>& outside,
                   const train::Dataset& dataset) {
  if (outside.empty()) return;
  console.write_out("\nthe analytic ranker chose for {} problems, such as '{}': {}\n",
                    outside.size(), to_string(dataset.problems[outside[0].problem]),
                    outside[0].reason);
}

// ---- choices in a file ----

// Problems have blanks and commas, but no quotation marks.
std::string choices_text(const train::Dataset& dataset, const train::Evaluation& first,
                         const train::Evaluation* second) {
  std::string text = "problem,best,best_seconds,chosen,chosen_seconds,efficiency";
  if (second != nullptr) text += ",new_chosen,new_chosen_seconds,new_efficiency";
  for (std::size_t i = 0; i < first.results.size(); ++i) {
    const train::ProblemResult& r = first.results[i];
    text += fmt::format("\n\"{}\",{},{},{},{},{}", to_string(dataset.problems[r.problem]), r.best,
                        r.best_seconds, r.chosen, r.chosen_seconds, r.efficiency);
    if (second == nullptr) continue;
    const train::ProblemResult& n = second->results[i];
    text += fmt::format(",{},{},{}", n.chosen, n.chosen_seconds, n.efficiency);
  }
  return text + "\n";
}

void save_choices(const std::string& file, const train::Dataset& dataset,
                  const train::Evaluation& first, const train::Evaluation* second) {
  if (!file.empty()) write_file(file, choices_text(dataset, first, second));
}

Json fit_json(const std::optional<train::Fit>& fit) {
  if (!fit) return nullptr;
  return {{"rows", fit->rows}, {"unit", fit->unit}, {"r2", fit->r2}, {"rmse", fit->rmse}};
}

void print_fit(const Console& console, const std::optional<train::Fit>& fit) {
  if (!fit) return;
  console.write_out("\nfit: R2 {:.4f}, RMSE {:.4g} {}, over {} rows\n", fit->r2, fit->rmse,
                    fit->unit, fit->rows);
}

struct Rating {
  std::vector<Rated> rows;  // the model, then the ways of choosing that it is compared with
  train::Evaluation model;
  std::optional<train::Fit> fit;
  std::vector<train::Outside> outside;
};

// The best choice is 100% by definition, so its row shows only the number of problems.
Rating rate(const train::Dataset& dataset, const LoadedModel& loaded, const train::Oracle& oracle,
            bool offered) {
  const auto evaluated = [&](std::vector<train::ScoredRow> rows) {
    if (offered) train::keep_offered(dataset, loaded.target, rows);
    return train::evaluate(dataset.problems, rows, oracle);
  };
  Rating rating;
  rating.model = evaluated(train::score_model(dataset, loaded.target, loaded.model));
  rating.fit = train::fit_of(dataset, loaded.target, loaded.model);
  rating.outside = train::outside_of(dataset, loaded.target, loaded.model);
  std::vector<train::ScoredRow> best = train::score_random(dataset, kRandomSeed);
  for (train::ScoredRow& row : best) row.score = -row.seconds;
  rating.rows = {
      {"model", rating.model.summary},
      {"analytic", evaluated(train::score_analytic(dataset, loaded.target)).summary},
      {"random", evaluated(train::score_random(dataset, kRandomSeed)).summary},
      {"best", train::evaluate(dataset.problems, best, oracle).summary},
  };
  return rating;
}

int evaluate_one(const EvaluateCommand& command, const Console& console) {
  const LoadedModel loaded = load_model_folder(command.model);
  const train::Dataset dataset = dataset_of(command, loaded.model->manifest, command.data);
  const Rating rating =
      rate(dataset, loaded, oracle_of(command, loaded.model->manifest, dataset), command.offered);
  check_slices(rating.model.slices, command.by);
  save_choices(command.save, dataset, rating.model, nullptr);
  if (!console.json) {
    console.write_out("{}{}", threads_title(loaded.model->manifest, dataset),
                      summary_table(rating.rows));
    print_fit(console, rating.fit);
    print_slices(console, rating.model.slices, command.by);
    print_worst(console, rating.model, dataset);
    print_outside(console, rating.outside, dataset);
    return 0;
  }
  Json json = {{"model_folder", command.model},
               {"data_hash", dataset.hash},
               {"threads", thread_numbers(dataset)}};
  for (const Rated& row : rating.rows) json[row.who] = summary_json(row.summary);
  Json slices = Json::array();
  for (const train::Slice& slice : rating.model.slices) {
    slices.push_back(
        {{"by", slice.by}, {"value", slice.value}, {"summary", summary_json(slice.summary)}});
  }
  Json worst = Json::array();
  for (const train::ProblemResult& r : rating.model.worst) worst.push_back(to_json(r, dataset));
  json["fit"] = fit_json(rating.fit);
  json["slices"] = slices;
  json["worst"] = worst;
  json["outside"] = rating.outside.size();
  console.print_json(json);
  return 0;
}

// ---- two models ----

// Trains on the learned side what the old model was trained to predict, into the new one's folder.
void retrain(const EvaluateCommand& command, const LoadedModel& before, const Console& console) {
  EvaluateCommand learned = command;
  learned.unseen = false, learned.learned = true;
  const Manifest& manifest = before.model->manifest;
  const train::Dataset dataset = dataset_of(learned, manifest, command.data);
  train::TrainOptions options;
  options.version = kVersion;
  options.folds = kRetrainFolds;
  const auto goal = manifest.params.find("goal");
  if (goal != manifest.params.end()) options.goal = train::parse_goal(goal->second);
  if (manifest.quantity != ModelQuantity::rank) options.transform = manifest.transform;
  options.on_forest = [&](int, int, const train::Split&) { console.check_stop(); };
  const train::TrainResult result = train::train(dataset, before.target, options);
  save_model(command.compare.at(1), result.manifest, result.forest, ModelFile::gzip);
  if (console.json) return;
  console.write_out("trained {} on {} rows of {} problems, {} folds\n", command.compare.at(1),
                    result.manifest.rows, result.manifest.problems, kRetrainFolds);
}

Json comparison_json(const train::Comparison& c, const train::Dataset& dataset) {
  return {{"accepted", c.accepted}, {"mean", c.mean},
          {"p50", c.p50},           {"p10", c.p10},
          {"worst", c.worst},       {"worst_problem", to_string(dataset.problems[c.worst_problem])},
          {"agreeing", c.agreeing}, {"improved", c.improved},
          {"same", c.same},         {"degraded", c.degraded},
          {"reasons", c.reasons}};
}

void print_comparison(const Console& console, const train::Evaluation& before,
                      const train::Evaluation& after, const train::Comparison& c,
                      const train::Dataset& dataset) {
  const std::size_t problems = before.results.size();
  console.write_out("{}", summary_table({{"old", before.summary}, {"new", after.summary}}));
  console.write_out("\nagreement {}/{} ({}); {} improved, {} same, {} degraded\n", c.agreeing,
                    problems, format_share(double(c.agreeing) / double(problems)), c.improved,
                    c.same, c.degraded);
  const auto line = [&](const char* what, double old_one, double new_one) {
    console.write_out("{:<7} {} -> {} ({:+.2f}%)\n", what, format_share(old_one),
                      format_share(new_one), 100 * (new_one - old_one));
  };
  line("mean", before.summary.mean, after.summary.mean);
  line("median", before.summary.p50, after.summary.p50);
  line("P10", before.summary.p10, after.summary.p10);
  console.write_out("new / old: mean {:.4f}, P50 {:.4f}, P10 {:.4f}, worst {:.4f} ({})\n", c.mean,
                    c.p50, c.p10, c.worst, to_string(dataset.problems[c.worst_problem]));
  for (const std::string& reason : c.reasons) console.write_out("refused: {}\n", reason);
  if (c.accepted) console.write_out("accepted\n");
}

int compare_two(const EvaluateCommand& command, const Console& console) {
  const LoadedModel before = load_model_folder(command.compare.at(0));
  if (command.retrain) retrain(command, before, console);
  const LoadedModel after = load_model_folder(command.compare.at(1));
  const train::Dataset dataset = dataset_of(command, before.model->manifest, command.data);
  const train::Oracle oracle = oracle_of(command, before.model->manifest, dataset);
  const auto evaluated = [&](const LoadedModel& loaded) {
    return train::evaluate(dataset.problems,
                           train::score_model(dataset, loaded.target, loaded.model), oracle);
  };
  const train::Evaluation old_one = evaluated(before);
  const train::Evaluation new_one = evaluated(after);
  const train::Comparison c = train::compare(old_one, new_one, dataset.problems);
  save_choices(command.save, dataset, old_one, &new_one);
  if (console.json) {
    Json json = comparison_json(c, dataset);
    json["threads"] = thread_numbers(dataset);
    json["old"] = summary_json(old_one.summary);
    json["new"] = summary_json(new_one.summary);
    console.print_json(json);
  } else {
    console.write_out("{}", threads_title(before.model->manifest, dataset));
    print_comparison(console, old_one, new_one, c, dataset);
  }
  return c.accepted ? 0 : 1;
}

int evaluate(const EvaluateCommand& command, const Console& console) {
  if (command.model.empty() == command.compare.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "evaluate: give either --model DIR or --compare OLD NEW");
  }
  if (command.unseen && command.learned) {
    throw Error(ErrorCode::invalid_argument,
                "evaluate: --unseen and --learned are the two sides of the split, give one");
  }
  if (command.retrain && (command.compare.empty() || !command.unseen)) {
    throw Error(ErrorCode::invalid_argument,
                "evaluate: --retrain learns from one side of the split and compares on the other: "
                "give --compare OLD NEW and --unseen with it");
  }
  if (command.retrain && command.threads > 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("evaluate: --retrain learns from as many threads as OLD did, so that "
                            "--threads {} cannot be given with it",
                            command.threads));
  }
  return command.model.empty() ? compare_two(command, console) : evaluate_one(command, console);
}

}  // namespace

Action declare_evaluate(CLI::App& app) {
  auto command = std::make_shared<EvaluateCommand>();
  app.add_option("--model", command->model, "The model's folder");
  app.add_option("--compare", command->compare,
                 "Two models' folders: may NEW replace OLD? Exits with 1 when not")
      ->expected(2);
  add_data_option(app, command->data);
  app.add_option("--oracle", command->oracle,
                 "Other measurements, which say what the best kernel is; left out: --data says it")
      ->delimiter(',');
  app.add_option("--kernels", command->kernels,
                 "Judge the choice among kernels that one of these wildcards matches");
  add_integer_option(app, "--threads", command->threads, 0,
                     "Judge measurements of this many threads; 0: of as many as the model learned");
  app.add_flag("--unseen", command->unseen, "Only problems that are never learned from");
  app.add_flag("--learned", command->learned, "Only problems that may be learned from");
  app.add_flag(
      "--offered", command->offered,
      "With --model: only kernels are chosen that a dispatcher asks about for the problem; "
      "the best may be another one that was measured");
  app.add_flag("--retrain", command->retrain,
               "Train NEW first, as OLD was, on what may be learned from; with --compare --unseen");
  app.add_option("--save", command->save,
                 "Write the choices, a line for each problem, to this CSV file");
  app.add_option("--by", command->by,
                 "Slices to print: by dtype, pipeline and whatever else the operation tells "
                 "problems apart by, or all")
      ->delimiter(',');
  return [command](const Console& console) { return evaluate(*command, console); };
}

}  // namespace tessera::commands
