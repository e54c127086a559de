// tessera targets and doctor: about machines and this installation.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>

#include "tessera/commands/console.h"
#include "tessera/commands/doctor.h"
#include "tessera/commands/format.h"
#include "tessera/commands/options.h"
#include "tessera/commands/table.h"

namespace tessera::commands {
namespace {

struct TargetsCommand {
  std::string name, file;
  std::string folder = ".";
  std::vector<std::string> archs;
  std::string base;
  std::string op = usual_op();
};

// ---- tessera targets import ----

constexpr std::string_view kImport = "import";

[[noreturn]] void refuse_import(const std::string& words) {
  throw Error(ErrorCode::invalid_argument, "targets import: " + words);
}

// The row that has what the file does not say.
Target base_of(const TargetsCommand& command, const std::string& arch) {
  if (!command.base.empty()) return load_target(command.base);
  const std::vector<std::string> names = target_names();
  if (std::find(names.begin(), names.end(), arch) != names.end()) return load_target(arch);
  throw Error(ErrorCode::not_found,
              fmt::format("there is no row of {} with its units, clock and bandwidth, which the "
                          "file does not say: --base names a row whose numbers are to be taken",
                          arch));
}

// A file that somebody may have edited stays.
void write_row(const std::string& file, const Target& target) {
  const std::string text = to_json(target) + "\n";
  target_from_json(text);
  if (fs::exists(file) && read_file(file) != text) {
    refuse_import(fmt::format("'{}' exists and is another row: give another --out", file));
  }
  write_file_atomic(file, text);
}

Json write_imported(const TargetsCommand& command, const std::string& text, const std::string& arch,
                    const Console& console) {
  const ImportedTarget made = import_cktile_arch(text, command.file, arch, parse_op(command.op),
                                                 [&] { return base_of(command, arch); });
  const std::string file = (fs::path(command.folder) / (arch + ".json")).string();
  write_row(file, made.target);
  if (!console.json) {
    console.write_out("{}\n", file);
    for (const std::string& words : made.taken) console.write_out("  taken    {}\n", words);
    for (const std::string& words : made.left) console.write_out("  left out {}\n", words);
  }
  return {{"name", arch}, {"file", file}, {"taken", made.taken}, {"left", made.left}};
}

// Architectures that are asked for must be written; of a whole file, those that can be.
int import_targets(const TargetsCommand& command, const Console& console) {
  if (command.file.empty()) refuse_import("which file? For example arch_specs.json");
  const std::string text = read_file(command.file);
  std::error_code ignored;  // writing says what is wrong
  fs::create_directories(command.folder, ignored);
  const bool is_asked = !command.archs.empty();
  Json written = Json::array(), refused = Json::array();
  for (const std::string& arch : is_asked ? command.archs : cktile_archs(text, command.file)) {
    try {
      written.push_back(write_imported(command, text, arch, console));
    } catch (const Error& error) {
      if (is_asked || error.code() != ErrorCode::not_found) throw;
      refused.push_back({{"name", arch}, {"why", error.what()}});
      if (!console.json) console.write_out("{} is not written: {}\n", arch, error.what());
    }
  }
  if (console.json) console.print_json({{"written", written}, {"refused", refused}});
  return written.empty() ? 1 : 0;
}

int targets(const TargetsCommand& command, const Console& console) {
  if (command.name == kImport) return import_targets(command, console);
  if (!command.file.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("targets: one row is shown, got '{}' and '{}'", command.name, command.file));
  }
  if (!command.name.empty()) {
    const Target target = command.name == "host" ? host_target() : load_target(command.name);
    const Json row = Json::parse(to_json(target));
    if (console.json) {
      console.print_json(row);
    } else {
      console.write_out("{}\n", row.dump(2));
    }
    return 0;
  }
  Json rows = Json::array();
  Table table({"target", "backend", "runs here", "description"});
  for (const std::string& name : target_names()) {
    const Target target = load_target(name);
    const std::string reason = runtime::why_not_here(load_target_here(name));
    rows.push_back({{"name", name},
                    {"backend", target.backend},
                    {"runs_here", reason.empty()},
                    {"why_not", reason},
                    {"description", target.description}});
    table.add({name, target.backend, reason.empty() ? "yes" : "no", target.description});
  }
  if (console.json) {
    console.print_json({{"targets", rows}, {"host", host_target().name}});
  } else {
    console.write_out("{}\nThis machine: {}\n", table.text(), host_target().name);
  }
  return 0;
}

// The CPU features that some target's row requires.
std::vector<std::string> useful_features(const HostInfo& host) {
  std::set<std::string> asked;
  for (const std::string& name : target_names()) {
    for (const std::string& feature : load_target(name).features) asked.insert(feature);
  }
  std::vector<std::string> useful;
  for (const std::string& feature : host.features) {
    if (asked.count(feature) > 0) useful.push_back(feature);
  }
  return useful;
}

Finding find_machine() {
  const HostInfo& host = host_info();
  return {"processor", true, true,
          fmt::format("{}, {} cores, target {} ({})", host.cpu_model, host.cores,
                      host_target().name, join(useful_features(host), " "))};
}

// "/usr/bin/g++: g++ 12", or where targets differ, "gfx90a: /usr/bin/clang++-19: clang 19; ...".
std::string by_target(const std::map<std::string, std::vector<std::string>>& targets_of) {
  if (targets_of.size() == 1) return targets_of.begin()->first;
  std::vector<std::string> parts;
  for (const auto& [words, targets] : targets_of) {
    parts.push_back(fmt::format("{}: {}", join(targets, ", "), words));
  }
  return join(parts, "; ");
}

// Without the processor's kernels nothing runs. Packs of kernels for other machines may be missing.
Finding find_compiler(const jit::CompilerRow& compiler) {
  const std::string title(compiler.title);
  const bool is_needed = compiler.host_runs;
  std::map<std::string, std::vector<std::string>> found, missing;  // targets by what was found
  for (const std::string& name : target_names()) {
    const Target target = load_target(name);
    if (target.backend != compiler.backend) continue;
    try {
      const jit::Toolchain one = compiler.find({}, target, {});
      found[fmt::format("{}: {}", one.path.string(), one.version)].push_back(name);
    } catch (const Error& error) {
      missing[error.what()].push_back(name);
    }
  }
  const std::string why = is_needed ? "" : "only needed to compile for GPUs: ";
  if (found.empty()) return {title, false, is_needed, why + by_target(missing)};
  if (missing.empty()) return {title, true, is_needed, by_target(found)};
  return {title, true, is_needed, fmt::format("{}; but {}", by_target(found), by_target(missing))};
}

void add_compilers(std::vector<Finding>& findings, bool needed) {
  for (const jit::CompilerRow& compiler : jit::compilers()) {
    if (compiler.host_runs == needed) findings.push_back(find_compiler(compiler));
  }
}

// Whether the first folder above it that exists can be written to.
bool can_be_made(std::filesystem::path folder) {
  std::error_code unknown;
  while (folder.has_relative_path() && !std::filesystem::exists(folder, unknown)) {
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(folder, unknown) &&
         ::access(folder.c_str(), W_OK | X_OK) == 0;
}

// Looking makes no folder.
Finding find_cache() {
  const std::filesystem::path folder = jit::cache_folder_here();
  const Finding unusable = {
      "kernel cache", false, false,
      fmt::format("{} cannot be written: kernels are built anew by every process; set "
                  "TESSERA_CACHE_DIR to a folder that can",
                  folder.string())};
  std::error_code unknown;
  if (!folder.empty() && !std::filesystem::exists(folder, unknown)) {
    if (!can_be_made(folder)) return unusable;
    return {"kernel cache", true, false,
            fmt::format("{}, which the first kernel makes", folder.string())};
  }
  try {
    const jit::Cache cache({});
    if (cache.is_memory_only()) return unusable;
    return {"kernel cache", true, false,
            fmt::format("{}, {} kernels, {}", cache.folder().string(), cache.list().size(),
                        format_bytes(static_cast<double>(cache.size_bytes())))};
  } catch (const Error& error) {
    return {"kernel cache", false, true, error.what()};
  }
}

// One line for the driver and one for each GPU, with the targets that it runs.
std::vector<Finding> find_gpus() {
  const runtime::CudaInfo info = runtime::cuda_info();
  if (!info.unavailable.empty()) {
    return {{"NVIDIA driver", false, false, "only needed to run on a GPU: " + info.unavailable}};
  }
  std::vector<Finding> findings = {
      {"NVIDIA driver", true, false, fmt::format("{}, CUDA {}", info.library, info.cuda)}};
  for (std::size_t i = 0; i < info.devices.size(); ++i) {
    const runtime::CudaDevice& device = info.devices[i];
    findings.push_back({fmt::format("GPU {}", i), true, false,
                        fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}",
                                    device.name, device.major, device.minor, device.units,
                                    format_bytes(static_cast<double>(device.memory_bytes)))});
  }
  return findings;
}

// Another line for AMD's runtime and its GPUs.
std::vector<Finding> find_amd_gpus() {
  const runtime::HipInfo info = runtime::hip_info();
  if (!info.unavailable.empty()) {
    return {{"AMD HIP", false, false, "only needed to run on an AMD GPU: " + info.unavailable}};
  }
  std::vector<std::string> rows;
  for (const std::string& name : target_names()) {
    if (load_target(name).backend == "hip") rows.push_back(name);
  }
  std::vector<Finding> findings = {
      {"AMD HIP", true, false, fmt::format("{}, HIP {}", info.library, info.version)}};
  for (std::size_t i = 0; i < info.devices.size(); ++i) {
    const runtime::HipDevice& device = info.devices[i];
    std::string row;
    try {
      row = "target " + runtime::row_for(device.architecture, rows);
    } catch (const Error& error) {
      row = error.what();
    }
    findings.push_back(
        {fmt::format("AMD GPU {}", i), true, false,
         fmt::format("{}, {}, {} compute units, {}: {}", device.name, device.architecture,
                     device.units, format_bytes(static_cast<double>(device.memory_bytes)), row)});
  }
  return findings;
}

// The program that shows the instructions of AMD's kernels, and that the emulator reads them with.
Finding find_disassembler() {
  const std::filesystem::path found = jit::find_objdump();
  if (!found.empty()) return {"llvm-objdump", true, false, found.string()};
  return {"llvm-objdump", false, false,
          "only needed to disassemble and emulate kernels for AMD GPUs: install it ('apt install "
          "llvm-22') or name it with TESSERA_LLVM_OBJDUMP"};
}

// "sm90a": the targets that are not processors.
Finding find_gpu_targets() {
  std::vector<std::string> runnable;
  std::string why_not;
  for (const std::string& name : target_names()) {
    const Target target = load_target(name);
    if (!is_gpu(target) || runtime::find_backend(target) == nullptr) continue;
    const std::string reason = runtime::why_not_here(target);
    if (reason.empty()) {
      runnable.push_back(name);
    } else {
      why_not = reason;
    }
  }
  if (!runnable.empty()) return {"GPU targets", true, false, "runs " + join(runnable, ", ")};
  const bool has_driver =
      runtime::cuda_info().unavailable.empty() || runtime::hip_info().unavailable.empty();
  return {"GPU targets", false, false, has_driver ? why_not : "none without a GPU's driver"};
}

// Others come after the threads, because looking for them may change how many OpenMP uses.
std::vector<Finding> examine(const std::function<std::vector<Finding>()>& others) {
  std::vector<Finding> findings = {find_machine()};
  add_compilers(findings, true);
  findings.push_back(find_cache());
  findings.push_back({"threads", true, false,
                      fmt::format("OpenMP uses {} by default", runtime::thread_limit({}))});
  if (others) {
    for (Finding& finding : others()) findings.push_back(std::move(finding));
  }
  for (Finding& finding : find_gpus()) findings.push_back(std::move(finding));
  for (Finding& finding : find_amd_gpus()) findings.push_back(std::move(finding));
  findings.push_back(find_gpu_targets());
  add_compilers(findings, false);
  findings.push_back(find_disassembler());
  return findings;
}

}  // namespace

std::vector<Finding> find_tools() {
  std::vector<Finding> findings;
  add_compilers(findings, true);
  add_compilers(findings, false);
  for (Finding& finding : find_gpus()) findings.push_back(std::move(finding));
  for (Finding& finding : find_amd_gpus()) findings.push_back(std::move(finding));
  return findings;
}

int doctor(const Console& console, const std::function<std::vector<Finding>()>& others) {
  const std::vector<Finding> findings = examine(others);
  Json json = Json::array();
  bool healthy = true;
  for (const Finding& finding : findings) {
    healthy = healthy && (finding.found || !finding.needed);
    json.push_back({{"what", finding.what},
                    {"found", finding.found},
                    {"needed", finding.needed},
                    {"detail", finding.detail}});
    if (!console.json) {
      console.write_out("{:<8} {:<16} {}\n",
                        finding.found    ? "found"
                        : finding.needed ? "MISSING"
                                         : "-",
                        finding.what, finding.detail);
    }
  }
  if (console.json) {
    console.print_json({{"healthy", healthy}, {"findings", json}});
  } else {
    console.write_out("{}\n", healthy ? "Ready." : "Not ready: see MISSING above.");
  }
  return healthy ? 0 : 1;
}

Action declare_targets(CLI::App& app) {
  auto command = std::make_shared<TargetsCommand>();
  app.add_option("target", command->name,
                 "Show this row: a name, a .json file, or host; or import, to make rows of a FILE");
  app.add_option("file", command->file,
                 "import: arch_specs.json of the CK Tile Dispatcher, whose architectures become "
                 "files NAME.json");
  app.add_option("--out", command->folder, "import: the folder of the files")
      ->capture_default_str();
  app.add_option("--arch", command->archs, "import: only this one; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--base", command->base,
                 "import: the row that has what the file does not say; the one of the same name");
  app.add_option("--op", command->op, "import: whose waves and warp tiles the file has")
      ->capture_default_str();
  return [command](const Console& console) { return targets(*command, console); };
}

Action declare_doctor(CLI::App&) {
  return [](const Console& console) { return doctor(console, {}); };
}

}  // namespace tessera::commands
