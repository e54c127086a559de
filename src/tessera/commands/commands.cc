#include "tessera/commands/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "tessera/commands/json_options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

const Command& find_command(std::string_view name) {
  std::vector<std::string> names;
  for (const Command& command : library_commands()) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  throw Error(ErrorCode::not_found, fmt::format("unknown command '{}'{} (known: {})", name,
                                                did_you_mean(name, names), join(names, ", ")));
}

constexpr std::size_t kMostShown = 200;  // bytes of options in a sentence

Json parse_options(std::string_view name, std::string_view text) {
  if (text.empty()) return Json::object();
  check_json_depth(text, fmt::format("{}: the options", name));
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::parse_error,
                fmt::format("{}: the options must be JSON, and are none from byte {} of {} on: {}",
                            name, error.byte, text.size(), shortened(text, kMostShown)));
  } catch (const Json::out_of_range&) {
    throw Error(ErrorCode::parse_error,
                fmt::format("{}: the options hold a number that is too large for any option: {}",
                            name, shortened(text, kMostShown)));
  }
}

// Collects the output in `json`. What a command says on stderr is in the JSON too.
Console collecting_console(const CommandCallbacks& callbacks, std::string& json) {
  const auto show = [&callbacks](const std::string& label, Plain) -> ProgressView {
    return {[&callbacks, label](std::size_t done, std::size_t total, std::string_view what) {
              if (callbacks.progress) callbacks.progress(label, done, total, what);
            },
            [] {}};
  };
  return {.json = true,
          .put_out = [&json](std::string_view text) { json += text; },
          .put_err = [](std::string_view) {},
          .show = show,
          .stop = [&callbacks] { return callbacks.stop && callbacks.stop(); },
          .before_stoppable = [] {}};
}

}  // namespace

CommandResult run_command(std::string_view name, std::string_view options_json,
                          const CommandCallbacks& callbacks) {
  const Command& command = find_command(name);
  CommandResult result;
  try {
    CLI::App app("", std::string(name));
    app.set_help_flag();
    const Action action = declare(command, app);
    read_json_options(app, parse_options(name, options_json));
    const Console console = collecting_console(callbacks, result.json);
    console.check_stop();
    result.status = action(console);
  } catch (const std::exception&) {
    throw current_error();
  }
  result.json.erase(result.json.find_last_not_of('\n') + 1);
  return result;
}

}  // namespace tessera::commands
