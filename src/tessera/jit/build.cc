#include "tessera/jit/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/foreign_error.h"
#include "tessera/base/parallel.h"
#include "tessera/base/seconds.h"
#include "tessera/jit/cached_names_internal.h"
#include "tessera/jit/compile_hook_internal.h"
#include "tessera/jit/compile_internal.h"
#include "tessera/jit/compilers.h"
#include "tessera/jit/load_check_internal.h"
#include "tessera/jit/pack_set_internal.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

// Copies what the backend needs to know from the source to the artifact.
void stamp(const Source& source, Artifact& artifact) {
  artifact.abi = source.abi;
  artifact.entries = source.entries;
}

struct Found {
  Artifact artifact;
  bool was_cached = false;
};

using BuildClock = std::chrono::steady_clock;

double seconds_since(BuildClock::time_point start) {
  return std::chrono::duration<double>(BuildClock::now() - start).count();
}

// Counts finished kernels and reports them to the caller, one thread at a time. After the caller
// has thrown, nothing more is reported.
class Reporter {
 public:
  Reporter(const Progress& progress, std::size_t total) : progress_(progress), total_(total) {}

  void report(const BuildResult& result) {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (!progress_ || stopped_) return;
    stopped_ = true;
    progress_(done_, total_, result);
    stopped_ = false;
  }

 private:
  const Progress& progress_;
  const std::size_t total_;
  std::size_t done_ = 0;
  bool stopped_ = false;
  std::mutex mutex_;
};

bool is_forbidden_by_environment() {
  const std::string value = environment("TESSERA_NO_JIT");
  return !value.empty() && value != "0";
}

}  // namespace

struct Builder::State {
  BuildOptions options;
  Cache cache;
  PackSet packs;
  std::string forbidden_by;  // a clause that says what forbids compiling; empty when compiling is
                             // allowed
  std::string permit;        // what must be done to that
  CachedNames cached_names;

  explicit State(BuildOptions wanted)
      : options(std::move(wanted)),
        cache(options.cache),
        packs(options.packs, options.use_shipped_packs) {
    if (!options.allow_compile)
      forbidden_by = "allow_compile = false forbids compiling", permit = "allow";
    if (is_forbidden_by_environment()) {
      forbidden_by = "TESSERA_NO_JIT=1 forbids compiling", permit = "unset";
    }
  }

  Toolchain toolchain(std::string_view kernel, const Target& target) const;
  Found build(const Source& source, const Target& target);
  Found find_or_build(const Source& source, const Target& target);
  Found build_with_compiler(const Source& source, const Target& target, const std::string& why);
  std::vector<Artifact> build_objects(const Source& source, const Target& target);
  void prepare_objects(std::span<const Source> sources, std::span<const std::size_t> which,
                       const Target& target, int jobs);
  std::optional<Artifact> find_ready(const Source& source, const Target& target);
  std::string no_compiler(const Target& target) const;
  bool try_find(const Source& source, const Target& target, BuildResult& result);
  BuildResult try_build(const Source& source, const Target& target);
  [[noreturn]] void refuse(const Source& source) const;
};

Toolchain Builder::State::toolchain(std::string_view kernel, const Target& target) const {
  const fs::path memo = cache.is_memory_only() ? fs::path() : cache.folder() / "toolchains";
  return compiler_for(target, kernel).find(options, target, memo);
}

std::string Builder::State::no_compiler(const Target& target) const try {
  if (!forbidden_by.empty()) return forbidden_by;
  toolchain(target.name, target);
  return {};
} catch (const Error& error) {
  return error.what();
}

Found Builder::State::build(const Source& source, const Target& target) {
  Found found = find_or_build(source, target);
  stamp(source, found.artifact);
  if (!found.was_cached) found.artifact.from = ArtifactFrom::compiler;
  return found;
}

// Packs come first, because searching a pack needs no compiler, while the cache's key does.
Found Builder::State::find_or_build(const Source& source, const Target& target) {
  if (!packs.empty()) {
    if (auto packed = packs.find(source.name, source_key(source, target))) return {*packed, true};
  }
  try {
    return build_with_compiler(source, target, why_this_thread_compiles());
  } catch (const Error& error) {
    const bool no_compiler = error.code() == ErrorCode::compile_failed;
    if (no_compiler && !forbidden_by.empty()) refuse(source);
    throw;
  }
}

Found Builder::State::build_with_compiler(const Source& source, const Target& target,
                                          const std::string& why) {
  const Toolchain toolchain = this->toolchain(source.name, target);
  const std::string key = cache_key(source, target, toolchain);
  if (std::optional<Artifact> found = cache.find(source.name, key)) return {*found, true};
  if (!forbidden_by.empty()) refuse(source);

  CompileJob job{.source = &source,
                 .objects = {},
                 .target = &target,
                 .compiler = &compiler_for(target, source.name),
                 .toolchain = &toolchain,
                 .worker = find_worker_program(options.worker),
                 .timeout_seconds = options.timeout_seconds,
                 .cache = cache.folder(),
                 .key = key};
  const auto produce = [&](const fs::path& folder) {
    announce({source.name, target.name, why}, options.on_compile);
    job.objects = build_objects(source, target);
    compile(job, folder);
  };
  return {cache.insert(source.name, key, produce), false};
}

std::vector<Artifact> Builder::State::build_objects(const Source& source,
                                                    const Target& target) try {
  std::vector<Artifact> objects(source.objects.size());
  const std::string part = "a part of " + source.name;
  in_parallel(objects.size(), 0, [&](std::size_t i) {
    objects[i] = build_with_compiler(source.objects[i], target, part).artifact;
  });
  return objects;
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}: {}", source.name, error.what()), error.context());
}

// The artifact in a pack or in the cache, if any. Errors are ignored here, because build() reports
// them.
std::optional<Artifact> Builder::State::find_ready(const Source& source, const Target& target) try {
  if (!packs.empty()) {
    if (auto packed = packs.find(source.name, source_key(source, target))) return packed;
  }
  return cache.find(source.name, cache_key(source, target, toolchain(source.name, target)));
} catch (const std::exception&) {
  return std::nullopt;
}

// Builds the objects that the sources need first, each once, so that no thread waits for an object
// of another thread. When an object fails, the source that needs it reports the error.
void Builder::State::prepare_objects(std::span<const Source> sources,
                                     std::span<const std::size_t> which, const Target& target,
                                     int jobs) {
  if (!forbidden_by.empty()) return;
  std::set<std::string> names;
  std::vector<const Source*> objects;
  for (const std::size_t i : which) {
    for (const Source& object : sources[i].objects) {
      if (names.insert(object.name).second) objects.push_back(&object);
    }
  }
  if (objects.empty() || !no_compiler(target).empty()) return;
  in_parallel(objects.size(), jobs, [&](std::size_t i) { try_build(*objects[i], target); });
}

void Builder::State::refuse(const Source& source) const {
  throw Error(ErrorCode::jit_disabled,
              fmt::format("{}: is neither in a pack nor in the cache {}, and {} it; {} it or ship "
                          "a pack with 'tessera pack'",
                          source.name, cache.folder().string(), forbidden_by, permit));
}

bool Builder::State::try_find(const Source& source, const Target& target, BuildResult& result) {
  const BuildClock::time_point start = BuildClock::now();
  std::optional<Artifact> found = find_ready(source, target);
  if (!found) return false;
  stamp(source, *found);
  result = {.name = source.name,
            .artifact = *found,
            .error = {},
            .was_cached = true,
            .seconds = seconds_since(start)};
  return true;
}

BuildResult Builder::State::try_build(const Source& source, const Target& target) {
  BuildResult result{.name = source.name};
  const BuildClock::time_point start = BuildClock::now();
  try {
    const Found found = build(source, target);
    result.artifact = found.artifact;
    result.was_cached = found.was_cached;
  } catch (const Error& error) {
    result.error = error.what();
    if (!error.context().empty()) result.error += "\n" + error.context();
  } catch (const std::exception& error) {
    result.error = fmt::format("{}: {}", source.name, error_of(error).what());
  }
  result.seconds = seconds_since(start);
  return result;
}

Artifact artifact_of(const Source& source, const std::filesystem::path& binary) {
  Artifact artifact;
  artifact.name = source.name;
  artifact.binary = binary;
  stamp(source, artifact);
  return artifact;
}

Builder::Builder(BuildOptions options) {
  check_seconds("build: timeout_seconds", options.timeout_seconds);
  state_ = std::make_unique<State>(std::move(options));
}

Builder::~Builder() = default;

Artifact Builder::build(const Source& source, const Target& target) {
  return state_->build(source, target).artifact;
}

// Existing kernels are found first. The others are built after their objects.
std::vector<BuildResult> Builder::build_all(std::span<const Source> sources, const Target& target,
                                            int jobs, const Progress& progress) {
  std::vector<BuildResult> results(sources.size());
  Reporter reporter(progress, sources.size());
  std::vector<char> is_ready(sources.size());  // written by several threads
  in_parallel(sources.size(), jobs, [&](std::size_t i) {
    is_ready[i] = state_->try_find(sources[i], target, results[i]) ? 1 : 0;
    if (is_ready[i] != 0) reporter.report(results[i]);
  });
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (is_ready[i] == 0) missing.push_back(i);
  }
  state_->prepare_objects(sources, missing, target, jobs);
  in_parallel(missing.size(), jobs, [&](std::size_t i) {
    results[missing[i]] = state_->try_build(sources[missing[i]], target);
    reporter.report(results[missing[i]]);
  });
  return results;
}

// An entry that a worker can load is good. Another process may have built it again meanwhile, or
// this process may be short of descriptors or memory.
Artifact Builder::rebuild(const Artifact& unloadable, const std::string& why, const Source& source,
                          const Target& target) {
  const std::optional<std::string> damage = load_damage(find_worker_program(state_->options.worker),
                                                        {unloadable.name, unloadable.binary});
  if (!damage || !damage->empty()) {
    if (!state_->cache.set_aside(unloadable, why)) throw Error(ErrorCode::load_failed, why);
  }
  return build(source, target);
}

std::string Builder::no_compiler(const Target& target) const { return state_->no_compiler(target); }

bool Builder::is_packed(const Source& source, const Target& target) {
  return is_name_packed(source.name) &&
         state_->packs.lists(source.name, source_key(source, target));
}

bool Builder::is_name_packed(const std::string& name) { return state_->packs.lists(name); }

bool Builder::is_cached(const Source& source, const Target& target) {
  return is_name_cached(source.name) && state_->find_ready(source, target).has_value();
}

bool Builder::is_name_cached(const std::string& name) {
  return state_->cached_names.has(state_->cache, name);
}

const Cache& Builder::cache() const { return state_->cache; }

}  // namespace tessera::jit
