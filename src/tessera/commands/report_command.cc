// tessera report: a page about how well a model chooses, from measurements.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/learning.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct ReportCommand {
  std::string data;
  std::string model;
  std::string output;
  std::string op;
  std::string target;
  int threads = 0;
  bool unseen = false;
};

Json to_json(const train::Summary& s) {
  return {{"problems", s.problems}, {"mean", s.mean}, {"p50", s.p50},
          {"p10", s.p10},           {"min", s.min},   {"top1", s.top1},
          {"top3", s.top3},         {"top5", s.top5}, {"ndcg", s.ndcg}};
}

int report(const ReportCommand& command, const Console& console) {
  train::DatasetFilter filter;
  if (command.threads > 0) filter.threads = {command.threads};
  filter.drop_unseen = false;
  filter.only_unseen = command.unseen;
  if (!command.op.empty()) filter.op = parse_op(command.op);
  if (!command.target.empty()) filter.target = load_target(command.target).name;
  const measure::SweepData measured = measure::read_sweep_data(command.data);
  // The measurements determine the model, and the model determines the machine.
  const train::Dataset all = train::make_dataset(measured, filter);
  const Target row = load_target(command.target.empty() ? all.target : command.target);
  const std::shared_ptr<const Model> model = read_model(command.model, op_of(all), row);
  const Target target = command.target.empty() && model->machine ? *model->machine : row;
  filter.dtypes = model->manifest.dtypes;
  const train::Dataset data = train::make_dataset(measured, filter);
  const train::ReportData page =
      train::make_report(data, target, model, feature_gains(command.model, model->manifest));
  write_file_atomic(command.output, train::report_page(page));
  if (console.json) {
    console.print_json({{"output", command.output},
                        {"learned", to_json(page.learned.summary)},
                        {"analytic", to_json(page.analytic.summary)},
                        {"random", to_json(page.random.summary)}});
    return 0;
  }
  Table table({"choice", "problems", "mean", "P50", "P10", "min"});
  const auto add = [&](const char* choice, const train::Summary& s) {
    const auto percent = [](double share) { return fmt::format("{:.2f}%", 100 * share); };
    table.add({choice, fmt::format("{}", s.problems), percent(s.mean), percent(s.p50),
               percent(s.p10), percent(s.min)});
  };
  add("learned", page.learned.summary);
  add("analytic", page.analytic.summary);
  add("random", page.random.summary);
  console.write_out("{}written to {}\n", table.text(), command.output);
  return 0;
}

}  // namespace

Action declare_report(CLI::App& app) {
  auto command = std::make_shared<ReportCommand>();
  app.add_option("--data", command->data, "Measurements: a store, .parquet or .csv")->required();
  app.add_option("--model", command->model, "The folder of a model")->required();
  app.add_option("--output", command->output, "The page to write")->required();
  app.add_option("--op", command->op, "The operation; the only one of the data if left out");
  app.add_option("--target", command->target,
                 "The row of the machine measured; left out: the one that the model was made on");
  add_integer_option(app, "--threads", command->threads, 0,
                     "Of the measurements; 0: the only number there is");
  app.add_flag("--unseen", command->unseen, "Only problems that no model learns from");
  return [command](const Console& console) { return report(*command, console); };
}

}  // namespace tessera::commands
