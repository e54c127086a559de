// Functions that the commands about learning share: data of several files, models in folders,
// tables of metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace CLI {
class App;
}

namespace tessera::commands {

void add_data_option(CLI::App& app, std::vector<std::string>& files);
measure::SweepData read_all_data(const std::vector<std::string>& files);

// A model, and the machine that its features are computed for.
struct LoadedModel {
  std::string folder;
  std::shared_ptr<const Model> model;
  Target target;
};
LoadedModel load_model_folder(const std::string& folder);
// The same; throws unless the model was made for this operation on this target.
std::shared_ptr<const Model> read_model(const std::string& folder, Op op, const Target& target);

// "98.52%".
std::string format_share(double share);

Json summary_json(const train::Summary& summary);

// One line of the table of metrics: who chose, and how well.
struct Rated {
  std::string who;
  train::Summary summary;
};
std::string summary_table(const std::vector<Rated>& rows);

}  // namespace tessera::commands
