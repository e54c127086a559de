#include "tessera/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/fork.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/registry/preload_internal.h"
#include "tessera/registry/registry_json_internal.h"
#include "tessera/runtime/availability.h"
#include "tessera/spec/json_internal.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using Loaded = std::shared_ptr<const runtime::LoadedKernel>;
using TargetPtr = std::shared_ptr<const Target>;

// A kernel that build() has to make, and its index among the results.
struct Wanted {
  std::size_t index;
  KernelSpec spec;
};
struct Job {
  Wanted wanted;
  Source source;
};

// One build() in progress. Results are in the order of the entries; progress is counted over all of
// them.
class BuildRun {
 public:
  BuildRun(std::size_t total, const jit::Progress& progress)
      : results_(total), progress_(progress) {}

  void finish(std::size_t index, jit::BuildResult result) {
    results_[index] = std::move(result);
    report(results_[index]);
  }

  void fail(std::size_t index, std::string name, std::string error) {
    jit::BuildResult result;
    result.name = std::move(name);
    result.error = std::move(error);
    finish(index, std::move(result));
  }

  void report(const jit::BuildResult& result) {
    const std::scoped_lock lock(mutex_);
    ++done_;
    if (progress_) progress_(done_, results_.size(), result);
  }

  std::vector<jit::BuildResult>& results() { return results_; }

 private:
  std::vector<jit::BuildResult> results_;
  const jit::Progress& progress_;
  std::mutex mutex_;
  std::size_t done_ = 0;
};

// Emits the kernels that have to be built for one target. A kernel that cannot be emitted is a
// failed result.
std::vector<Job> emit_all(const std::vector<Wanted>& wanted, const Target& target, BuildRun& run) {
  const std::string reason = runtime::why_not_here(target);
  std::vector<Job> jobs;
  for (const Wanted& one : wanted) {
    try {
      if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
      jobs.push_back({one, emit_legal(one.spec, target)});
    } catch (const std::exception& error) {
      run.fail(one.index, name_of(one.spec), error_of(error).what());
    }
  }
  return jobs;
}

Target read_target(const nlohmann::json& row, const JsonPlace& place) {
  try {
    return target_from_json(row.dump());
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}: {}", place.what, place.path, error.what()));
  }
}

bool is_among(const KernelSpec& spec, const std::vector<Signature>& signatures) {
  return std::find(signatures.begin(), signatures.end(), spec.signature) != signatures.end();
}

// A receipt may ask for kernels alone that do not exist.
std::vector<Signature> signatures_or_none(const Receipt& receipt) {
  try {
    return receipt_signatures(receipt.name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return {};
  }
}

}  // namespace

struct Registry::State {
  struct Entry {
    KernelSpec spec;
    jit::Artifact artifact;  // the artifact of `loaded`
    Loaded loaded;
  };

  std::string name;
  jit::BuildOptions options;
  mutable Mutex mutex;  // guards all that follows
  std::map<std::string, Entry, std::less<>> entries;
  std::map<std::string, TargetPtr, std::less<>> targets;
  std::shared_ptr<jit::Builder> builder;
  PreloadedKernels preloaded;
  std::atomic<bool> has_preloaded = false;

  // The builder is made at its first use, because a registry that only declares must not touch a
  // cache folder.
  std::shared_ptr<jit::Builder> the_builder() {
    const std::scoped_lock lock(mutex);
    if (!builder) builder = std::make_shared<jit::Builder>(options);
    return builder;
  }

  TargetPtr target_of(const std::string& wanted) {
    {
      const std::scoped_lock lock(mutex);
      const auto found = targets.find(wanted);
      if (found != targets.end()) return found->second;
    }
    Target host = host_target();
    if (host.name == wanted) return std::make_shared<const Target>(std::move(host));
    return std::make_shared<const Target>(load_target(wanted));
  }

  // Keeps the kernel that was loaded first, so that all callers hold the same one.
  Loaded keep(const KernelSpec& spec, jit::Artifact artifact, Loaded loaded) {
    const std::scoped_lock lock(mutex);
    Entry& entry = entries.try_emplace(name_of(spec), Entry{spec, {}, {}}).first->second;
    if (!entry.loaded) {
      entry.artifact = std::move(artifact);
      entry.loaded = std::move(loaded);
    }
    return entry.loaded;
  }

  // If an artifact cannot be loaded although this machine can run it, the kernel is built once
  // more.
  Loaded load(const runtime::Backend& backend, jit::Artifact& artifact, const Source& source,
              const Target& target) {
    try {
      return backend.load(artifact, target);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::load_failed || !backend.unavailable_reason(target).empty()) {
        throw;
      }
      artifact = the_builder()->rebuild(artifact, error.what(), source, target);
      return backend.load(artifact, target);
    }
  }

  // Builds in parallel, then loads; a failure of either is the kernel's result.
  void build_for(const Target& target, const std::vector<Job>& work, int jobs, BuildRun& run) {
    if (work.empty()) return;
    std::vector<Source> sources;
    for (const Job& job : work) sources.push_back(job.source);
    std::vector<jit::BuildResult> built = the_builder()->build_all(
        sources, target, jobs,
        [&run](std::size_t, std::size_t, const jit::BuildResult& r) { run.report(r); });
    const runtime::Backend& backend = runtime::backend_for(target);
    for (std::size_t i = 0; i < work.size(); ++i) {
      jit::BuildResult& result = run.results()[work[i].wanted.index] = std::move(built[i]);
      if (!result.error.empty()) continue;
      try {
        Loaded loaded = load(backend, result.artifact, sources[i], target);
        keep(work[i].wanted.spec, result.artifact, std::move(loaded));
      } catch (const std::exception& error) {
        result.error = error_of(error).what();
      }
    }
  }
};

Registry::Registry(std::string name, jit::BuildOptions options)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->options = std::move(options);
}
Registry::~Registry() = default;
Registry::Registry(Registry&&) noexcept = default;

const std::string& Registry::name() const { return state_->name; }

void Registry::add_target(const Target& target) {
  const std::scoped_lock lock(state_->mutex);
  state_->targets[target.name] = std::make_shared<const Target>(target);
}

void Registry::declare(const KernelSet& set) {
  for (const KernelSpec& spec : set.specs) declare(spec);
}

void Registry::declare(const KernelSpec& spec) {
  std::string name = name_of(spec);
  const std::scoped_lock lock(state_->mutex);
  state_->entries.try_emplace(std::move(name), State::Entry{spec, {}, {}});
}

std::vector<jit::BuildResult> Registry::build(int jobs, const jit::Progress& progress) {
  std::vector<State::Entry> entries;
  {
    const std::scoped_lock lock(state_->mutex);
    for (const auto& [name, entry] : state_->entries) entries.push_back(entry);
  }
  BuildRun run(entries.size(), progress);
  std::map<std::string, std::vector<Wanted>> by_target;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].loaded) {
      run.finish(i, {name_of(entries[i].spec), entries[i].artifact, "", true, 0});
    } else {
      by_target[entries[i].spec.target].push_back({i, entries[i].spec});
    }
  }
  for (const auto& [target_name, wanted] : by_target) {
    TargetPtr target;
    try {
      target = state_->target_of(target_name);
    } catch (const Error& error) {
      for (const Wanted& one : wanted) {
        run.fail(one.index, name_of(one.spec), error.what());
      }
      continue;
    }
    state_->build_for(*target, emit_all(wanted, *target, run), jobs, run);
  }
  return std::move(run.results());
}

Loaded Registry::get(const KernelSpec& spec) {
  if (Loaded loaded = find(name_of(spec))) return loaded;
  const TargetPtr target = state_->target_of(spec.target);
  const runtime::Backend& backend = runtime::backend_for(*target);
  const Source source = emit_legal(spec, *target);
  if (state_->has_preloaded) {
    if (auto ahead = state_->preloaded.find(source, *target)) {
      return state_->keep(spec, std::move(ahead->artifact), std::move(ahead->loaded));
    }
  }
  jit::Artifact artifact = state_->the_builder()->build(source, *target);
  Loaded loaded = state_->load(backend, artifact, source, *target);
  return state_->keep(spec, std::move(artifact), std::move(loaded));
}

bool Registry::is_ready(const KernelSpec& spec) {
  if (find(name_of(spec)) != nullptr) return true;
  // so the kernel need not be emitted
  const std::string name = family_of(spec).source_name(spec);
  jit::Builder& builder = *state_->the_builder();
  const bool is_ahead = state_->preloaded.has_name(name);
  if (!is_ahead && !builder.is_name_packed(name) && !builder.is_name_cached(name)) return false;
  const TargetPtr target = state_->target_of(spec.target);
  const Source source = emit_legal(spec, *target);
  return (is_ahead && state_->preloaded.find(source, *target)) ||
         builder.is_packed(source, *target) || builder.is_cached(source, *target);
}

Preloaded Registry::preload(const std::filesystem::path& pack, std::string_view target,
                            const runtime::LaunchOptions& place) {
  const TargetPtr row = state_->target_of(std::string(target));
  if (const std::string reason = runtime::why_not_here(*row); !reason.empty()) {
    throw Error(ErrorCode::unsupported, reason);
  }
  state_->has_preloaded = true;
  return preload_pack(pack, *row, place, state_->preloaded);
}

Loaded Registry::find(std::string_view name) const {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->entries.find(name);
  return found == state_->entries.end() ? nullptr : found->second.loaded;
}

std::optional<jit::Artifact> Registry::artifact(std::string_view name) const {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->entries.find(name);
  if (found == state_->entries.end() || !found->second.loaded) return std::nullopt;
  return found->second.artifact;
}

std::vector<KernelSpec> Registry::declared() const {
  const std::scoped_lock lock(state_->mutex);
  std::vector<KernelSpec> specs;
  for (const auto& [name, entry] : state_->entries) specs.push_back(entry.spec);
  return specs;
}

bool Registry::contains(std::string_view name) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->entries.count(name) != 0;
}

std::size_t Registry::size() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->entries.size();
}

void Registry::merge(const Registry& other) {
  if (&other == this) return;
  const std::scoped_lock lock(state_->mutex, other.state_->mutex);
  for (const auto& [name, target] : other.state_->targets) {
    state_->targets.try_emplace(name, target);
  }
  for (const auto& [name, entry] : other.state_->entries) {
    State::Entry& own =
        state_->entries.try_emplace(name, State::Entry{entry.spec, {}, {}}).first->second;
    if (own.loaded || !entry.loaded) continue;
    own.artifact = entry.artifact;
    own.loaded = entry.loaded;
  }
}

Registry Registry::filtered(std::string_view target_name) const {
  return filtered([target_name](const KernelSpec& spec) { return spec.target == target_name; });
}

Registry Registry::filtered(const std::function<bool(const KernelSpec&)>& keep) const {
  Registry copy(state_->name, state_->options);
  const std::scoped_lock lock(state_->mutex);
  copy.state_->targets = state_->targets;
  copy.state_->builder = state_->builder;
  for (const auto& [name, entry] : state_->entries) {
    if (keep(entry.spec)) copy.state_->entries.emplace(name, entry);
  }
  return copy;
}

Registry Registry::filtered_by_receipt(std::string_view receipt) const {
  const std::vector<Signature> wanted = receipt_signatures(receipt);
  return filtered([&](const KernelSpec& spec) { return is_among(spec, wanted); });
}

std::vector<std::string> Registry::receipts() const {
  const std::vector<KernelSpec> specs = declared();
  std::vector<std::string> names;
  for (const Receipt& receipt : all_receipts()) {
    const std::vector<Signature> wanted = signatures_or_none(receipt);
    const auto has = [&](const KernelSpec& spec) { return is_among(spec, wanted); };
    if (std::any_of(specs.begin(), specs.end(), has)) names.emplace_back(receipt.name);
  }
  return names;
}

std::string Registry::export_json() const {
  nlohmann::ordered_json value = kernel_set_json({state_->name, declared()});
  const std::scoped_lock lock(state_->mutex);
  if (state_->targets.empty()) return dump_json(value);
  value["targets"] = nlohmann::ordered_json::array();
  for (const auto& [name, target] : state_->targets) {
    value["targets"].push_back(nlohmann::ordered_json::parse(to_json(*target)));
  }
  return dump_json(value);
}

void Registry::import_json(std::string_view text) {
  const nlohmann::json value = parse_json(text, "registry");
  const JsonPlace place{"registry", ""};
  check_keys(
      value, place,
      {"name", "target", "groups", "preselected", "receipt", "problems", "kernels", "targets"});
  const KernelSet set = read_kernel_set(value, place);
  std::vector<Target> rows;
  if (const auto targets = value.find("targets"); targets != value.end()) {
    if (!targets->is_array()) refuse_json(place.key("targets"), "a list", *targets);
    for (std::size_t i = 0; i < targets->size(); ++i) {
      rows.push_back(read_target((*targets)[i], place.key("targets").item(i)));
    }
  }
  for (const Target& row : rows) add_target(row);
  declare(set);
}

jit::Builder& Registry::builder() { return *state_->the_builder(); }

}  // namespace tessera
