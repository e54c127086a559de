// tessera predict: what a model says of a problem's kernels.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "learning.h"
#include "options.h"

namespace tessera::cli {
namespace {

struct PredictCommand {
  std::string model;
  ProblemOptions problems;
  int top = 5;
};

// The decision by this model alone: no other ranker stands in for it.
Decision decide(const Problem& problem, const LoadedModel& loaded) {
  ChooseOptions options;
  options.threads = loaded.model->manifest.threads;
  options.rankers = {make_model_ranker(loaded.model, family_of(problem).extract)};
  options.explain = true;
  Decision decision = choose(problem, loaded.target, options);
  if (decision.source == ChoiceSource::learned) return decision;
  throw Error(ErrorCode::unsupported,
              fmt::format("predict: '{}': {}", to_string(problem), decision.why));
}

int predict(const PredictCommand& command, const Output& output) {
  const LoadedModel loaded = load_model_folder(command.model);
  Json predictions = Json::array();
  for (const Problem& problem : read_problems(command.problems)) {
    const Decision decision = decide(problem, loaded);
    Json kernels = Json::array();
    if (!output.json) fmt::print("{}\n", to_string(problem));
    for (const Considered& each : decision.considered) {
      if (!each.refusal.empty() || std::ssize(kernels) == command.top) break;
      kernels.push_back({{"kernel", each.name}, {"predicted_seconds", each.predicted_seconds}});
      if (output.json) continue;
      fmt::print("{:>10}  {}\n",
                 each.predicted_seconds > 0 ? format_seconds(each.predicted_seconds) : "",
                 each.name);
    }
    predictions.push_back({{"problem", to_string(problem)}, {"kernels", kernels}});
  }
  if (output.json) print_json({{"predictions", predictions}});
  return 0;
}

}  // namespace

Action declare_predict(CLI::App& app) {
  auto command = std::make_shared<PredictCommand>();
  app.add_option("--model", command->model, "The model's folder")->required();
  add_problem_options(app, command->problems);
  add_integer_option(app, "--top", command->top, 1, "This many kernels of each problem");
  return [command](const Output& output) { return predict(*command, output); };
}

}  // namespace tessera::cli
