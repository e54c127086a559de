// The table of subcommands, which the command line and run_command() share.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "tessera/commands/console.h"

namespace CLI {
class App;
}

namespace tessera::commands {

// Runs a subcommand after its options are read; returns the exit status.
using Action = std::function<int(const Console&)>;

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view example;
  // Declares the options on `app`. The returned action owns the variables of the options.
  Action (*declare)(CLI::App& app);
};

// The library's subcommands, in the order of the help text.
std::span<const Command> library_commands();

// Declares the options of a command on `app`, so that no value may be empty.
Action declare(const Command& command, CLI::App& app);

Action declare_run(CLI::App& app);
Action declare_explain(CLI::App& app);
Action declare_list(CLI::App& app);
Action declare_show(CLI::App& app);
Action declare_generate(CLI::App& app);
Action declare_export(CLI::App& app);
Action declare_verify(CLI::App& app);
Action declare_sweep(CLI::App& app);
Action declare_data(CLI::App& app);
Action declare_train(CLI::App& app);
Action declare_evaluate(CLI::App& app);
Action declare_predict(CLI::App& app);
Action declare_search(CLI::App& app);
Action declare_tune(CLI::App& app);
Action declare_report(CLI::App& app);
Action declare_cache(CLI::App& app);
Action declare_record(CLI::App& app);
Action declare_pack(CLI::App& app);
Action declare_problems(CLI::App& app);
Action declare_targets(CLI::App& app);
Action declare_doctor(CLI::App& app);
Action declare_version(CLI::App& app);

}  // namespace tessera::commands
