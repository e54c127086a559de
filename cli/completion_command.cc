// tessera completion: scripts for shells, made from the table of commands and their options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "tessera/tools.hpp"

namespace tessera::cli {
namespace {

struct Words {
  std::string command;
  std::string summary;
  std::vector<std::string> options;
};

std::vector<Words> all_words() {
  std::vector<Words> all;
  for (const Command& command : all_commands()) {
    CLI::App app;
    command.declare(app);
    Words words{std::string(command.name), std::string(command.summary), {"--json"}};
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) words.options.push_back("--" + name);
    }
    all.push_back(std::move(words));
  }
  return all;
}

// Quotes a text for zsh and fish.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string command_list(const std::vector<Words>& all) {
  std::vector<std::string> names;
  for (const Words& words : all) names.push_back(words.command);
  return join(names, " ");
}

// Completes options after '-', otherwise file names.
std::string bash_script() {
  const std::vector<Words> all = all_words();
  std::string script =
      "_tessera() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n";
  script += fmt::format("    COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n", command_list(all));
  script +=
      "    return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n";
  for (const Words& words : all) {
    script += fmt::format("    {}) words=\"{}\" ;;\n", words.command, join(words.options, " "));
  }
  script +=
      "  esac\n"
      "  case \"$word\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _tessera tessera\n";
  return script;
}

std::string zsh_script() {
  const std::vector<Words> all = all_words();
  std::string script = "#compdef tessera\n_tessera() {\n  local -a commands\n  commands=(\n";
  for (const Words& words : all) {
    script += fmt::format("    {}\n", quoted(words.command + ":" + words.summary));
  }
  script +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case ${words[2]} in\n";
  for (const Words& words : all) {
    script += fmt::format("    {}) compadd -- {} ;;\n", words.command, join(words.options, " "));
  }
  script += "  esac\n  _files\n}\ncompdef _tessera tessera\n";
  return script;
}

std::string fish_script() {
  std::string script;
  for (const Words& words : all_words()) {
    script += fmt::format("complete -c tessera -n __fish_use_subcommand -f -a {} -d {}\n",
                          words.command, quoted(words.summary));
    for (const std::string& option : words.options) {
      script += fmt::format("complete -c tessera -n '__fish_seen_subcommand_from {}' -l {}\n",
                            words.command, option.substr(2));
    }
  }
  return script;
}

struct ShellRow {
  std::string_view name;
  std::string (*script)();
};
constexpr std::array kShells = {ShellRow{"bash", bash_script}, ShellRow{"zsh", zsh_script},
                                ShellRow{"fish", fish_script}};

int completion(const std::string& shell, const Console& console) {
  std::vector<std::string> names;
  for (const ShellRow& row : kShells) {
    names.emplace_back(row.name);
    if (row.name != shell) continue;
    if (console.json) {
      console.print_json({{"shell", shell}, {"script", row.script()}});
    } else {
      console.write_out("{}", row.script());
    }
    return 0;
  }
  throw Error(ErrorCode::not_found,
              fmt::format("completion: unknown shell '{}'{} (known: {})", shell,
                          did_you_mean(shell, names), join(names, ", ")));
}

}  // namespace

Action declare_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")->required();
  return [shell](const Console& console) { return completion(*shell, console); };
}

}  // namespace tessera::cli
