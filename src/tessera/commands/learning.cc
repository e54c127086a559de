#include "tessera/commands/learning.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tessera/commands/format.h"

namespace tessera::commands {

void add_data_option(CLI::App& app, std::vector<std::string>& files) {
  app.add_option("--data", files, "What sweeps measured: stores, .csv or .parquet files")
      ->delimiter(',')
      ->required();
}

measure::SweepData read_all_data(const std::vector<std::string>& files) {
  std::vector<measure::SweepData> parts;
  for (const std::string& file : files) parts.push_back(measure::read_sweep_data(file));
  return train::joined(parts);
}

LoadedModel load_model_folder(const std::string& folder) {
  auto model = std::make_shared<const Model>(load_model(folder));
  Target target = model->machine ? *model->machine : load_target(model->manifest.target);
  return {folder, std::move(model), std::move(target)};
}

std::shared_ptr<const Model> read_model(const std::string& folder, Op op, const Target& target) {
  const ModelUse use{to_string(op), target.name, family_of(op).features()};
  return std::make_shared<const Model>(load_model(folder, use));
}

std::string format_share(double share) { return fmt::format("{:.2f}%", 100 * share); }

Json summary_json(const train::Summary& s) {
  Json regrets = Json::object();
  for (std::size_t i = 0; i < train::kTop.size(); ++i) {
    regrets[fmt::format("top{}", train::kTop[i])] = {{"mean", s.mean_regret[i]},
                                                     {"worst", s.worst_regret[i]}};
  }
  return {{"problems", s.problems}, {"mean", s.mean},   {"p50", s.p50},   {"p10", s.p10},
          {"min", s.min},           {"top1", s.top1},   {"top3", s.top3}, {"top5", s.top5},
          {"ndcg", s.ndcg},         {"regret", regrets}};
}

std::string summary_table(const std::vector<Rated>& rows) {
  Table table({"", "mean", "P50", "P10", "min", "top-1", "top-3", "top-5", "NDCG", "regret 1", "3",
               "5", "10", "problems"});
  for (const Rated& row : rows) {
    const train::Summary& s = row.summary;
    std::vector<std::string> cells = {row.who};
    for (const double share : {s.mean, s.p50, s.p10, s.min, s.top1, s.top3, s.top5}) {
      cells.push_back(format_share(share));
    }
    cells.push_back(fmt::format("{:.4f}", s.ndcg));
    for (const double regret : s.mean_regret) cells.push_back(format_share(regret));
    cells.push_back(std::to_string(s.problems));
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace tessera::commands
