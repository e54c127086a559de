// Source to binary: toolchain, artifact cache, parallel build.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/jit/cache.h"
#include "tessera/jit/toolchain.h"
#include "tessera/spec/target.h"

namespace tessera::jit {

struct BuildOptions {
  CacheOptions cache;
  std::string compiler;  // empty: TESSERA_CXX, then CXX, then g++, c++, clang++ on PATH
  std::string nvrtc;     // for cuda targets; empty: TESSERA_NVRTC, then nvrtc_places()
  std::string worker;    // runs NVRTC, and loads kernels first; empty: the one beside the library
  std::vector<std::string> packs;  // bundles to look into before the cache; see pack.h
  bool use_shipped_packs = true;   // those beside the library
  bool allow_compile = true;       // false (or TESSERA_NO_JIT=1): a miss is an error
  double timeout_seconds = 120;    // for one compiler run
};

struct BuildResult {
  std::string name;
  Artifact artifact;  // valid when error is empty
  std::string error;  // a sentence, with the compiler's words after it
  bool was_cached = false;
  double seconds = 0;
};

using Progress = std::function<void(std::size_t done, std::size_t total, const BuildResult&)>;

// A source's binary as a loader wants it, in a file that somebody else keeps.
Artifact artifact_of(const Source& source, const std::filesystem::path& binary);

// Thread-safe; the same source asked for twice at once is built once.
class Builder {
 public:
  // Throws Error{cache_refused}.
  explicit Builder(BuildOptions options = {});
  ~Builder();

  // From a pack, the cache or the compiler, in that order. Throws Error{compile_failed} with the
  // compiler's words, Error{timeout}, Error{jit_disabled} naming the kernel, Error{unsupported} for
  // a target whose kernels are built elsewhere, Error{io_error} when no disk takes the build.
  Artifact build(const Source& source, const Target& target);

  // All of them on `jobs` threads (0: one per core); goes on past failures. Results are in the
  // order of `sources`; `progress` is called by one thread at a time; if it
  // throws, nothing more is started and this throws the same.
  std::vector<BuildResult> build_all(std::span<const Source> sources, const Target& target,
                                     int jobs, const Progress& progress = {});

  // Another build of what a backend could not load, for the reason given: the cache's entry is set
  // aside with a warning, unless a worker can load it. Throws Error{load_failed} with the reason
  // when it is no entry of the cache, and what build() throws.
  Artifact rebuild(const Artifact& unloadable, const std::string& why, const Source& source,
                   const Target& target);

  // Why nothing can be compiled for the target: no compiler was found. Empty when one was.
  std::string no_compiler(const Target& target) const;
  // Whether a pack has it, so that build() needs no compiler.
  bool is_packed(const Source& source, const Target& target);
  // Whether a pack has a kernel of this name: no other can be packed, whatever its source.
  bool is_name_packed(const std::string& name);

  const Cache& cache() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
