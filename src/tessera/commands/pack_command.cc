// tessera pack: writes built kernels to one portable file, and lists such a file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "tessera/commands/console.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

constexpr const char* kAllEssential = "all_essential";

struct PackCommand {
  std::vector<std::string> targets;  // empty: TESSERA_TARGET, or this machine
  std::vector<std::string> preselected;
  std::vector<std::string> names;
  std::string shapes;
  int best = 1;
  std::string output;
  std::string list;
  int jobs = 0;
};

// The kernels of one target in the pack.
struct Part {
  Target target;
  std::vector<Source> sources;
};

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
    console.print_json({{"file", file}, {"entries", entries}});
  } else {
    console.write_out("{}{} kernels in {}\n", entries.empty() ? "" : table.text(), entries.size(),
                      file);
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

std::vector<Part> make_parts(const PackCommand& command) {
  const std::vector<Target> targets = resolve_targets(command);
  const std::vector<KernelSpec> named = named_kernels(command, targets);
  std::vector<Problem> problems;
  if (!command.shapes.empty()) problems = read_shapes(command.shapes);
  std::vector<Part> parts;
  for (const Target& target : targets) {
    parts.push_back(make_part(command, target, named, problems));
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

int write(const PackCommand& command, const Console& console) {
  const std::vector<Part> parts = make_parts(command);
  check_writable(command.output);
  for (const Part& part : parts) {  // a missing compiler is reported once, not for each kernel
    jit::compiler_for(part.target).find({}, part.target, {});
  }
  const Built built = build(console, parts, command.jobs);
  if (!built.inputs.empty()) jit::write_pack(command.output, built.inputs);

  if (console.json) {
    std::vector<std::string> targets;
    for (const Part& part : parts) targets.push_back(part.target.name);
    console.print_json({{"file", command.output},
                        {"targets", targets},
                        {"packed", built.inputs.size()},
                        {"cached", built.cached},
                        {"errors", built.errors}});
  } else {
    for (const std::string& error : built.errors) console.write_err("tessera: {}\n", error);
    if (built.inputs.empty()) {
      console.write_out("no kernel was built; {} is as it was\n", command.output);
    } else {
      console.write_out("{} kernels packed into {}, {} of them from the cache\n",
                        built.inputs.size(), command.output, built.cached);
    }
  }
  return built.errors.empty() ? 0 : 1;
}

int run(const PackCommand& command, const Console& console) {
  if (command.output.empty() == command.list.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "pack: give a file to write after --output, or one to look into after --list");
  }
  return command.list.empty() ? write(command, console) : list(command.list, console);
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
  app.add_option("-o,--output", command->output, "The pack to write");
  app.add_option("--list", command->list, "A pack to look into instead");
  add_jobs_option(app, command->jobs);
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
