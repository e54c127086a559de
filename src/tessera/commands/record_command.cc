// tessera record: what a model asked, written down while it ran.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/record_page.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct RecordCommand {
  std::string what;
  std::vector<std::string> files;
  std::string target;
  bool shapes = false;
  int top = 0;
  std::vector<std::string> bench;
  std::string output;
};

[[noreturn]] void refuse_record(const std::string& words) {
  throw Error(ErrorCode::invalid_argument, "record " + words);
}

std::string count_words(std::int64_t count, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

// The record of all files, without other targets than the one that is asked for.
Record record_of(const RecordCommand& command) {
  Record record = read_records(command.files);
  if (command.target.empty()) return record;
  std::erase_if(record.rows, [&](const RecordRow& row) {
    return record.targets.at(static_cast<std::size_t>(row.target)).name != command.target;
  });
  if (!record.rows.empty()) return record;
  std::vector<std::string> known;
  for (const Target& target : record.targets) known.push_back(target.name);
  throw Error(ErrorCode::not_found,
              fmt::format("record: nothing was asked of target '{}'{} (its targets: {})",
                          command.target, did_you_mean(command.target, known), join(known, ", ")));
}

const Target& target_of(const Record& record, const AskedProblem& problem) {
  return record.targets.at(static_cast<std::size_t>(problem.asked.target));
}

double total_seconds(const std::vector<AskedProblem>& problems) {
  double total = 0;
  for (const AskedProblem& problem : problems) total += problem.predicted_seconds;
  return total;
}

Json origins_json(const Taken& taken) {
  Json json = Json::object();
  for (const auto& [origin, count] : taken.from) json[std::string(to_string(origin))] = count;
  return json;
}

Json taken_json(const Taken& taken) {
  return {{"kernel", taken.row.kernel},
          {"source", to_string(taken.row.source)},
          {"why", taken.row.why},
          {"predicted_seconds", taken.row.predicted_seconds},
          {"calls", taken.row.calls},
          {"processes", taken.processes},
          {"misses", taken.row.misses},
          {"from", origins_json(taken)},
          {"choose_seconds", taken.row.choose_seconds},
          {"ready_seconds", taken.row.ready_seconds},
          {"compile_seconds", taken.compile_seconds}};
}

Json problem_json(const Record& record, const AskedProblem& problem) {
  Json kernels = Json::array();
  for (const Taken& taken : problem.taken) kernels.push_back(taken_json(taken));
  return {{"problem", problem.asked.line},
          {"target", target_of(record, problem).name},
          {"machine", problem.asked.machine},
          {"threads", problem.asked.threads},
          {"deterministic", problem.asked.deterministic},
          {"batch_invariant", problem.asked.batch_invariant},
          {"calls", problem.calls},
          {"predicted_seconds", problem.predicted_seconds},
          {"kernels", kernels}};
}

std::string origins_text(const Taken& taken) {
  std::vector<std::string> words;
  for (const auto& [origin, count] : taken.from) {
    words.push_back(fmt::format("{} {}", count, to_string(origin)));
  }
  return join(words, ", ");
}

std::size_t shown_of(const RecordCommand& command, const std::vector<AskedProblem>& problems) {
  const auto top = static_cast<std::size_t>(command.top);
  return top == 0 ? problems.size() : std::min(top, problems.size());
}

// A problem that was asked with several options is one line.
int show_shapes(const std::vector<AskedProblem>& problems, std::size_t shown,
                const Console& console) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string& line = problems[i].asked.line;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  if (console.json) {
    console.print_json({{"problems", lines}});
  } else {
    for (const std::string& line : lines) console.write_out("{}\n", line);
  }
  return 0;
}

void print_problems(const Record& record, const std::vector<AskedProblem>& problems,
                    std::size_t shown, const Console& console) {
  Table table({"calls", "share", "problem", "kernel", "by", "predicted", "from", "ready in"});
  const double total = total_seconds(problems);
  for (std::size_t i = 0; i < shown; ++i) {
    const AskedProblem& problem = problems[i];
    const Taken& taken = problem.taken.front();
    const auto misses = static_cast<double>(std::max<std::int64_t>(taken.row.misses, 1));
    table.add({fmt::format("{}", problem.calls),
               fmt::format("{:.1f}%", total > 0 ? 100 * problem.predicted_seconds / total : 0),
               problem.asked.line, taken.row.kernel.empty() ? "none" : taken.row.kernel,
               std::string(to_string(taken.row.source)),
               format_seconds(taken.row.predicted_seconds), origins_text(taken),
               format_seconds((taken.row.choose_seconds + taken.row.ready_seconds) / misses)});
  }
  std::int64_t calls = 0;
  for (const AskedProblem& problem : problems) calls += problem.calls;
  console.write_out("{}{} problems of {} processes, {} calls, {} predicted for all of them\n",
                    shown == 0 ? "" : table.text(), problems.size(), record.runs.size(), calls,
                    format_seconds(total));
}

int show(const RecordCommand& command, const Console& console) {
  const Record record = record_of(command);
  const std::vector<AskedProblem> problems = asked_problems(record);
  const std::size_t shown = shown_of(command, problems);
  if (command.shapes) return show_shapes(problems, shown, console);
  if (!console.json) {
    print_problems(record, problems, shown, console);
    return 0;
  }
  Json runs = Json::array();
  for (const RecordRun& run : record.runs) {
    runs.push_back({{"process", run.name}, {"version", run.version}, {"started", run.started}});
  }
  Json rows = Json::array();
  for (std::size_t i = 0; i < shown; ++i) rows.push_back(problem_json(record, problems[i]));
  console.print_json(
      {{"processes", runs}, {"predicted_seconds", total_seconds(problems)}, {"problems", rows}});
  return 0;
}

// All files are read before anything is written.
int merge(const RecordCommand& command, const Console& console) {
  if (command.files.size() < 2) {
    refuse_record(fmt::format("merge takes the record to make and those to add to it, got {} file",
                              command.files.size()));
  }
  std::vector<Record> records;
  for (std::size_t i = 1; i < command.files.size(); ++i) {
    records.push_back(read_record(command.files[i]));
  }
  const std::string& file = command.files.front();
  add_to_record(file, records);
  const Record all = read_record(file);
  std::int64_t calls = 0;
  for (const RecordRow& row : all.rows) calls += row.calls;
  const std::size_t problems = asked_problems(all).size();
  if (console.json) {
    console.print_json({{"record", file},
                        {"processes", all.runs.size()},
                        {"problems", problems},
                        {"calls", calls}});
  } else {
    console.write_out("{} now has {} problems of {} processes, {} calls\n", file, problems,
                      all.runs.size(), calls);
  }
  return 0;
}

// What the best legal kernel would take by today's rankers, beside the one that was taken.
struct Better {
  std::string kernel;  // empty: nothing can be chosen, for the reason `why`
  std::string why;
  ChoiceSource source = ChoiceSource::analytic;  // whose numbers the seconds are
  std::size_t legal = 0;
  double best_seconds = 0;
  double taken_seconds = 0;  // 0: it is not among the legal kernels, or none was taken
  double gain() const {
    return best_seconds > 0 && taken_seconds > 0 ? taken_seconds / best_seconds : 0;
  }
};

const Considered* find_considered(const Decision& decision, const std::string& name) {
  for (const Considered& one : decision.considered) {
    if (one.refusal.empty() && one.name == name) return &one;
  }
  return nullptr;
}

// Where the ranker that decides has no times, the estimate's are taken for both.
Better better_of(const AskedProblem& problem, const Target& target) try {
  ChooseOptions options = choose_options(problem.asked);
  options.explain = true;
  const Decision now = choose(problem.asked.problem, target, options);
  const std::string& name = problem.taken.front().row.kernel;
  Better better{.kernel = now.name, .why = {}, .source = now.source};
  for (const Considered& one : now.considered) better.legal += one.refusal.empty() ? 1 : 0;
  const Considered* const taken = find_considered(now, name);
  if (taken != nullptr && taken->source == now.source && taken->predicted_seconds > 0 &&
      now.predicted_seconds > 0) {
    better.best_seconds = now.predicted_seconds;
    better.taken_seconds = taken->predicted_seconds;
    return better;
  }
  const Problem computed =
      problem.asked.batch_invariant ? any_batch(problem.asked.problem).own : problem.asked.problem;
  const auto seconds = [&](const KernelSpec& spec) {
    return estimate(spec, computed, target, problem.asked.threads).seconds;
  };
  better.source = ChoiceSource::analytic;
  better.best_seconds = seconds(now.spec);
  if (taken != nullptr) better.taken_seconds = seconds(taken->spec);
  return better;
} catch (const Error& error) {
  return {.kernel = {}, .why = error.what()};
}

Json better_json(const AskedProblem& problem, const Better& better) {
  if (better.kernel.empty()) return {{"kernel", nullptr}, {"why", better.why}};
  const auto calls = static_cast<double>(problem.calls);
  Json json = {{"kernel", better.kernel},
               {"source", to_string(better.source)},
               {"legal", better.legal},
               {"best_seconds", better.best_seconds}};
  json["taken_seconds"] = better.taken_seconds > 0 ? Json(better.taken_seconds) : Json(nullptr);
  json["gain"] = better.gain() > 0 ? Json(better.gain()) : Json(nullptr);
  json["saved_seconds"] = better.gain() > 0
                              ? Json(calls * (better.taken_seconds - better.best_seconds))
                              : Json(nullptr);
  return json;
}

std::string better_text(const AskedProblem& problem, const Better& better) {
  const Taken& taken = problem.taken.front();
  if (better.kernel.empty()) return "nothing can be chosen now: " + better.why;
  if (better.kernel == taken.row.kernel) {
    return fmt::format("it is the best of {} legal kernels ({})", better.legal,
                       to_string(better.source));
  }
  if (better.gain() <= 0) {
    return fmt::format(
        "{} is the best of {} legal kernels now, {} ({}); the one that was taken is "
        "not among them",
        better.kernel, better.legal, format_seconds(better.best_seconds), to_string(better.source));
  }
  return fmt::format("{} may be {:.2f}x as fast: {} for {} ({}){}", better.kernel, better.gain(),
                     format_seconds(better.best_seconds), format_seconds(better.taken_seconds),
                     to_string(better.source),
                     taken.row.source == ChoiceSource::tuned
                         ? "; the one that was taken is the fastest that was measured"
                         : "");
}

void print_explained(const Record& record, const AskedProblem& problem, const Better& better,
                     const Console& console) {
  console.write_out(
      "{}\n  {} calls for {}{}{}{}\n", problem.asked.line, problem.calls,
      target_of(record, problem).name,
      problem.asked.threads > 0 ? fmt::format(", {} threads", problem.asked.threads) : "",
      problem.asked.deterministic ? ", deterministic" : "",
      problem.asked.batch_invariant ? ", batch invariant" : "");
  for (const Taken& taken : problem.taken) {
    console.write_out("  {} ({}): {}\n", taken.row.kernel.empty() ? "no kernel" : taken.row.kernel,
                      to_string(taken.row.source), taken.row.why);
    const std::string compiling =
        taken.compile_seconds > 0
            ? fmt::format(", {} of that compiling", format_seconds(taken.compile_seconds))
            : "";
    console.write_out("    {} in {} ({}): {} of choosing, {} until ready{}\n",
                      count_words(taken.row.misses, "miss", "misses"),
                      count_words(taken.processes, "process", "processes"), origins_text(taken),
                      format_seconds(taken.row.choose_seconds),
                      format_seconds(taken.row.ready_seconds), compiling);
  }
  console.write_out("  {}\n", better_text(problem, better));
}

int explain_record(const RecordCommand& command, const Console& console) {
  const Record record = record_of(command);
  const std::vector<AskedProblem> problems = asked_problems(record);
  Json rows = Json::array();
  double compiling = 0, saved = 0;
  const std::size_t shown = shown_of(command, problems);
  for (std::size_t i = 0; i < shown; ++i) {
    console.check_stop();
    const AskedProblem& problem = problems[i];
    const Better better = better_of(problem, target_of(record, problem));
    for (const Taken& taken : problem.taken) compiling += taken.compile_seconds;
    if (better.gain() > 0) {
      saved += static_cast<double>(problem.calls) * (better.taken_seconds - better.best_seconds);
    }
    if (!console.json) {
      print_explained(record, problem, better, console);
      continue;
    }
    Json row = problem_json(record, problem);
    row["best"] = better_json(problem, better);
    rows.push_back(std::move(row));
  }
  if (console.json) {
    console.print_json(
        {{"problems", rows}, {"compile_seconds", compiling}, {"saved_seconds", saved}});
  } else {
    console.write_out("{} were spent on compiling; better choices may save {} of {}\n",
                      format_seconds(compiling), format_seconds(saved),
                      format_seconds(total_seconds(problems)));
  }
  return 0;
}

int report_record(const RecordCommand& command, const Console& console) {
  if (command.output.empty()) refuse_record("report needs --output, the page to write");
  const Record record = record_of(command);
  const Benched benched = read_benches(command.bench);
  const std::vector<AskedProblem> problems = asked_problems(record);
  const std::vector<TimedProblem> timed = timed_problems(problems, benched);
  write_file_atomic(command.output, record_page("What " + join(command.files, ", ") + " asked",
                                                record, timed, benched));
  std::size_t measured = 0, beside = 0;
  double total = 0;
  for (const TimedProblem& one : timed) {
    measured += one.is_measured ? 1 : 0;
    beside += one.peer_seconds > 0 ? 1 : 0;
    total += one.total();
  }
  if (console.json) {
    console.print_json({{"output", command.output},
                        {"problems", timed.size()},
                        {"measured", measured},
                        {"beside_peer", beside},
                        {"seconds", total}});
  } else {
    console.write_out("{} problems, {} of them measured, {} beside a peer, written to {}\n",
                      timed.size(), measured, beside, command.output);
  }
  return 0;
}

int run(const RecordCommand& command, const Console& console) {
  if (command.what == "show") return show(command, console);
  if (command.what == "merge") return merge(command, console);
  if (command.what == "explain") return explain_record(command, console);
  if (command.what == "report") return report_record(command, console);
  const std::vector<std::string> known = {"show", "merge", "explain", "report"};
  throw Error(ErrorCode::not_found,
              fmt::format("record: unknown action '{}'{} (known: {})", command.what,
                          did_you_mean(command.what, known), join(known, ", ")));
}

}  // namespace

Action declare_record(CLI::App& app) {
  auto command = std::make_shared<RecordCommand>();
  app.add_option("action", command->what, "show, merge, explain or report")->required();
  app.add_option("file", command->files,
                 "Records, which TESSERA_RECORD makes; of merge the first one is made or added to")
      ->required();
  app.add_option("--target", command->target, "What was asked of this target alone");
  app.add_flag("--shapes", command->shapes, "Of show: the problems alone, as bench reads them");
  add_integer_option(app, "--top", command->top, 0,
                     "Of show and explain: this many, by their share of the time; 0: all");
  app.add_option("--bench", command->bench,
                 "Of report: what 'tessera bench OP --shapes FILE --json' printed");
  app.add_option("-o,--output", command->output, "Of report: the page to write");
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
