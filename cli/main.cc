// The tessera command: finds the subcommand, runs it, and turns errors into one sentence.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"
#include "signals.h"
#include "terminal.h"
#include "tessera/tools.hpp"

namespace tessera::cli {
namespace {

constexpr int kErrorStatus = 1;
constexpr int kUsageStatus = 2;

// A command of the program alone.
struct OwnCommand {
  std::string_view after;  // the command that stands before it in the help text
  Command command;
};

constexpr std::array kOwnCommands = {
    OwnCommand{"run", Command{"matmul", "multiply the matrices of two .npy files",
                              "tessera matmul a.npy b.npy --output c.npy", declare_matmul}},
    OwnCommand{
        "matmul",
        Command{"demo", "run a layer and a convolution and compare with the libraries found here",
                "tessera demo", declare_demo}},
    OwnCommand{
        "verify",
        Command{
            "bench", "measure kernels, peers, dispatch, ranking, compilation or the machine",
            "tessera bench gemm --shapes square --dtype fp32 --threads 1 --peers onednn,openblas\n"
            "  tessera bench rank --target sm90a --candidates 4608",
            declare_bench}},
    OwnCommand{"doctor", Command{"completion", "print a completion script for bash, zsh or fish",
                                 "source <(tessera completion bash)", declare_completion}},
};

struct Row {
  CLI::App* app;
  Action action;
};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) names.emplace_back(command.name);
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<Row> declare_all(CLI::App& app, Console& console) {
  std::vector<Row> rows;
  for (const Command& command : all_commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->footer(fmt::format("Example:\n  {}\n", command.example));
    Action action = declare(command, *sub);
    sub->add_flag("--json", console.json, "Print one JSON object on stdout");
    rows.push_back({sub, std::move(action)});
  }
  return rows;
}

int report(const Console& console, const Error& error, int status) {
  if (console.json) {
    console.print_json({{"error", error_json(error)}});
  } else {
    console.print_error(error);
  }
  return status;
}

int refuse(const Console& console, ErrorCode code, const std::string& message) {
  return report(console, Error(code, message), kUsageStatus);
}

// CLI11's message; for an unknown option, the nearest name is added.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& where = chosen.empty() ? app : *chosen.front();
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    return fmt::format("{}: {}", where.get_name(), error.what());
  }
  const std::vector<std::string> rest = app.remaining(true);
  const std::string word = rest.empty() ? std::string() : rest.front();
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> known = option_names(where);
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return fmt::format("{0}: '{1}' stands after the command: tessera {0} {1}", where.get_name(),
                       word);
  }
  return fmt::format("{}: unexpected argument '{}'{}", where.get_name(), word,
                     did_you_mean(name, known));
}

// Errors of usage go to `refusing`, whose form is known before options are read.
int dispatch(int argc, char** argv, const Console& refusing) {
  // An unknown command is found before CLI11 runs, because CLI11's message would not name the
  // nearest command.
  if (argc > 1 && argv[1][0] != '-') {
    const std::vector<std::string> names = command_names();
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      return refuse(refusing, ErrorCode::not_found,
                    fmt::format("unknown command '{}'{} (tessera --help lists them)", argv[1],
                                did_you_mean(argv[1], names)));
    }
  }

  CLI::App app("Tessera declares, generates, compiles, caches, chooses and runs tile kernels.",
               "tessera");
  app.set_version_flag("--version", "tessera " + std::string(kVersion));
  app.footer(
      "Example:\n  tessera run gemm m=512 n=512 k=512 --verify\n\n"
      "tessera COMMAND --help explains a command.\n");
  app.require_subcommand(0, 1);
  Console console = terminal(false);
  std::vector<Row> rows = declare_all(app, console);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    std::ostringstream text;
    const int status = app.exit(success, text, text);
    put_out(text.str());
    return status;
  } catch (const CLI::ParseError& error) {
    return refuse(refusing, ErrorCode::invalid_argument, usage_message(app, error));
  }
  for (const Row& row : rows) {
    if (row.app->parsed()) return row.action(console);
  }
  put_err(app.help());
  return kUsageStatus;
}

}  // namespace

std::vector<Command> all_commands() {
  std::vector<Command> all(library_commands().begin(), library_commands().end());
  for (Command& command : all) {
    if (command.name == "doctor") command.declare = declare_doctor;
  }
  for (const OwnCommand& own : kOwnCommands) {
    const auto before = std::find_if(all.begin(), all.end(),
                                     [&](const Command& each) { return each.name == own.after; });
    all.insert(before + 1, own.command);
  }
  return all;
}

}  // namespace tessera::cli

int main(int argc, char** argv) {
  using namespace tessera::cli;
  tessera::open_standard_streams();
  prepare_for_signals();
  // --json is searched before parsing, so that a usage error is an object too.
  const bool json = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  tessera::set_log_sink([](tessera::LogLevel level, std::string_view sentence) {
    if (level == tessera::LogLevel::warning) put_err(fmt::format("tessera: note: {}\n", sentence));
  });
  const Console console = terminal(json);
  int status = 0;
  try {
    status = dispatch(argc, argv, console);
  } catch (...) {
    status = report(console, current_error(), kErrorStatus);
  }
  const std::string failure = stdout_failure();
  if (failure.empty()) return status;
  console.write_err("tessera: not everything could be written to stdout: {}\n", failure);
  return std::max(status, kErrorStatus);
}
