#include <fmt/format.h>

#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/timer.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/registry/preload_internal.h"

namespace tessera {

bool PreloadedKernels::has_name(const std::string& source_name) const {
  const std::lock_guard lock(mutex_);
  return kernels_.contains(source_name);
}

std::optional<LoadedSource> PreloadedKernels::find(const Source& source,
                                                   const Target& target) const {
  if (!has_name(source.name)) return std::nullopt;
  const std::string key = jit::source_key(source, target);
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(source.name);
  if (found->second.source_key != key) return std::nullopt;
  return found->second;
}

void PreloadedKernels::add(const std::string& source_name, LoadedSource kernel) {
  const std::lock_guard lock(mutex_);
  kernels_.insert_or_assign(source_name, std::move(kernel));
}

namespace {

// The source that this library makes for a kernel of a pack. Empty for a name or a kernel that this
// version does not know.
std::optional<Source> source_of(const std::string& name, const Target& target) try {
  return emit_legal(parse_name(name), target);
} catch (const Error&) {
  return std::nullopt;
}

LoadedSource load_entry(const jit::Pack& pack, const jit::PackEntry& entry, const Source& source,
                        const Target& target) {
  jit::Artifact artifact = pack.find(entry.name, entry.source_key).value();
  artifact.abi = source.abi;
  artifact.entries = source.entries;
  auto loaded = runtime::backend_for(target).load(artifact, target);
  return {entry.source_key, std::move(artifact), std::move(loaded)};
}

void warn_of(const std::filesystem::path& pack, const std::string& kernel) {
  warn_once(
      fmt::format("{} of the pack {} is not loaded: this library makes it from another text; make "
                  "the pack again with 'tessera pack'",
                  kernel, pack.string()));
}

}  // namespace

Preloaded preload_pack(const std::filesystem::path& pack, const Target& target,
                       const runtime::LaunchOptions& place, PreloadedKernels& kernels) {
  const Timer timer;
  const jit::Pack opened(pack);
  Preloaded done;
  for (const jit::PackEntry& entry : opened.entries()) {
    if (entry.target != target.name) continue;
    const std::optional<Source> source = source_of(entry.name, target);
    if (!source || jit::source_key(*source, target) != entry.source_key) {
      warn_of(pack, entry.name);
      done.skipped.push_back(entry.name);
      continue;
    }
    std::optional<LoadedSource> known = kernels.find(*source, target);
    if (!known) {
      known = load_entry(opened, entry, *source, target);
      kernels.add(entry.name, *known);
    }
    known->loaded->place(place);
    ++done.kernels;
  }
  done.seconds = timer.seconds();
  return done;
}

}  // namespace tessera
