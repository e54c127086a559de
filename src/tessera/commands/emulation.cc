#include "tessera/commands/emulation.h"

#include <fmt/format.h>

#include "tessera/commands/work.h"

namespace tessera::commands {
namespace {

// The emulator's totals after a verified run of the first problem of a kernel; or why it failed.
struct EmulatedRun {
  Json report = nullptr;
  std::string error;
};
EmulatedRun run_emulated(Dispatcher& dispatcher, const KernelSpec& spec) {
  EmulatedRun run;
  const std::vector<Problem> problems = family_of(spec).samples(spec, dispatcher.target());
  if (problems.empty()) {
    run.error = "it serves none of the sizes tried";
    return run;
  }
  RunSettings settings;
  settings.force = name_of(spec);
  try {
    const Mismatch mismatch = Workload(dispatcher, problems.front(), settings).verify();
    if (!mismatch.ok) run.error = mismatch.message;
  } catch (...) {
    run.error = current_error().what();
  }
  run.report = Json::parse(runtime::emulator_report());
  return run;
}

std::string count_text(const Json& counts) {
  std::string text;
  for (const auto& [name, count] : counts.items()) {
    text += fmt::format("    {} {}\n", count.get<std::int64_t>(), name);
  }
  return text;
}

std::string facts_text(const Json& k) {
  const auto number = [&](const char* key) { return k.at(key).get<std::int64_t>(); };
  return fmt::format("{} for {}\n    {} instructions in {} bytes\n",
                     k.at("kernel").get<std::string>(), k.at("target").get<std::string>(),
                     number("instructions"), number("code_bytes")) +
         count_text(k.at("mfmas")) +
         fmt::format(
             "    {} vector registers, {} of them accumulators; {} scalar registers\n"
             "    {} vector and {} scalar registers spilled; {} bytes of scratch memory a thread\n"
             "    {} bytes of LDS\n",
             number("vgprs"), number("agprs"), number("sgprs"), number("vgpr_spills"),
             number("sgpr_spills"), number("scratch_bytes"), number("lds_bytes"));
}

}  // namespace

std::string emulation_text(const Json& report) {
  const double ideal = report.at("lds_ideal_cycles").get<double>();
  std::string lds = "no LDS";
  if (ideal > 0) {
    lds = fmt::format("LDS cycles {:.2f} of the ideal",
                      report.at("lds_cycles").get<double>() / ideal);
  }
  return fmt::format("emulated: {} launches, {} instructions, {}, {} findings\n{}",
                     report.at("launches").get<std::int64_t>(),
                     report.at("instructions").get<std::int64_t>(), lds,
                     report.at("findings").get<std::int64_t>(), count_text(report.at("mfmas")));
}

int show_assembly(const KernelSpec& spec, const Target& target, const Console& console) {
  runtime::use_emulator(target);
  DispatcherOptions options;
  options.target = target.name;
  Dispatcher dispatcher(options);
  dispatcher.registry().add_target(target);
  const jit::Artifact artifact =
      dispatcher.registry().builder().build(emit_legal(spec, target), target);
  const Json code = Json::parse(runtime::describe_code_object(read_file(artifact.binary)));
  const EmulatedRun run = run_emulated(dispatcher, spec);
  if (console.json) {
    Json json = code;
    json["emulator"] = run.report;
    json["error"] = run.error;
    console.print_json(json);
  } else {
    for (const Json& kernel : code.at("kernels")) {
      console.put_out(facts_text(kernel));
      console.put_out(kernel.at("listing").get<std::string>());
    }
    if (!run.report.is_null()) console.put_out(emulation_text(run.report));
    if (!run.error.empty()) console.write_err("tessera: {}\n", run.error);
  }
  return run.error.empty() ? 0 : 1;
}

}  // namespace tessera::commands
