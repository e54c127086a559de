// The commands of the program: the library's, and its own.
#pragma once

#include <vector>

#include "tessera/commands/console.h"
#include "tessera/commands/table.h"

namespace tessera::cli {

using namespace commands;

// Every subcommand, in the order of the help text.
std::vector<Command> all_commands();

Action declare_matmul(CLI::App& app);
Action declare_demo(CLI::App& app);
Action declare_bench(CLI::App& app);
Action declare_doctor(CLI::App& app);  // the library's, and the peers
Action declare_completion(CLI::App& app);

}  // namespace tessera::cli
