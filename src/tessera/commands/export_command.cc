// tessera export: writes built kernels as data for another program.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tessera/commands/console.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct ExportCommand {
  KernelOptions kernels;
  std::string folder;
  int jobs = 0;
};

// The operation's essential kernels where nothing says which.
KernelSet exported_kernels(const ExportCommand& command, const Target& target) {
  const KernelOptions& options = command.kernels;
  const bool says_none = options.names.empty() && options.preselected.empty() &&
                         options.receipt.empty() && options.wishes.empty() &&
                         options.pattern.empty();
  if (!says_none) return select_kernels(options, target);
  const Family* const family[] = {&family_of(parse_op(options.op))};
  KernelSet set{.name = "essential", .specs = essential_kernels(family, target)};
  if (!set.specs.empty()) return set;
  throw Error(ErrorCode::not_found,
              fmt::format("export: {} has no essential sets of {}; say which kernels with their "
                          "names or with filters",
                          target.name, options.op));
}

int run(const ExportCommand& command, const Console& console) {
  const Target target = resolve_target(command.kernels.target);
  const KernelSet set = exported_kernels(command, target);
  HipdnnResult result;
  {
    Progress progress(console, "export", Plain::lines);
    result = export_for_hipdnn(set, target, command.folder, command.jobs,
                               [&](std::size_t done, std::size_t total, const std::string& name) {
                                 progress.step(done, total, name);
                                 console.check_stop();
                               });
  }
  if (console.json) {
    console.print_json({{"target", target.name},
                        {"output_dir", command.folder},
                        {"written", result.written},
                        {"refused", result.refused},
                        {"errors", result.errors}});
  } else {
    for (const std::string& why : result.refused) console.write_err("tessera: {}\n", why);
    for (const std::string& error : result.errors) console.write_err("tessera: {}\n", error);
    console.write_out("{} kernels for {} written to {}, experimental and never timed; {} refused\n",
                      result.written, target.name, command.folder, result.refused.size());
  }
  return result.errors.empty() ? 0 : 1;
}

}  // namespace

Action declare_export(CLI::App& app) {
  auto command = std::make_shared<ExportCommand>();
  app.add_option("kernel", command->kernels.names,
                 "Kernel names; filters if left out; the operation's essential kernels if nothing "
                 "says which");
  add_kernel_options(app, command->kernels);
  app.add_option("--hipdnn", command->folder, "Folder for AMD's hipDNN, experimental (docs/amd.md)")
      ->required();
  add_jobs_option(app, command->jobs);
  return [command](const Console& console) { return run(*command, console); };
}

}  // namespace tessera::commands
