// tessera problems: the frozen lists of problems to learn from, as a shape file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct ProblemsCommand {
  std::string set;
  std::string target;
  std::string op = usual_op();
  TypeWords types;
  bool unseen = false;
};

int print_problems(const ProblemsCommand& command, const Console& console) {
  const Target target = resolve_target(command.target);
  const ProblemSide side = command.unseen ? ProblemSide::unseen : ProblemSide::learned;
  const std::vector<Problem> problems =
      family_of(parse_op(command.op)).draw(command.set, side, target, command.types);
  if (console.json) {
    Json lines = Json::array();
    for (const Problem& problem : problems) lines.push_back(to_string(problem));
    console.print_json({{"set", command.set},
                        {"unseen", command.unseen},
                        {"target", target.name},
                        {"problems", lines}});
    return 0;
  }
  console.write_out("# {} {} problems for {}\n", problems.size(),
                    command.unseen ? command.set + " unseen" : command.set, target.name);
  for (const Problem& problem : problems) console.write_out("{}\n", to_string(problem));
  return 0;
}

}  // namespace

Action declare_problems(CLI::App& app) {
  auto command = std::make_shared<ProblemsCommand>();
  app.add_option("set", command->set, fmt::format("One of {}", join(problem_set_names(), ", ")))
      ->required();
  app.add_option("--op", command->op, "The operation")->capture_default_str();
  add_target_option(app, command->target);
  app.add_option("--dtype", command->types.dtype, "The element type; left out: the usual one");
  app.add_option("--layout", command->types.layout, "The layout; left out: the usual one");
  app.add_flag("--unseen", command->unseen, "The list for scoring, which is never learned from");
  return [command](const Console& console) { return print_problems(*command, console); };
}

}  // namespace tessera::commands
