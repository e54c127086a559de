#include "tessera/registry/hipdnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/sha1.h"
#include "tessera/families/family.h"
#include "tessera/jit/compilers.h"
#include "tessera/registry/folder_internal.h"
#include "tessera/registry/kernel_set_internal.h"
#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDescriptorVersion = "1.0";  // of every kind of descriptor
constexpr std::string_view kGraphVersion = "1.0.0";     // of the graphs' schema

// ---- descriptors ----

Json json_of(const hipdnn::Formula& formula) { return Json::parse(formula.json); }

// An identity that follows from the content: equal descriptors have equal ones wherever they were
// made, and a changed descriptor never has that of another. In the form of a version 5 UUID.
std::string identity(std::string_view kind, const Json& content) {
  std::string hex = sha1_hex(fmt::format("tessera {} {}", kind, content.dump()));
  hex[12] = '5';
  hex[16] = "89ab"[hex[16] % 4];
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20, 12));
}

Json provenance() {
  return {{"made_by", "tessera export --hipdnn"}, {"state", "experimental"}, {"timed", "never"}};
}

// A descriptor with its identity after its version.
Json descriptor(std::string_view kind, const std::string& name, Json content) {
  content["provenance"] = provenance();
  Json all = {{"version", kDescriptorVersion}, {"id", ""}, {"name", name}};
  for (auto& [key, value] : content.items()) all[key] = std::move(value);
  all["id"] = identity(kind, all);
  return all;
}

Json metadata_schema(const hipdnn::Engine& engine, const std::string& name) {
  Json fields = Json::array();
  for (const hipdnn::Field& field : engine.fields) {
    fields.push_back({{"name", field.name}, {"type", field.type}});
  }
  return descriptor("kmd", name + " kernels", {{"fields", std::move(fields)}});
}

Json heuristic(const std::string& name) {
  return descriptor(
      "uhd", name + " by the estimate",
      {{"adapter", "static_order"}, {"static_order", {{"order", {"priority", "id"}}}}});
}

Json engine_descriptor(const hipdnn::Engine& engine, const std::string& name, const Json& schema,
                       const Json& order) {
  return descriptor("ued", name,
                    {{"sdk_version", kGraphVersion},
                     {"graph_match", {{"nodes", Json::parse(engine.nodes)}}},
                     {"metadata", schema["id"]},
                     {"heuristic", order["id"]}});
}

Json matcher(const hipdnn::Engine& engine, const std::string& name) {
  return descriptor("umd", name + " legality",
                    {{"scope", "kernel"}, {"criteria", json_of(engine.criteria)}});
}

Json argument_of(const hipdnn::Argument& argument) {
  if (argument.type == hipdnn::Parameter::pointer) {
    return {{"name", argument.name},
            {"kind", "pointer"},
            {"source", {{"from", "tensor"}, {"ref", json_of(argument.value)}}}};
  }
  return {{"name", argument.name},
          {"kind", "scalar"},
          {"type", to_string(argument.type)},
          {"source", {{"from", "expr"}, {"expr", json_of(argument.value)}}}};
}

Json dispatch(const hipdnn::Engine& engine, const std::string& name) {
  Json arguments = Json::array();
  for (const hipdnn::Argument& argument : engine.arguments) {
    arguments.push_back(argument_of(argument));
  }
  const auto along_x = [](const hipdnn::Formula& x) {
    return Json{{"x", json_of(x)}, {"y", 1}, {"z", 1}};
  };
  return descriptor("udd", name + " launch",
                    {{"grid", along_x(engine.blocks)},
                     {"block", along_x(engine.threads)},
                     {"shared_mem_bytes", 0},
                     {"workspace_bytes", 0},
                     {"args_signature", std::move(arguments)}});
}

// ---- kernels ----

// What the compiler was told to compile for.
std::string arch_of(const Target& target) {
  constexpr std::string_view kFlag = "--offload-arch=";
  for (const std::string& flag : target.compile_flags) {
    if (flag.starts_with(kFlag)) return flag.substr(kFlag.size());
  }
  return target.name;
}

struct Ranked {
  KernelSpec spec;
  hipdnn::Kernel kernel;
  std::int64_t priority = 0;
};

// By the estimate: how near a kernel comes to the fastest one on the usual problems that it serves,
// on average, in thousandths.
void rank(const Target& target, std::vector<Ranked>& all) {
  const Family& family = family_of(all.front().spec);
  std::map<std::string, double> best;
  std::vector<std::vector<double>> seconds(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Problem& problem : all[i].kernel.usual) {
      const double time = family.estimate(all[i].spec, problem, target, 0).seconds;
      seconds[i].push_back(time);
      double& least = best.try_emplace(to_string(problem), time).first->second;
      least = std::min(least, time);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& usual = all[i].kernel.usual;
    double sum = 0;
    for (std::size_t n = 0; n < usual.size(); ++n) {
      sum += best.at(to_string(usual[n])) / std::max(seconds[i][n], 1e-12);
    }
    constexpr double kParts = 1000;
    const auto count = static_cast<double>(std::max<std::size_t>(usual.size(), 1));
    all[i].priority = std::llround(kParts * sum / count);
  }
}

Json kernel_descriptor(const hipdnn::Engine& engine, const Ranked& ranked, const std::string& file,
                       const std::string& arch) {
  Json metadata = Json::object();
  for (std::size_t i = 0; i < engine.fields.size(); ++i) {
    metadata[std::string(engine.fields[i].name)] = json_of(ranked.kernel.values.at(i));
  }
  const std::string name = name_of(ranked.spec);
  Json kernel =
      descriptor("ukd", name,
                 {{"arch", {arch}},
                  {"kernel_source", {{"kind", "hsaco"}, {"file", file}, {"symbol", name}}},
                  {"metadata", std::move(metadata)},
                  {"priority", ranked.priority}});
  kernel.erase("version");  // the pack has one
  return kernel;
}

std::vector<Ranked> described(const std::vector<KernelSpec>& specs, const Target& target) {
  std::vector<Ranked> all;
  for (const KernelSpec& spec : specs) {
    all.push_back({spec, family_of(spec).hipdnn_kernel(spec, target)});
    if (all.back().kernel.refusal.empty()) continue;
    throw Error(ErrorCode::internal, all.back().kernel.refusal);
  }
  return all;
}

// ---- the folder ----

constexpr std::string_view kReadme =
    "# Kernels for hipDNN, by Tessera\n"
    "\n"
    "EXPERIMENTAL. No kernel in this folder was ever timed, and nobody has loaded the folder into "
    "hipDNN. The order of\n"
    "the kernels (`priority`) is an estimate that was never compared with a GPU.\n"
    "\n"
    "`tessera export --hipdnn` wrote the folder, in the format of RFC 0017 to 0020 of hipDNN: for "
    "each operation an engine\n"
    "(`.ued.json`), what its kernels state of themselves (`.kmd.json`), when they apply "
    "(`.umd.json`), how they are launched\n"
    "(`.udd.json`), their order (`.uhd.json`) and for each architecture a pack of kernels "
    "(`.kdp.json`) whose code objects\n"
    "are under `code_objects/`. A loader must evaluate a matcher's `criteria` and a dispatch "
    "descriptor's `args_signature`:\n"
    "one that knows only symbols of its own provider refuses these files.\n";

std::string object_file(const KernelSpec& spec, const Target& target) {
  return fmt::format("code_objects/{}/{}.hsaco", arch_of(target), name_of(spec));
}

// The kernels of a set that hipDNN can be told of, by operation, with their sources.
struct Chosen {
  std::vector<KernelSpec> specs;
  std::vector<Source> sources;
};

Chosen choose_expressible(const KernelSet& set, const Target& target, HipdnnResult& result) {
  Chosen chosen;
  for (const KernelSpec& spec : unique_by_name(set.specs)) {
    if (spec.target != target.name) {
      result.errors.push_back(fmt::format("{}: the kernel is for target '{}', not '{}'",
                                          name_of(spec), spec.target, target.name));
      continue;
    }
    if (const Verdict legal = family_of(spec).is_legal(spec, target); !legal) {
      result.errors.push_back(fmt::format("{}: {}", name_of(spec), legal.reason));
      continue;
    }
    hipdnn::Kernel kernel = family_of(spec).hipdnn_kernel(spec, target);
    if (!kernel.refusal.empty()) {
      result.refused.push_back(std::move(kernel.refusal));
      continue;
    }
    chosen.specs.push_back(spec);
    chosen.sources.push_back(std::move(kernel.source));
  }
  return chosen;
}

void check_target(const Target& target) {
  if (target.backend == "hip") return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("export: hipDNN runs kernels for AMD's GPUs, and {} is a target of the "
                          "backend {}",
                          target.name, target.backend));
}

// Builds the sources and writes the code objects. Returns the kernels that were built.
std::vector<KernelSpec> write_objects(const Chosen& chosen, const Target& target,
                                      const fs::path& folder, int jobs,
                                      const jit::Progress& progress, HipdnnResult& result) {
  // As a pack, the folder contains kernels of this machine's compiler.
  jit::Builder builder({.use_shipped_packs = false});
  const std::vector<jit::BuildResult> built =
      builder.build_all(chosen.sources, target, jobs, progress);
  std::vector<KernelSpec> written;
  for (std::size_t i = 0; i < built.size(); ++i) {
    if (!built[i].error.empty()) {
      result.errors.push_back(built[i].error);
      continue;
    }
    const fs::path file = folder / object_file(chosen.specs[i], target);
    make_folder(file.parent_path(), "export");
    write_file_atomic(file, read_file(built[i].artifact.binary));
    written.push_back(chosen.specs[i]);
  }
  return written;
}

}  // namespace

std::map<std::string, std::string> describe_for_hipdnn(
    const std::vector<KernelSpec>& specs, const Target& target,
    const std::function<std::string(const KernelSpec&)>& file_of) {
  std::vector<Ranked> all = described(specs, target);
  rank(target, all);
  const hipdnn::Engine engine = family_of(specs.front()).extras->hipdnn->engine();
  const std::string name = fmt::format("tessera:{}", engine.name);
  const std::string arch = arch_of(target), stem = fmt::format("tessera_{}", engine.name);

  const Json schema = metadata_schema(engine, name), order = heuristic(name);
  const Json owner = engine_descriptor(engine, name, schema, order);
  const Json match = matcher(engine, name), launch = dispatch(engine, name);
  Json kernels = Json::array();
  for (const Ranked& ranked : all) {
    kernels.push_back(kernel_descriptor(engine, ranked, file_of(ranked.spec), arch));
  }
  const Json pack = descriptor("kdp", fmt::format("{} for {}", name, arch),
                               {{"arch", {arch}},
                                {"matchers", {match["id"]}},
                                {"engine", owner["id"]},
                                {"dispatch", launch["id"]},
                                {"kernelDescriptors", std::move(kernels)}});
  const auto text = [](const Json& json) { return dump_json(json) + "\n"; };
  return {
      {stem + ".kmd.json", text(schema)}, {stem + ".uhd.json", text(order)},
      {stem + ".ued.json", text(owner)},  {stem + ".umd.json", text(match)},
      {stem + ".udd.json", text(launch)}, {fmt::format("{}_{}.kdp.json", stem, arch), text(pack)}};
}

HipdnnResult export_for_hipdnn(
    const KernelSet& set, const Target& target, const fs::path& folder, int jobs,
    const std::function<void(std::size_t, std::size_t, const std::string&)>& progress) {
  check_target(target);
  HipdnnResult result;
  const Chosen chosen = choose_expressible(set, target, result);
  if (chosen.specs.empty() && !result.refused.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("export: none of {} kernel{} can be written; {}", set.specs.size(),
                            set.specs.size() == 1 ? "" : "s", result.refused.front()));
  }
  make_folder(folder, "export");
  jit::compiler_for(target, "export").find({}, target, {});  // a missing one is reported once
  const auto step = [&](std::size_t done, std::size_t total, const jit::BuildResult& built) {
    if (progress) progress(done, total, built.name);
  };
  std::map<Op, std::vector<KernelSpec>> by_op;
  for (const KernelSpec& spec : write_objects(chosen, target, folder, jobs, step, result)) {
    by_op[op_of(spec)].push_back(spec);
    ++result.written;
  }
  const auto file_of = [&](const KernelSpec& spec) { return object_file(spec, target); };
  for (const auto& [op, specs] : by_op) {
    for (const auto& [name, text] : describe_for_hipdnn(specs, target, file_of)) {
      write_file_atomic(folder / name, text);
    }
  }
  if (result.written > 0) write_file_atomic(folder / "README.md", kReadme);
  return result;
}

}  // namespace tessera
