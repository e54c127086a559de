// tessera problems: the frozen lists of problems to learn from, as a shape file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "options.h"
#include "output.h"

namespace tessera::cli {
namespace {

struct ProblemsCommand {
  std::string set;
  std::string target;
  std::string dtype = "fp32";
  std::string layout = "rcr";
  bool unseen = false;
};

int print_problems(const ProblemsCommand& command, const Output& output) {
  const Target target = resolve_target(command.target);
  const auto list = command.unseen ? measure::unseen_problems : measure::problem_set;
  const std::vector<Problem> problems =
      list(command.set, target, parse_dtype(command.dtype), parse_gemm_layout(command.layout));
  if (output.json) {
    Json lines = Json::array();
    for (const Problem& problem : problems) lines.push_back(to_string(problem));
    print_json({{"set", command.set},
                {"unseen", command.unseen},
                {"target", target.name},
                {"problems", lines}});
    return 0;
  }
  write_out("# {} {} problems for {}\n", problems.size(),
            command.unseen ? command.set + " unseen" : command.set, target.name);
  for (const Problem& problem : problems) write_out("{}\n", to_string(problem));
  return 0;
}

}  // namespace

Action declare_problems(CLI::App& app) {
  auto command = std::make_shared<ProblemsCommand>();
  std::vector<std::string> names;
  for (const std::string_view name : measure::problem_set_names()) names.emplace_back(name);
  app.add_option("set", command->set, fmt::format("One of {}", join(names, ", ")))->required();
  add_target_option(app, command->target);
  app.add_option("--dtype", command->dtype, "The element type of A")->capture_default_str();
  app.add_option("--layout", command->layout, "rcr, rrr, crr or ccr")->capture_default_str();
  app.add_flag("--unseen", command->unseen, "The list for scoring, which is never learned from");
  return [command](const Output& output) { return print_problems(*command, output); };
}

}  // namespace tessera::cli
