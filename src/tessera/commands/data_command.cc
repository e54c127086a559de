// tessera data: shows and exchanges the measurements of sweeps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct DataCommand {
  std::string what;
  std::vector<std::string> files;
  std::string prefer;
  bool strict = false;
  measure::ForeignRun foreign;
  std::string dtype, layout;
  std::vector<std::string> fields;
};

[[noreturn]] void refuse(const std::string& words) {
  throw Error(ErrorCode::invalid_argument, "data " + words);
}

const std::string& only_file(const DataCommand& command) {
  if (command.files.size() == 1) return command.files.front();
  refuse(fmt::format("{} takes one file, got {}", command.what, command.files.size()));
}

measure::Conflict conflict_of(const DataCommand& command) {
  if (command.prefer.empty()) return measure::Conflict::refuse;
  if (command.prefer == "newest") return measure::Conflict::prefer_newest;
  refuse(fmt::format("{}: --prefer knows 'newest' only, got '{}'", command.what, command.prefer));
}

bool is_parquet(const std::string& file) { return fs::path(file).extension() == ".parquet"; }
bool is_csv(const std::string& file) { return fs::path(file).extension() == ".csv"; }

Json to_json(const std::vector<measure::Share>& shares) {
  Json json = Json::object();
  for (const measure::Share& share : shares) json[share.word] = share.rows;
  return json;
}

void print_shares(const Console& console, const char* label,
                  const std::vector<measure::Share>& shares) {
  constexpr std::size_t kMost = 8;
  for (std::size_t i = 0; i < std::min(shares.size(), kMost); ++i) {
    console.write_out("{:<10} {:>9}  {}\n", i == 0 ? label : "", shares[i].rows, shares[i].word);
  }
  if (shares.size() > kMost) console.write_out("{:<10} {:>9}  more\n", "", shares.size() - kMost);
}

int describe(const DataCommand& command, const Console& console) {
  const measure::Description d = measure::describe(measure::read_sweep_data(only_file(command)));
  if (console.json) {
    console.print_json({{"file", command.files.front()},
                        {"rows", d.rows},
                        {"problems", d.problems},
                        {"kernels", d.kernels},
                        {"clock_readings", d.clock_readings},
                        {"least_seconds", d.least_seconds},
                        {"most_seconds", d.most_seconds},
                        {"outcomes", to_json(d.outcomes)},
                        {"machines", to_json(d.machines)},
                        {"types", to_json(d.types)},
                        {"pipelines", to_json(d.pipelines)},
                        {"runs", to_json(d.runs)}});
    return 0;
  }
  console.write_out("{} rows: {} kernels on {} problems, {} to {}; {} readings of clocks\n", d.rows,
                    d.kernels, d.problems, format_seconds(d.least_seconds),
                    format_seconds(d.most_seconds), d.clock_readings);
  print_shares(console, "outcomes", d.outcomes);
  print_shares(console, "machines", d.machines);
  print_shares(console, "types", d.types);
  print_shares(console, "pipelines", d.pipelines);
  print_shares(console, "runs", d.runs);
  return 0;
}

int check(const DataCommand& command, const Console& console) {
  const std::vector<measure::Finding> findings =
      measure::check(measure::read_sweep_data(only_file(command)));
  Json json = Json::array();
  std::int64_t total = 0;
  for (const measure::Finding& finding : findings) {
    total += finding.count;
    json.push_back({{"what", finding.what},
                    {"count", finding.count},
                    {"rule", finding.rule},
                    {"examples", finding.examples}});
    if (console.json) continue;
    console.write_out("{:>7} {} ({})\n", finding.count, finding.what, finding.rule);
    for (const std::string& example : finding.examples) console.write_out("        {}\n", example);
  }
  if (console.json) {
    console.print_json({{"file", command.files.front()}, {"findings", json}, {"total", total}});
  }
  return command.strict && total > 0 ? 1 : 0;
}

Json to_json(const measure::MergeCount& count, const std::string& store) {
  return {{"store", store},
          {"added", count.added},
          {"identical", count.identical},
          {"replaced", count.replaced},
          {"older", count.older}};
}

void print_count(const measure::MergeCount& count, const std::string& store,
                 const Console& console) {
  if (console.json) {
    console.print_json(to_json(count, store));
  } else {
    console.write_out(
        "{} rows added to {}, {} were there, {} replaced by newer ones, {} older ones left\n",
        count.added, store, count.identical, count.replaced, count.older);
  }
}

// All inputs are read before the first one is added, so that a file that cannot be read changes
// nothing.
int merge(const DataCommand& command, const Console& console) {
  if (command.files.size() < 2) refuse("merge takes the store to make and those to add to it");
  const measure::Conflict conflict = conflict_of(command);
  std::vector<measure::SweepPart> parts;
  for (std::size_t i = 1; i < command.files.size(); ++i) {
    parts.push_back({measure::read_sweep_data(command.files[i]), command.files[i]});
  }
  const std::string& store = command.files.front();
  print_count(measure::add_to_store(store, parts, conflict), store, console);
  return 0;
}

int export_data(const DataCommand& command, const Console& console) {
  if (command.files.size() != 2) refuse("export takes a store and a .csv or .parquet file");
  const std::string& to = command.files[1];
  const measure::SweepData data = measure::sorted(measure::read_sweep_data(command.files[0]));
  const measure::ColumnTable table = measure::to_columns(data);
  if (is_parquet(to)) {
    measure::write_parquet(table, to);
  } else if (is_csv(to)) {
    write_file_atomic(to, measure::to_csv(table));
  } else {
    refuse(fmt::format("export: '{}' must end in .csv or .parquet", to));
  }
  const auto bytes = static_cast<double>(fs::file_size(to));
  if (console.json) {
    console.print_json({{"file", to}, {"rows", table.rows}, {"bytes", bytes}});
  } else {
    console.write_out("{} rows written to {} ({})\n", table.rows, to, format_bytes(bytes));
  }
  return 0;
}

// "direction=backward_data"
void add_field(ProblemWords& fields, const std::string& text) {
  const std::size_t equal = text.find('=');
  if (equal == 0 || equal == std::string::npos || equal + 1 == text.size()) {
    refuse(fmt::format("import: --field is NAME=VALUE such as wave=2x2x1, got '{}'", text));
  }
  fields[text.substr(0, equal)] = text.substr(equal + 1);
}

measure::ForeignRun foreign_run(const DataCommand& command) {
  measure::ForeignRun run = command.foreign;
  for (const std::string& field : command.fields) add_field(run.fields, field);
  if (!command.dtype.empty()) run.fields["dtype"] = command.dtype;
  if (!command.layout.empty()) run.fields["layout"] = command.layout;
  return run;
}

void add_notes(measure::ForeignNotes& all, const measure::ForeignNotes& more) {
  all.failed += more.failed;
  all.mended += more.mended;
  all.unpadded += more.unpadded;
  all.merged += more.merged;
}

void print_notes(const measure::ForeignNotes& notes, const Console& console) {
  const auto say = [&](std::int64_t count, std::string_view words) {
    if (count > 0) console.write_out("{} {}\n", count, words);
  };
  say(notes.failed, "rows of runs that failed are kept as failed");
  say(notes.mended, "mem kernels' padding flags were mended: that pipeline always pads");
  say(notes.unpadded, "kernels do not pad; names here do not tell them from those that do");
  say(notes.merged, "rows had a faster one of the same kernel and problem, which was kept");
}

// All files are read before the store is touched.
int import_data(const DataCommand& command, const Console& console) {
  if (command.files.size() < 2) refuse("import takes a store and the files to add to it");
  const measure::ForeignRun run = foreign_run(command);
  const measure::Conflict conflict = conflict_of(command);
  std::vector<measure::SweepPart> parts;
  measure::ForeignNotes notes;
  for (std::size_t i = 1; i < command.files.size(); ++i) {
    measure::Imported file = measure::read_import(command.files[i], run);
    add_notes(notes, file.notes);
    parts.push_back({std::move(file.data), command.files[i]});
  }
  const measure::MergeCount count = measure::add_to_store(command.files.front(), parts, conflict);
  Json json = to_json(count, command.files.front());
  json.update({{"failed", notes.failed},
               {"mended", notes.mended},
               {"unpadded", notes.unpadded},
               {"merged", notes.merged}});
  if (console.json) {
    console.print_json(json);
  } else {
    print_count(count, command.files.front(), console);
    print_notes(notes, console);
  }
  return 0;
}

struct DataRow {
  std::string_view name;
  int (*run)(const DataCommand&, const Console&);
};
constexpr std::array kActions = {DataRow{"describe", describe}, DataRow{"check", check},
                                 DataRow{"merge", merge}, DataRow{"export", export_data},
                                 DataRow{"import", import_data}};

int data(const DataCommand& command, const Console& console) {
  std::vector<std::string> names;
  for (const DataRow& row : kActions) {
    if (row.name == command.what) return row.run(command, console);
    names.emplace_back(row.name);
  }
  throw Error(ErrorCode::not_found,
              fmt::format("data: unknown action '{}'{} (known: {})", command.what,
                          did_you_mean(command.what, names), join(names, ", ")));
}

}  // namespace

Action declare_data(CLI::App& app) {
  auto command = std::make_shared<DataCommand>();
  app.add_option("what", command->what, "describe, check, merge, export or import")->required();
  app.add_option(
      "files", command->files,
      "FILE; OUT IN...; STORE FILE; import: STORE FILE..., of Tessera's .csv and .parquet, "
      "or of other tools: rows in JSON, CSV or Parquet, and the CK Tile Dispatcher's "
      "benchmark results, logs and CSV. Elsewhere a file is a store unless it ends in "
      ".csv or .parquet");
  app.add_option("--prefer", command->prefer,
                 "newest: of two measurements of the same, instead of an error");
  app.add_flag("--strict", command->strict, "check: exit with 1 when anything was found");
  measure::ForeignRun& foreign = command->foreign;
  foreign.op = usual_op();
  app.add_option("--device-name", foreign.device,
                 "import of another tool's rows: where they were measured");
  app.add_option("--target", foreign.target, "import of another tool's rows: that machine's row");
  add_integer_option(app, "--threads", foreign.threads, 1,
                     "import of another tool's rows: of CPU kernels");
  app.add_option("--op", foreign.op, "import: where neither rows nor kernels' names say")
      ->capture_default_str();
  app.add_option("--dtype", command->dtype, "import: where rows do not say");
  app.add_option("--layout", command->layout, "import: where rows do not say");
  app.add_option("--field", command->fields,
                 "import: a field where rows do not have it, NAME=VALUE: direction=backward_data, "
                 "wave=2x2x1, warp_tile=32x32x16")
      ->allow_extra_args(false);
  app.add_option("--kernels", foreign.kernels,
                 "import: only kernels whose names match, '*' stands for anything");
  return [command](const Console& console) { return data(*command, console); };
}

}  // namespace tessera::commands
