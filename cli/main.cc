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
#include "options.h"
#include "signals.h"
#include "tessera/tools.hpp"

namespace tessera::cli {
namespace {

constexpr int kErrorStatus = 1;
constexpr int kUsageStatus = 2;

constexpr std::array kCommands = {
    Command{"run", "choose, build and run kernels for problems",
            "tessera run gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu --verify",
            declare_run},
    Command{"matmul", "multiply the matrices of two .npy files",
            "tessera matmul a.npy b.npy --output c.npy", declare_matmul},
    Command{"demo", "run BERT-base's layers and compare with the libraries found here",
            "tessera demo", declare_demo},
    Command{"explain", "say which kernel is chosen, and why each other one is not",
            "tessera explain gemm m=4096 n=4096 k=64 dtype=bf16 --target sm90a", declare_explain},
    Command{"list", "list kernels, preselected sets or element types",
            "tessera list --datatype bf16 --layout rcr --tile 128x*x64 --target sm90a",
            declare_list},
    Command{"show", "show what a kernel's name says, or the source it stands for",
            "tessera show gemm_fp32_rrr_packb_240x480x256_1x1x1_12x32x1_avx512 --source",
            declare_show},
    Command{"generate", "write kernel sources and their index into a folder",
            "tessera generate --op gemm --datatype fp16 --layout rcr --target avx512 "
            "--preselected fp16_rcr_essential --output-dir kernels --jobs 4",
            declare_generate},
    Command{"verify", "build kernels and compare their results with the fp64 reference",
            "tessera verify --preselected fp32_rcr_essential", declare_verify},
    Command{"bench", "measure kernels, peers, dispatch, ranking, compilation or the machine",
            "tessera bench gemm --shapes square --dtype fp32 --threads 1 --peers onednn,openblas\n"
            "  tessera bench rank --target sm90a --candidates 4608",
            declare_bench},
    Command{
        "sweep", "measure kernels on problems into a store, to learn from",
        "tessera sweep --problems square --kernels 'gemm_fp32_rrr_packb_*' --store sweep.sqlite "
        "--budget 10m",
        declare_sweep},
    Command{"data", "describe, check, merge, export or import what sweeps measured",
            "tessera data merge all.sqlite part1.sqlite part2.sqlite", declare_data},
    Command{"train", "make a model of what sweeps measured",
            "tessera train --data sweep.sqlite --dtype bf16 --output model", declare_train},
    Command{"evaluate", "say how good a model's choices are, or whether it may replace another",
            "tessera evaluate --model model --data sweep.sqlite --unseen --by shape",
            declare_evaluate},
    Command{"predict", "say what a model thinks of a problem's kernels",
            "tessera predict --model model gemm m=128 n=3072 k=768 --top 3", declare_predict},
    Command{"search", "search all legal kernels for a problem, and measure the best found",
            "tessera search gemm m=512 n=512 k=512 --strategy evolution --budget 200 --top 5",
            declare_search},
    Command{"tune", "measure problems on this machine and let the winners be chosen",
            "tessera tune --budget 30m --dtype fp32,bf16", declare_tune},
    Command{"report", "write a page for a browser about how well a model chooses",
            "tessera report --data sweep.sqlite --model models/avx512_fp32 --output page.html",
            declare_report},
    Command{"cache", "list, verify, clear or weigh the kernel cache",
            "tessera cache clear --pattern 'gemm_fp32_*'", declare_cache},
    Command{"pack", "write built kernels into one portable file, or list such a file",
            "tessera pack --preselected fp32_rcr_essential --output kernels.pack", declare_pack},
    Command{"problems", "print a frozen list of problems to learn from, as a shape file",
            "tessera problems wide --target avx512 --unseen", declare_problems},
    Command{"targets", "list the machines that kernels can be made for, or show one",
            "tessera targets avx512", declare_targets},
    Command{"doctor", "say what was found on this machine, what is missing and how to get it",
            "tessera doctor", declare_doctor},
    Command{"completion", "print a completion script for bash, zsh or fish",
            "source <(tessera completion bash)", declare_completion},
    Command{"version", "print the version", "tessera version", declare_version},
};

struct Row {
  CLI::App* app;
  Action action;
};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<Row> declare_all(CLI::App& app, Output& output) {
  std::vector<Row> rows;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->footer(fmt::format("Example:\n  {}\n", command.example));
    Action action = command.declare(*sub);
    for (CLI::Option* option : sub->get_options()) option->check(check_not_empty);
    sub->add_flag("--json", output.json, "Print one JSON object on stdout");
    rows.push_back({sub, std::move(action)});
  }
  return rows;
}

int report(bool json, const Error& error, int status) {
  if (json) {
    print_json({{"error", error_json(error)}});
  } else {
    print_error(error);
  }
  return status;
}

int refuse(bool json, ErrorCode code, const std::string& message) {
  return report(json, Error(code, message), kUsageStatus);
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

int dispatch(int argc, char** argv, bool json) {
  // An unknown command is found before CLI11 runs, because CLI11's message would not name the
  // nearest command.
  if (argc > 1 && argv[1][0] != '-') {
    const std::vector<std::string> names = command_names();
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      return refuse(json, ErrorCode::not_found,
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
  Output output;
  std::vector<Row> rows = declare_all(app, output);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    std::ostringstream text;
    const int status = app.exit(success, text, text);
    put_out(text.str());
    return status;
  } catch (const CLI::ParseError& error) {
    return refuse(json, ErrorCode::invalid_argument, usage_message(app, error));
  }
  for (const Row& row : rows) {
    if (row.app->parsed()) return row.action(output);
  }
  put_err(app.help());
  return kUsageStatus;
}

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

}  // namespace tessera::cli

int main(int argc, char** argv) {
  using namespace tessera::cli;
  tessera::open_standard_streams();
  prepare_for_signals();
  // --json is searched before parsing, so that a usage error is an object too.
  const bool json = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  tessera::set_log_sink([](tessera::LogLevel level, std::string_view sentence) {
    if (level == tessera::LogLevel::warning) write_err("tessera: note: {}\n", sentence);
  });
  int status = 0;
  try {
    status = dispatch(argc, argv, json);
  } catch (...) {
    status = report(json, current_error(), kErrorStatus);
  }
  const std::string failure = stdout_failure();
  if (failure.empty()) return status;
  write_err("tessera: not everything could be written to stdout: {}\n", failure);
  return std::max(status, kErrorStatus);
}
