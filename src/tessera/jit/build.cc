#include "tessera/jit/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/parallel.h"
#include "tessera/jit/compile_internal.h"
#include "tessera/jit/compilers.h"
#include "tessera/jit/load_check_internal.h"
#include "tessera/jit/pack_set_internal.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

struct Found {
  Artifact artifact;
  bool was_cached = false;
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
  std::string forbidden_by;  // what forbids compiling; empty when it is allowed

  explicit State(BuildOptions wanted)
      : options(std::move(wanted)),
        cache(options.cache),
        packs(options.packs, options.use_shipped_packs) {
    if (!options.allow_compile)
      forbidden_by = "allow_compile = false forbids compiling it; allow it";
    if (is_forbidden_by_environment()) {
      forbidden_by = "TESSERA_NO_JIT=1 forbids compiling it; unset it";
    }
  }

  Toolchain toolchain(std::string_view kernel, const Target& target) const;
  Found build(const Source& source, const Target& target);
  Found find_or_build(const Source& source, const Target& target);
  Found build_with_compiler(const Source& source, const Target& target);
  std::vector<Artifact> build_objects(const Source& source, const Target& target);
  void prepare_objects(std::span<const Source> sources, const Target& target, int jobs);
  std::string no_compiler(const Target& target) const;
  BuildResult try_build(const Source& source, const Target& target);
  [[noreturn]] void refuse(const Source& source) const;
};

Toolchain Builder::State::toolchain(std::string_view kernel, const Target& target) const {
  const fs::path memo = cache.is_memory_only() ? fs::path() : cache.folder() / "toolchains";
  return compiler_for(target, kernel).find(options, memo);
}

std::string Builder::State::no_compiler(const Target& target) const try {
  toolchain(target.name, target);
  return {};
} catch (const Error& error) {
  return error.what();
}

Found Builder::State::build(const Source& source, const Target& target) {
  Found found = find_or_build(source, target);
  found.artifact.abi = source.abi;
  found.artifact.entries = source.entries;
  return found;
}

// A pack needs no compiler, not even to look something up: it comes first.
Found Builder::State::find_or_build(const Source& source, const Target& target) {
  if (!packs.empty()) {
    if (auto packed = packs.find(source.name, source_key(source, target))) return {*packed, true};
  }
  try {
    return build_with_compiler(source, target);
  } catch (const Error& error) {
    const bool no_compiler = error.code() == ErrorCode::compile_failed;
    if (no_compiler && !forbidden_by.empty()) refuse(source);
    throw;
  }
}

Found Builder::State::build_with_compiler(const Source& source, const Target& target) {
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
    job.objects = build_objects(source, target);
    compile(job, folder);
  };
  return {cache.insert(source.name, key, produce), false};
}

std::vector<Artifact> Builder::State::build_objects(const Source& source,
                                                    const Target& target) try {
  std::vector<Artifact> objects(source.objects.size());
  in_parallel(objects.size(), 0, [&](std::size_t i) {
    objects[i] = build_with_compiler(source.objects[i], target).artifact;
  });
  return objects;
} catch (const Error& error) {
  throw Error(error.code(), fmt::format("{}: {}", source.name, error.what()), error.context());
}

// Objects that many of the sources need come first, each once, so that no worker waits for
// another's. What fails fails again where a source needs it, which says so.
void Builder::State::prepare_objects(std::span<const Source> sources, const Target& target,
                                     int jobs) {
  std::set<std::string> names;
  std::vector<const Source*> objects;
  for (const Source& source : sources) {
    if (source.objects.empty() || packs.lists(source.name, source_key(source, target))) continue;
    if (!forbidden_by.empty() || !no_compiler(target).empty()) return;
    const std::string key = cache_key(source, target, toolchain(source.name, target));
    if (cache.find(source.name, key)) continue;
    for (const Source& object : source.objects) {
      if (names.insert(object.name).second) objects.push_back(&object);
    }
  }
  in_parallel(objects.size(), jobs, [&](std::size_t i) { try_build(*objects[i], target); });
}

void Builder::State::refuse(const Source& source) const {
  throw Error(ErrorCode::jit_disabled,
              fmt::format("{}: is neither in a pack nor in the cache {}, and {} or ship a pack "
                          "with 'tessera pack'",
                          source.name, cache.folder().string(), forbidden_by));
}

BuildResult Builder::State::try_build(const Source& source, const Target& target) {
  using Clock = std::chrono::steady_clock;
  BuildResult result{.name = source.name};
  const Clock::time_point start = Clock::now();
  try {
    const Found found = build(source, target);
    result.artifact = found.artifact;
    result.was_cached = found.was_cached;
  } catch (const Error& error) {
    result.error = error.what();
    if (!error.context().empty()) result.error += "\n" + error.context();
  } catch (const std::exception& error) {
    result.error = fmt::format("{}: {}", source.name, error.what());
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

Artifact artifact_of(const Source& source, const std::filesystem::path& binary) {
  Artifact artifact;
  artifact.name = source.name;
  artifact.binary = binary;
  artifact.abi = source.abi;
  artifact.entries = source.entries;
  return artifact;
}

Builder::Builder(BuildOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Builder::~Builder() = default;

Artifact Builder::build(const Source& source, const Target& target) {
  return state_->build(source, target).artifact;
}

std::vector<BuildResult> Builder::build_all(std::span<const Source> sources, const Target& target,
                                            int jobs, const Progress& progress) {
  state_->prepare_objects(sources, target, jobs);
  std::vector<BuildResult> results(sources.size());
  std::size_t done = 0;
  bool stopped = false;  // by what progress threw
  std::mutex mutex;
  in_parallel(sources.size(), jobs, [&](std::size_t i) {
    results[i] = state_->try_build(sources[i], target);
    const std::lock_guard lock(mutex);
    ++done;
    if (!progress || stopped) return;
    stopped = true;
    progress(done, sources.size(), results[i]);
    stopped = false;
  });
  return results;
}

// Another process may have built it again meanwhile, and this one may be short of descriptors or
// memory: what a worker can load is no bad entry.
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

const Cache& Builder::cache() const { return state_->cache; }

}  // namespace tessera::jit
