// tessera explain, list, show and generate: about kernels, without building any.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/emulation.h"
#include "tessera/commands/explain_range.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"
#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

struct ExplainCommand {
  ProblemOptions problems;
  std::string target;
  ChooseOptions choose;
  bool all = false;
};

// A problem with a range has no other way to give fields than its line.
void check_fields_in_line(const ProblemOptions& given, const std::string& line) {
  if (given.shapes.empty() && given.dtype.empty() && given.layout.empty() && given.set.empty()) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("explain: a range takes none of --shapes, --dtype, --layout and --set; "
                          "write the fields into the line '{}'",
                          line));
}

int explain(const ExplainCommand& command, const Console& console) {
  const Target target = resolve_target(command.target);
  ChooseOptions options = command.choose;
  options.explain = true;
  options.rankers = {make_library_ranker(shared_model_library(environment("TESSERA_MODELS"))),
                     make_analytic_ranker(), make_first_legal_ranker()};
  if (const std::string line = join(command.problems.words, " "); has_range(line)) {
    check_fields_in_line(command.problems, line);
    return explain_range(read_ranged_problem(line), target, options, console);
  }
  JsonRows rows(console, "decisions");
  const auto each = [&](const Problem& problem) {
    const Decision decision = choose(problem, target, options);
    if (console.json) {
      rows.add(commands::to_json(problem, target, decision));
    } else {
      console.put_out(tessera::explain(
          options.batch_invariant ? any_batch(problem).own : problem, target, decision,
          command.all ? ExplainDetail::everything : ExplainDetail::summary));
    }
  };
  return end_rows(rows, run_through(console, read_problems(command.problems), each), console);
}

struct ListCommand {
  KernelOptions kernels;
  bool sets = false;
  bool receipts = false;
  bool dtypes = false;
};

int print_words(const char* key, const std::vector<std::string>& words, const Console& console) {
  if (console.json) {
    console.print_json({{key, words}});
  } else {
    for (const std::string& word : words) console.write_out("{}\n", word);
  }
  return 0;
}

int print_receipts(const Console& console) {
  Json rows = Json::array();
  for (const Receipt& receipt : all_receipts()) {
    rows.push_back({{"name", receipt.name}, {"number", receipt.number}, {"about", receipt.about}});
    if (console.json) continue;
    console.write_out("{:<16} {:>3}  {}\n", receipt.name, receipt.number, receipt.about);
  }
  if (console.json) console.print_json({{"receipts", rows}});
  return 0;
}

int list(const ListCommand& command, const Console& console) {
  if (command.sets) {
    return print_words("sets", family_of(parse_op(command.kernels.op)).preselected_names(),
                       console);
  }
  if (command.receipts) return print_receipts(console);
  if (command.dtypes) {
    std::vector<std::string> dtypes;
    for (DType dtype : all_dtypes()) dtypes.emplace_back(to_string(dtype));
    return print_words("dtypes", dtypes, console);
  }
  std::vector<std::string> names;
  const Target target = resolve_target(command.kernels.target);
  for (const KernelSpec& spec : select_kernels(command.kernels, target).specs) {
    names.push_back(name_of(spec));
  }
  return print_words("kernels", names, console);
}

struct ShowCommand {
  std::string name;
  std::string target;
  bool source = false;
  bool assembly = false;
};

// A kernel is shown for the target at the end of its name, unless --target gives the user's own
// row.
int show(const ShowCommand& command, const Console& console) {
  const KernelSpec spec = find_kernel(command.name);
  const Target target = load_target(command.target.empty() ? spec.target : command.target);
  if (command.assembly) return show_assembly(spec, target, console);
  const Verdict legal = family_of(spec).is_legal(spec, target);
  const std::string source = command.source ? emit_legal(spec, target).text : "";

  Json json = {{"kernel", command.name},
               {"legal", static_cast<bool>(legal)},
               {"reason", legal.reason},
               {"spec", Json::parse(to_json(spec))}};
  if (command.source) json["source"] = source;
  if (console.json) {
    console.print_json(json);
  } else if (command.source) {
    console.write_out("{}", source);
  } else {
    console.write_out("{}\n{}: {}\n", json["spec"].dump(2), target.name,
                      legal ? "legal" : legal.reason);
  }
  return 0;
}

struct GenerateCommand {
  KernelOptions kernels;
  std::vector<std::string> problems;
  std::string source = std::string(kNativeSource);
  std::string folder;
  int jobs = 0;
};

// The problems of --problem, which decide the operation where they are given.
std::vector<Problem> problems_of(const GenerateCommand& command) {
  std::vector<Problem> problems;
  for (const std::string& line : command.problems) {
    problems.push_back(parse_problem(line));
    family_of(problems.back()).validate(problems.back());
    if (op_of(problems.back()) == op_of(problems.front())) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("generate: all problems must be of one operation, got {} and {}",
                            to_string(op_of(problems.front())), to_string(op_of(problems.back()))));
  }
  return problems;
}

// Each problem gives the one of our own kernels that has the least estimate, or, with a source of
// instances, all instances that serve it and pass the filters.
KernelSet set_for(const std::vector<Problem>& problems, const InstanceSource* source,
                  const KernelOptions& filters, const Target& target) {
  KernelSet set{.name = "problems", .specs = {}};
  for (const Problem& problem : problems) {
    KernelSet more{.name = set.name, .specs = {}};
    if (source == nullptr) {
      more = KernelSetBuilder(set.name, target).for_problem(problem).build();
    } else {
      more.specs = instances_for(*source, problem, target);
    }
    narrow(filters, target, "serves " + to_string(problem), more);
    std::move(more.specs.begin(), more.specs.end(), std::back_inserter(set.specs));
  }
  return set;
}

int generate(const GenerateCommand& command, const Console& console) {
  const Target target = resolve_target(command.kernels.target);
  const std::vector<Problem> problems = problems_of(command);
  Op op = problems.empty() ? parse_op(command.kernels.op) : op_of(problems.front());
  if (problems.empty() && !command.kernels.names.empty()) {
    op = op_of(find_kernel(command.kernels.names.front()));
  }
  const InstanceSource* const source = find_instance_source(family_of(op), command.source);
  const KernelSet set = !problems.empty()   ? set_for(problems, source, command.kernels, target)
                        : source == nullptr ? select_kernels(command.kernels, target)
                                            : select_instances(*source, command.kernels, target);
  GenerateResult result;
  {
    Progress progress(console, "generate", Plain::lines);
    const auto step = [&](std::size_t done, std::size_t total, const std::string& name) {
      progress.step(done, total, name);
      console.check_stop();
    };
    result = source == nullptr
                 ? tessera::generate(set, target, command.folder, command.jobs, step)
                 : generate_instances(*source, set, target, command.folder, command.jobs, step);
  }
  if (console.json) {
    console.print_json({{"target", target.name},
                        {"output_dir", command.folder},
                        {"written", result.written},
                        {"errors", result.errors}});
  } else {
    for (const std::string& error : result.errors) console.write_err("tessera: {}\n", error);
    console.write_out("{} kernels for {} written to {}\n", result.written, target.name,
                      command.folder);
  }
  return result.errors.empty() ? 0 : 1;
}

}  // namespace

Action declare_explain(CLI::App& app) {
  auto command = std::make_shared<ExplainCommand>();
  add_problem_options(app, command->problems);
  add_target_option(app, command->target);
  add_threads_option(app, command->choose.threads);
  app.add_option("--force", command->choose.pinned, "This kernel, or an error that says why not");
  app.add_flag("--deterministic", command->choose.deterministic,
               "Only kernels whose bits do not depend on the number of threads");
  app.add_flag("--batch-invariant", command->choose.batch_invariant,
               "The same bits for a row, an image or a sequence in every batch");
  app.add_flag("--all", command->all,
               "Every kernel by name, not the next five and how many each rule refuses");
  return [command](const Console& console) { return explain(*command, console); };
}

Action declare_list(CLI::App& app) {
  auto command = std::make_shared<ListCommand>();
  add_kernel_options(app, command->kernels);
  app.add_flag("--sets", command->sets, "The preselected sets instead");
  app.add_flag("--receipts", command->receipts, "What frameworks need instead");
  app.add_flag("--dtypes", command->dtypes, "The element types instead");
  return [command](const Console& console) { return list(*command, console); };
}

Action declare_show(CLI::App& app) {
  auto command = std::make_shared<ShowCommand>();
  app.add_option("kernel", command->name, "The kernel's name")->required();
  add_target_option(app, command->target);
  auto* const source =
      app.add_flag("--source", command->source, "The source that is compiled for it");
  app.add_flag("--asm", command->assembly,
               "For an AMD GPU: its instructions, counts, registers and LDS cycles")
      ->excludes(source);
  return [command](const Console& console) { return show(*command, console); };
}

Action declare_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  app.add_option("kernel", command->kernels.names, "Kernel names; filters if left out");
  add_kernel_options(app, command->kernels);
  app.add_option("--problem", command->problems,
                 "For this problem, \"gemm m=128 n=3072 k=768\"; may be given several times. Of "
                 "instances all that serve it and pass the filters")
      ->allow_extra_args(false);
  app.add_option("--source", command->source,
                 "native, or cktile: instances for the headers of AMD's CK Tile (docs/amd.md)")
      ->capture_default_str();
  app.add_option("--output-dir", command->folder, "Where sources and index go")->required();
  add_jobs_option(app, command->jobs);
  return [command](const Console& console) { return generate(*command, console); };
}

}  // namespace tessera::commands
