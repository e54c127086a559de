// tessera pack: writes built kernels to one portable file, and lists such a file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <set>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/recorded.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

constexpr const char* kAllEssential = "all_essential";

struct PackCommand {
  std::vector<std::string> targets;  // empty: TESSERA_TARGET, or this machine
  std::vector<std::string> preselected;
  std::vector<std::string> names;
  std::string shapes;
  std::vector<std::string> records;
  std::vector<std::string> ranges;
  bool every = false;
  int best = 1;
  std::string output;
  std::string list;
  std::string check;
  int jobs = 0;
};

// The kernels of one target in the pack.
struct Part {
  Target target;
  std::vector<Source> sources;
};

// What the pack is to hold, and how it was found.
struct Parts {
  std::vector<Part> parts;
  std::vector<std::string> notes;
  std::optional<RecordedKernels> recorded;  // without its kernels
  std::size_t count() const {
    std::size_t count = 0;
    for (const Part& part : parts) count += part.sources.size();
    return count;
  }
};

constexpr std::int64_t kDay = 86'400;  // seconds

// "2026-11-30, 12 days ago".
std::string age_text(std::int64_t made) {
  if (made == 0) return "on an unknown day";
  const std::int64_t days = std::max<std::int64_t>(0, (std::time(nullptr) - made) / kDay);
  return fmt::format("on {}, {} day{} ago", jit::date_of(made), days, days == 1 ? "" : "s");
}

Json maker_json(const jit::PackMaker& maker) {
  return {{"version", maker.version}, {"made", maker.made}, {"compilers", maker.compilers}};
}

void print_maker(const jit::Pack& pack, const Console& console) {
  const jit::PackMaker& maker = pack.maker();
  if (maker.version.empty()) {
    console.write_out("made by {}\n", to_string(maker));
    return;
  }
  console.write_out("made by Tessera {} {}\n", maker.version, age_text(maker.made));
  for (const auto& [target, compiler] : maker.compilers) {
    console.write_out("{} by {}\n", target, compiler);
  }
}

int list(const std::string& file, const Console& console) {
  const jit::Pack pack(file);
  Json entries = Json::array();
  Table table({"kernel", "target", "key", "size"});
  for (const jit::PackEntry& entry : pack.entries()) {
    entries.push_back({{"kernel", entry.name},
                       {"target", entry.target},
                       {"source_key", entry.source_key},
                       {"bytes", entry.bytes}});
    table.add({entry.name, entry.target, entry.source_key.substr(0, 12),
               format_bytes(static_cast<double>(entry.bytes))});
  }
  if (console.json) {
    Json json = {{"file", file}};
    json.update(maker_json(pack.maker()));
    json["entries"] = entries;
    console.print_json(json);
  } else {
    console.write_out("{}{} kernels in {}\n", entries.empty() ? "" : table.text(), entries.size(),
                      file);
    print_maker(pack, console);
  }
  return 0;
}

std::vector<Target> resolve_targets(const PackCommand& command) {
  std::vector<Target> targets;
  if (command.targets.empty()) targets.push_back(resolve_target(""));
  for (const std::string& name : command.targets) targets.push_back(resolve_target(name));
  std::set<std::string> names;
  for (const Target& target : targets) {
    jit::compiler_for(target, "pack");  // throws for a target without a compiler
    if (!names.insert(target.name).second) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("pack: each target is named once, got '{}' twice", target.name));
    }
  }
  return targets;
}

// The kernels of a set, in whichever family has it.
std::vector<KernelSpec> preselected_kernels(const std::string& set, const Target& target) {
  std::vector<std::string> known;
  for (const Family* family : all_families()) {
    for (std::string& name : family->preselected_names()) {
      if (name == set) return family->preselected(set, target);
      known.push_back(std::move(name));
    }
  }
  throw Error(ErrorCode::not_found,
              fmt::format("pack: unknown preselected set '{}'{} (tessera list --sets lists them)",
                          set, did_you_mean(set, known)));
}

// What ships of every operation, over types and layouts.
std::vector<KernelSpec> shipped_kernels(const Target& target) {
  std::vector<KernelSpec> specs = essential_kernels(all_families(), target);
  if (!specs.empty()) return specs;
  throw Error(ErrorCode::not_found,
              fmt::format("pack: {} has no essential sets; say which kernels with --preselected, "
                          "--name or --shapes",
                          target.name));
}

// A name contains its target. A name of none of the targets is an error.
std::vector<KernelSpec> named_kernels(const PackCommand& command,
                                      const std::vector<Target>& targets) {
  std::vector<std::string> known;
  for (const Target& target : targets) known.push_back(target.name);
  std::vector<KernelSpec> specs;
  for (const std::string& name : command.names) {
    specs.push_back(find_kernel(name));
    const std::string& wanted = specs.back().target;
    if (std::find(known.begin(), known.end(), wanted) != known.end()) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("pack: kernel '{}' is for target '{}', the targets are {}; add "
                            "--target {}",
                            name, wanted, join(known, ", "), wanted));
  }
  return specs;
}

Part make_part(const PackCommand& command, const Target& target,
               const std::vector<KernelSpec>& named, const std::vector<Problem>& problems) {
  KernelSetBuilder builder("pack", target);
  const bool none = command.preselected.empty() && named.empty() && problems.empty();
  std::vector<std::string> sets = command.preselected;
  if (none) sets.emplace_back(kAllEssential);
  for (const std::string& set : sets) {
    const std::vector<KernelSpec> specs =
        set == kAllEssential ? shipped_kernels(target) : preselected_kernels(set, target);
    for (const KernelSpec& spec : specs) builder.add(name_of(spec));
  }
  for (const KernelSpec& spec : named) {
    if (spec.target == target.name) builder.add(name_of(spec));
  }
  for (const Problem& problem : problems) builder.for_problem(problem, command.best);

  Part part{.target = target, .sources = {}};
  for (const KernelSpec& spec : builder.build().specs) {
    part.sources.push_back(emit_legal(spec, target));
  }
  return part;
}

// The kernels that a record's problems need. A kernel that is not legal is a note. Two machines'
// rows of one name mostly have equal kernels, which are `seen` once.
Part recorded_part(RecordedPart& from, std::set<std::pair<std::string, std::string>>& seen,
                   std::vector<std::string>& notes) {
  jit::compiler_for(from.target, "pack");  // throws for a target without a compiler
  Part part{.target = std::move(from.target), .sources = {}};
  for (const KernelSpec& spec : from.specs) {
    try {
      Source source = emit_legal(spec, part.target);
      if (seen.emplace(source.name, jit::source_key(source, part.target)).second) {
        part.sources.push_back(std::move(source));
      }
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
  }
  return part;
}

Parts recorded_parts(const PackCommand& command, const Console& console) {
  if (!command.preselected.empty() || !command.names.empty() || !command.shapes.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "pack: --record says which kernels; leave out --preselected, --name and --shapes, "
                "or make two packs");
  }
  RecordedKernels found = kernels_of_record(read_records(command.records),
                                            {.ranges = command.ranges,
                                             .targets = command.targets,
                                             .every = command.every,
                                             .jobs = command.jobs},
                                            console);
  Parts parts{.parts = {}, .notes = std::move(found.notes), .recorded = {}};
  std::set<std::pair<std::string, std::string>> seen;
  for (RecordedPart& part : found.parts) {
    parts.parts.push_back(recorded_part(part, seen, parts.notes));
  }
  found.parts.clear();
  parts.recorded = std::move(found);
  return parts;
}

Parts make_parts(const PackCommand& command, const Console& console) {
  if (!command.records.empty()) return recorded_parts(command, console);
  if (!command.ranges.empty() || command.every) {
    throw Error(ErrorCode::invalid_argument,
                "pack: --range and --every are about the problems of a --record; name one");
  }
  const std::vector<Target> targets = resolve_targets(command);
  const std::vector<KernelSpec> named = named_kernels(command, targets);
  std::vector<Problem> problems;
  if (!command.shapes.empty()) problems = read_shapes(command.shapes);
  Parts parts;
  for (const Target& target : targets) {
    parts.parts.push_back(make_part(command, target, named, problems));
  }
  return parts;
}

// The results for all kernels. Artifacts in memory live as long as `results`.
struct Built {
  std::vector<jit::BuildResult> results;
  std::vector<jit::PackInput> inputs;
  std::vector<std::string> errors;
  std::size_t cached = 0;
};

Built build(const Console& console, const std::vector<Part>& parts, int jobs) {
  std::size_t total = 0;
  for (const Part& part : parts) total += part.sources.size();
  Built built;
  Progress progress(console, "pack", Plain::signs);
  // A pack contains kernels of this machine's compiler, never kernels from another pack.
  jit::Builder builder({.use_shipped_packs = false});
  for (const Part& part : parts) {
    const std::size_t before = built.results.size();
    const std::vector<jit::BuildResult> results =
        builder.build_all(part.sources, part.target, jobs,
                          [&](std::size_t done, std::size_t, const jit::BuildResult& result) {
                            progress.step(before + done, total, result.name);
                            console.check_stop();
                          });
    for (std::size_t i = 0; i < results.size(); ++i) {
      const jit::BuildResult& result = results[i];
      built.results.push_back(result);
      if (!result.error.empty()) {
        built.errors.push_back(result.error);
        continue;
      }
      built.cached += result.was_cached ? 1 : 0;
      const std::string key = jit::source_key(part.sources[i], part.target);
      built.inputs.push_back(
          {.entry = {.name = result.name, .source_key = key, .target = part.target.name},
           .binary = result.artifact.binary});
    }
  }
  return built;
}

// Checks before the long build that the file can be written.
void check_writable(const fs::path& file) {
  const fs::path folder = fs::absolute(file).parent_path();
  remove_tree(make_unique_folder(folder, ".pack-"));
}

// Builds that shall give equal files on different days say which day it is.
std::int64_t day_of_making() {
  const std::string given = environment("SOURCE_DATE_EPOCH");
  if (given.empty()) return std::time(nullptr) / kDay * kDay;
  std::int64_t seconds = 0;
  constexpr std::int64_t kMost = 253'402'300'799;  // the end of the year 9999
  if (read_whole(given, 0, kMost, seconds)) return seconds;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("pack: SOURCE_DATE_EPOCH must be a whole number of seconds from 0 to {}, "
                          "got '{}'",
                          kMost, given));
}

// A missing compiler is reported once, not for each kernel.
jit::PackMaker maker_of(const Parts& parts) {
  jit::PackMaker maker{.made = day_of_making()};
  for (const Part& part : parts.parts) {
    maker.compilers[part.target.name] =
        jit::compiler_for(part.target).find({}, part.target, {}).version;
  }
  return maker;
}

struct Written {
  std::int64_t bytes = 0;
  double build_seconds = 0;
};

Json written_json(const PackCommand& command, const Parts& parts, const Built& built,
                  const Written& written, const jit::PackMaker& maker) {
  std::vector<std::string> targets;
  for (const Part& part : parts.parts) targets.push_back(part.target.name);
  Json json = {{"file", command.output},        {"targets", targets},
               {"packed", built.inputs.size()}, {"cached", built.cached},
               {"bytes", written.bytes},        {"build_seconds", written.build_seconds}};
  json.update(maker_json(maker));
  if (parts.recorded) {
    json["problems"] = parts.recorded->problems;
    json["choices"] = parts.recorded->choices;
    json["choose_seconds"] = parts.recorded->seconds;
  }
  json["notes"] = parts.notes;
  json["errors"] = built.errors;
  return json;
}

void print_written(const PackCommand& command, const Parts& parts, const Built& built,
                   const Written& written, const Console& console) {
  for (const std::string& note : parts.notes) console.write_err("tessera: pack: {}\n", note);
  for (const std::string& error : built.errors) console.write_err("tessera: {}\n", error);
  if (built.inputs.empty()) {
    console.write_out("no kernel was built; {} is as it was\n", command.output);
    return;
  }
  console.write_out("{} kernels packed into {}, {} of them from the cache\n", built.inputs.size(),
                    command.output, built.cached);
  constexpr double kMegabyte = 1e6;
  console.write_out("{:.2f} MB, built in {:.1f} s", static_cast<double>(written.bytes) / kMegabyte,
                    written.build_seconds);
  if (parts.recorded) {
    console.write_out("; chosen in {:.1f} s, by {} choices for {} problems",
                      parts.recorded->seconds, parts.recorded->choices, parts.recorded->problems);
  }
  console.write_out("\n");
}

int write(const PackCommand& command, const Console& console) {
  const Parts parts = make_parts(command, console);
  if (parts.count() == 0 && parts.recorded) {
    throw Error(
        ErrorCode::not_found,
        fmt::format(
            "pack: the record's {} problems need no kernel{}", parts.recorded->problems,
            parts.notes.empty() ? "" : ", the first one because of " + parts.notes.front()));
  }
  check_writable(command.output);
  const jit::PackMaker maker = maker_of(parts);
  const auto start = std::chrono::steady_clock::now();
  const Built built = build(console, parts.parts, command.jobs);
  Written written;
  if (!built.inputs.empty()) {
    jit::write_pack(command.output, built.inputs, maker);
    written.bytes = static_cast<std::int64_t>(fs::file_size(command.output));
  }
  written.build_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (console.json) {
    console.print_json(written_json(command, parts, built, written, maker));
  } else {
    print_written(command, parts, built, written, console);
  }
  return built.errors.empty() && parts.notes.empty() ? 0 : 1;
}

// ---- what a pack lacks ----

struct Missing {
  std::string kernel, target, why;
};

std::vector<Missing> missing_in(const jit::Pack& pack, const Parts& parts) {
  std::vector<Missing> missing;
  for (const Part& part : parts.parts) {
    for (const Source& source : part.sources) {
      const std::string key = jit::source_key(source, part.target);
      if (pack.lists(source.name, key)) continue;
      std::string why = pack.other_source(source.name, key);
      if (why.empty()) why = "it is not in the pack";
      missing.push_back({source.name, part.target.name, std::move(why)});
    }
  }
  return missing;
}

int check(const PackCommand& command, const Console& console) {
  const jit::Pack pack(command.check);
  const Parts parts = make_parts(command, console);
  const std::vector<Missing> missing = missing_in(pack, parts);
  const std::size_t count = parts.count();
  Json rows = Json::array();
  for (const Missing& one : missing) {
    rows.push_back({{"kernel", one.kernel}, {"target", one.target}, {"why", one.why}});
    if (!console.json) console.write_out("{}: {}\n", one.kernel, one.why);
  }
  if (console.json) {
    Json json = {{"file", command.check}};
    json.update(maker_json(pack.maker()));
    json["needed"] = count;
    json["missing"] = rows;
    json["notes"] = parts.notes;
    console.print_json(json);
  } else {
    for (const std::string& note : parts.notes) console.write_err("tessera: pack: {}\n", note);
    console.write_out("{} of {} kernels are missing in {}, which {} made{}\n", missing.size(),
                      count, command.check, to_string(pack.maker()),
                      count > 0 && missing.size() == count ? "; it serves nothing of this" : "");
  }
  return missing.empty() && parts.notes.empty() ? 0 : 1;
}

int run(const PackCommand& command, const Console& console) {
  const auto given = [](const std::string& option) { return option.empty() ? 0 : 1; };
  if (given(command.output) + given(command.list) + given(command.check) != 1) {
    throw Error(ErrorCode::invalid_argument,
                "pack: give a file to write after --output, or one to look into after --list or "
                "--check");
  }
  if (!command.list.empty()) return list(command.list, console);
  return command.check.empty() ? write(command, console) : check(command, console);
}

}  // namespace

Action declare_pack(CLI::App& app) {
  auto command = std::make_shared<PackCommand>();
  app.add_option("--target,--gpu-target", command->targets,
                 "Machines' rows or .json files; this machine if left out")
      ->delimiter(',');
  app.add_option("--preselected", command->preselected,
                 "Shipped sets, or all_essential: those that every type and layout needs; that is "
                 "the choice when nothing is named")
      ->delimiter(',');
  app.add_option("--name", command->names, "Kernels by name");
  app.add_option("--shapes", command->shapes, "The best kernels for these problems");
  add_integer_option(app, "--best", command->best, 1, "How many for each problem");
  app.add_option("--record", command->records,
                 "The kernels of a model: what these records ask (tessera record)")
      ->delimiter(',');
  app.add_option("--range", command->ranges,
                 "And over all values of a field, m=1..8192; a problem takes the range whose field "
                 "it has")
      ->delimiter(',');
  app.add_flag("--every", command->every,
               "Choose for every value of a range, not for those between which a choice changes");
  app.add_option("-o,--output", command->output, "The pack to write");
  app.add_option("--list", command->list, "A pack to look into instead");
  app.add_option("--check", command->check,
                 "A pack to compare instead: says what it lacks, with status 1 if anything");
  add_jobs_option(app, command->jobs);
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
