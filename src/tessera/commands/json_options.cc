#include "tessera/commands/json_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace tessera::commands {
namespace {

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& words) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", app.get_name(), words));
}

// "output-dir", or a positional word's name.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names = option.get_lnames();
  if (option.get_positional()) names.push_back(option.get_single_name());
  return names;
}

CLI::Option& find_option(CLI::App& app, const std::string& key) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> known;
  for (CLI::Option* option : app.get_options()) {
    for (const std::string& each : names_of(*option)) {
      if (each == name) return *option;
      known.push_back(each);
    }
  }
  refuse_option(app, fmt::format("unknown option '{}'{} (known: {})", key,
                                 did_you_mean(name, known), join(known, ", ")));
}

// Texts and numbers as one would type them.
std::string word_of(const CLI::App& app, const std::string& key, const Json& value) {
  if (value.is_number()) return value.dump();
  if (!value.is_string()) {
    refuse_option(app, fmt::format("'{}' must be a text, a number or a list of these, got {}", key,
                                   value.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  std::string word = value.get<std::string>();
  if (word.empty()) refuse_option(app, fmt::format("'{}' must not be empty", key));
  return word;
}

void give_flag(const CLI::App& app, CLI::Option& flag, const std::string& key, const Json& value) {
  if (!value.is_boolean()) {
    refuse_option(app, fmt::format("'{}' must be true or false, got {}", key,
                                   value.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  if (value.get<bool>()) flag.add_result(flag.get_flag_value(flag.get_lnames().front(), ""));
}

// Values are given to the option itself, not as words of a line, so that a value that begins with
// '-' is no option. A text is split at commas where the command line does so, a list is not.
void give_value(const CLI::App& app, CLI::Option& option, const std::string& key,
                const Json& value) {
  if (option.get_items_expected_max() == 0) return give_flag(app, option, key, value);
  option.allow_extra_args(false);
  if (!value.is_array()) {
    option.add_result(word_of(app, key, value));
    return;
  }
  option.delimiter('\0');
  for (const Json& each : value) option.add_result(word_of(app, key, each));
}

}  // namespace

void read_json_options(CLI::App& app, const Json& options) {
  if (!options.is_object()) {
    refuse_option(app, fmt::format("options are a JSON object, got {}",
                                   options.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  for (const auto& [key, value] : options.items()) {
    give_value(app, find_option(app, key), key, value);
  }
  try {
    app.parse(std::vector<std::string>());
  } catch (const CLI::ParseError& error) {
    refuse_option(app, error.what());
  }
}

}  // namespace tessera::commands
