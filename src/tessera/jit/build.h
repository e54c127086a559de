// Source to binary: toolchain, artifact cache, parallel build.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/jit/cache.h"
#include "tessera/jit/compile_hook.h"
#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
namespace tessera::jit {

struct BuildOptions {
  CacheOptions cache;
  std::string compiler;      // empty: TESSERA_CXX, then CXX, then g++, c++, clang++ on PATH
  std::string nvrtc;         // for cuda targets; empty: TESSERA_NVRTC, then nvrtc_places()
  std::string hip_compiler;  // for hip targets, a program or libhiprtc.so; empty: TESSERA_HIPCC,
                             // then hip_compiler_places()
  std::string worker;  // the program that runs NVRTC and tries to load new kernels; empty: the one
                       // beside the library
  std::vector<std::string> packs;  // packs to search before the cache; see pack.h
  bool use_shipped_packs = true;   // whether to search the packs beside the library
  bool allow_compile = true;  // false (or TESSERA_NO_JIT=1): nothing is compiled; build() fails for
                              // a kernel that is not found, and dispatchers choose among the others
  double timeout_seconds = 120;  // of one compiler run
  CompileHook on_compile;        // is asked before each start of a compiler; empty: nobody is
};

struct BuildResult {
  std::string name;
  Artifact artifact;  // valid when error is empty
  std::string error;  // a sentence, with the compiler's words after it
  bool was_cached = false;
  double seconds = 0;
};

using Progress = std::function<void(std::size_t done, std::size_t total, const BuildResult&)>;

// An artifact for a source's binary in a file that the caller keeps.
Artifact artifact_of(const Source& source, const std::filesystem::path& binary);

// Thread-safe. When two threads ask for the same source at once, it is built once.
class Builder {
 public:
  // Throws Error{cache_refused}.
  explicit Builder(BuildOptions options = {});
  ~Builder();

  // The kernel from a pack, the cache or the compiler, in that order. Throws Error{compile_failed}
  // with the compiler's words, Error{timeout}, Error{jit_disabled} naming the kernel,
  // Error{unsupported} for a target whose kernels are built elsewhere, and Error{io_error} when no
  // disk takes the build.
  Artifact build(const Source& source, const Target& target);

  // Builds all sources on `jobs` threads (0: one for each core) and goes on after failures. Results
  // are in the order of `sources`. `progress` is called by one thread at a time. If it throws, no
  // further build starts and build_all() throws the same.
  std::vector<BuildResult> build_all(std::span<const Source> sources, const Target& target,
                                     int jobs, const Progress& progress = {});

  // Builds an artifact again that a backend could not load; `why` is the backend's reason. Sets the
  // cache's entry aside with a warning, unless a worker process can load it. Throws
  // Error{load_failed} with the reason when the artifact is not in the cache, and what build()
  // throws.
  Artifact rebuild(const Artifact& unloadable, const std::string& why, const Source& source,
                   const Target& target);

  // A sentence that says that compiling is forbidden, or that no compiler for the target was found;
  // empty when there is one that may run.
  std::string no_compiler(const Target& target) const;
  // Whether a pack holds the source's kernel, so that build() needs no compiler.
  bool is_packed(const Source& source, const Target& target);
  // Whether a pack holds a kernel of this name. If not, is_packed() is false for every source of
  // this name.
  bool is_name_packed(const std::string& name);
  // Whether the cache holds the source's kernel. Needs the compiler that made it, because the key
  // covers the compiler.
  bool is_cached(const Source& source, const Target& target);
  // Whether the cache holds a kernel of this name. If not, is_cached() is false.
  bool is_name_cached(const std::string& name);

  const Cache& cache() const;

 private:
  struct [[gnu::visibility("hidden")]] State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::jit
#pragma GCC visibility pop
