// tessera predict: a model's predictions for a problem's kernels.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/format.h"
#include "tessera/commands/learning.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"
#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

struct PredictCommand {
  std::string model;
  ProblemOptions problems;
  int threads = 0;
  int top = 5;
};

// The decision by this model alone, without other rankers.
Decision decide(const Problem& problem, const LoadedModel& loaded, int threads) {
  ChooseOptions options;
  options.threads = threads > 0 ? threads : loaded.model->manifest.threads;
  options.rankers = {make_model_ranker(loaded.model, family_of(problem).extract)};
  options.explain = true;
  Decision decision = choose(problem, loaded.target, options);
  if (decision.source == ChoiceSource::learned) return decision;
  throw Error(ErrorCode::unsupported,
              fmt::format("predict: '{}': {}", to_string(problem), decision.why));
}

int predict(const PredictCommand& command, const Console& console) {
  const LoadedModel loaded = load_model_folder(command.model);
  JsonRows rows(console, "predictions");
  const auto predict_one = [&](const Problem& problem) {
    const Decision decision = decide(problem, loaded, command.threads);
    Json kernels = Json::array();
    if (!console.json) console.write_out("{}\n", to_string(problem));
    for (const Considered& each : decision.considered) {
      if (!each.refusal.empty() || std::ssize(kernels) == command.top) break;
      kernels.push_back({{"kernel", each.name}, {"predicted_seconds", each.predicted_seconds}});
      if (console.json) continue;
      console.write_out("{:>10}  {}\n",
                        each.predicted_seconds > 0 ? format_seconds(each.predicted_seconds) : "",
                        each.name);
    }
    if (console.json) rows.add({{"problem", to_string(problem)}, {"kernels", kernels}});
  };
  return end_rows(rows, run_through(console, read_problems(command.problems), predict_one),
                  console);
}

}  // namespace

Action declare_predict(CLI::App& app) {
  auto command = std::make_shared<PredictCommand>();
  app.add_option("--model", command->model, "The model's folder")->required();
  add_problem_options(app, command->problems);
  add_integer_option(
      app, "--threads", command->threads, 0,
      "Threads of a CPU; 0: as many as the model learned, or all where it learned several numbers");
  add_integer_option(app, "--top", command->top, 1, "This many kernels of each problem");
  return [command](const Console& console) { return predict(*command, console); };
}

}  // namespace tessera::commands
