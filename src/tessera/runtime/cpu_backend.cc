// Kernels as shared objects, run by a team of OpenMP threads.
#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/inline_vector.h"
#include "tessera/base/processors.h"
#include "tessera/base/text.h"
#include "tessera/device/cpu/abi.h"
#include "tessera/families/launch.h"
#include "tessera/runtime/backends_internal.h"
#include "tessera/runtime/benchmark_internal.h"
#include "tessera/runtime/cpu_features_internal.h"
#include "tessera/runtime/launch_checks_internal.h"
#include "tessera/runtime/memory_internal.h"
#include "tessera/runtime/openmp_fork_internal.h"

namespace tessera::runtime {
namespace {

using device::CpuEntry;
using device::CpuKernel;
using device::CpuThread;

// The entries that a launch runs, in this order, and their arguments.
struct Phases {
  InlineVector<const CpuEntry*, 4> entries;
  const void* arguments = nullptr;
  void* workspace = nullptr;  // the caller's; null: this thread's own

  // The workspace bytes for a team. All entries share the memory and find there what earlier
  // entries left.
  std::size_t bytes_for(int threads) const {
    std::size_t bytes = 0;
    for (const CpuEntry* entry : entries) {
      bytes = std::max(bytes, static_cast<std::size_t>(entry->workspace_bytes(arguments, threads)));
    }
    return bytes;
  }
  void run(const CpuThread& thread) const {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) thread.barrier(thread.barrier_context);
      entries[i]->run(arguments, &thread);
    }
  }
};

constexpr std::size_t kWorkspaceAlignment = 64;

void* workspace_for(const Phases& phases, int threads) {
  if (phases.workspace != nullptr) return phases.workspace;
  return thread_workspace(phases.bytes_for(threads));
}

// Barriers bind to the innermost team, which is the one that runs the kernel.
void team_barrier(void*) {
#pragma omp barrier
}

void no_barrier(void*) {}

void run_alone(const Phases& phases) {
  const CpuThread thread{0, 1, workspace_for(phases, 1), no_barrier, nullptr};
  phases.run(thread);
}

void note_team() {
  if (!g_openmp.ran_team.load(std::memory_order_relaxed)) g_openmp.ran_team.store(true);
}

// Returns the size of the team that OpenMP granted. The kernel has run only if the result equals
// `threads`, because the workspace has room for `threads` threads.
int run_team(const Phases& phases, int threads) {
  void* const workspace = workspace_for(phases, threads);
  note_team();
  int granted = threads;
#pragma omp parallel num_threads(threads) default(none) shared(phases, threads, workspace, granted)
  {
    const int count = omp_get_num_threads();
    if (count == threads) {
      const CpuThread thread{omp_get_thread_num(), count, workspace, team_barrier, nullptr};
      phases.run(thread);
    } else if (omp_get_thread_num() == 0) {
      granted = count;
    }
  }
  return granted;
}

// OMP_DYNAMIC, OMP_THREAD_LIMIT and busy systems may grant fewer threads than asked for; asking
// again for the granted number ends at the latest with one thread.
void run_phases(const Phases& phases, int threads) {
  while (threads > 1) {
    const int granted = run_team(phases, threads);
    if (granted >= threads) return;
    threads = granted;
  }
  run_alone(phases);
}

class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}
  ~Library() { dlclose(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  const void* symbol(const std::string& name) const { return dlsym(handle_, name.c_str()); }

 private:
  void* handle_;
};

std::unique_ptr<Library> open_library(const jit::Artifact& artifact) {
  void* handle = dlopen(artifact.binary.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return std::make_unique<Library>(handle);
  const char* reason = dlerror();
  throw Error(ErrorCode::load_failed,
              fmt::format("cannot load kernel '{}': {}", artifact.name,
                          reason != nullptr ? reason : "the loader gave no reason"));
}

// Every entry that a step may run.
void check_entries(const CpuKernel& kernel, const jit::Artifact& artifact) {
  const std::size_t wanted = artifact.entries.size();
  if (wanted > device::kMostCpuEntries) {
    throw Error(ErrorCode::internal,
                fmt::format("kernel '{}' lists {} entries, a table holds at most {}", artifact.name,
                            wanted, device::kMostCpuEntries));
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const CpuEntry& entry = kernel.entries[i];
    if (entry.run != nullptr && entry.workspace_bytes != nullptr) continue;
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': its table must hold run and "
                            "workspace_bytes of '{}{}', but one of them is null",
                            artifact.name, artifact.name, artifact.entries[i]));
  }
}

const CpuKernel& find_kernel(const Library& library, const jit::Artifact& artifact) {
  const auto* kernel = static_cast<const CpuKernel*>(library.symbol(artifact.name));
  if (kernel == nullptr) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': '{}' must export a symbol of that name, but "
                            "has none; clear its cache entry to build it again",
                            artifact.name, artifact.binary.string()));
  }
  if (kernel->abi_version != artifact.abi) {
    throw Error(ErrorCode::load_failed,
                fmt::format("cannot load kernel '{}': its ABI version must be {}, got {}; clear "
                            "its cache entry to build it again",
                            artifact.name, artifact.abi, kernel->abi_version));
  }
  check_entries(*kernel, artifact);
  return *kernel;
}

class LoadedCpuKernel final : public LoadedKernel {
 public:
  explicit LoadedCpuKernel(const jit::Artifact& artifact)
      : name_(artifact.name),
        num_entries_(artifact.entries.size()),
        keep_(artifact.keep),
        library_(open_library(artifact)),
        kernel_(find_kernel(*library_, artifact)) {}

  void launch(const Launch& launch, const LaunchOptions& options) const override {
    if (launch.steps.empty()) return;
    const int threads = threads_for(launch, options);
    Phases phases = phases_of(launch);
    if (options.brings_workspace()) {
      check_workspace(name_, phases.bytes_for(threads), kWorkspaceAlignment, options);
      phases.workspace = options.workspace;
    }
    run_phases(phases, threads);
  }

  std::size_t workspace_bytes(const Launch& launch, const LaunchOptions& options) const override {
    return phases_of(launch).bytes_for(threads_for(launch, options));
  }

 private:
  static int threads_for(const Launch& launch, const LaunchOptions& options) {
    if (launch.max_threads == 1) return 1;
    const int limit = thread_limit(options);
    return launch.max_threads > 0 ? std::min(limit, launch.max_threads) : limit;
  }

  Phases phases_of(const Launch& launch) const {
    Phases phases;
    phases.arguments = launch.arguments.data();
    for (const Step& step : launch.steps) {
      if (step.entry >= num_entries_) refuse_entry(name_, step.entry, num_entries_);
      phases.entries.push(&kernel_.entries[step.entry]);
    }
    return phases;
  }

  std::string name_;
  std::size_t num_entries_;
  // The loader identifies libraries by path, and the path of an anonymous file is reused after it
  // is closed. So the file must outlive the library.
  std::shared_ptr<void> keep_;
  std::unique_ptr<Library> library_;
  const CpuKernel& kernel_;
};

class CpuEvent final : public Event {
 public:
  void record(const LaunchOptions&) override { seconds_ = steady_seconds(); }
  double seconds_since(const Event& earlier) const override {
    return seconds_ - static_cast<const CpuEvent&>(earlier).seconds_;
  }

 private:
  double seconds_ = 0;
};

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }

  // The last answer is kept, because each load of a kernel asks, and a virtual machine stops at
  // each question to the processor.
  std::string unavailable_reason(const Target& target) const override {
    const std::lock_guard lock(mutex_);
    Question question = {target.backend, target.name, target.features, target.compile_flags};
    if (last_ != question) {
      reason_ = find_reason(target);
      last_ = std::move(question);
    }
    return reason_;
  }

  std::shared_ptr<const LoadedKernel> load(const jit::Artifact& artifact,
                                           const Target& target) const override {
    const std::string reason = unavailable_reason(target);
    if (!reason.empty()) {
      throw Error(ErrorCode::load_failed,
                  fmt::format("cannot load kernel '{}': {}", artifact.name, reason));
    }
    return std::make_shared<LoadedCpuKernel>(artifact);
  }

  // A launch returns when its result is written.
  void synchronize(const LaunchOptions&) const override {}

  bool uses_host_memory() const override { return true; }
  void* allocate(std::size_t bytes, const LaunchOptions&) const override {
    return allocate_aligned(bytes);
  }
  void release(void* memory, const LaunchOptions&) const noexcept override { std::free(memory); }
  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      const LaunchOptions&) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    const LaunchOptions&) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void fill(void* to, unsigned char value, std::size_t bytes, const LaunchOptions&) const override {
    if (bytes > 0) std::memset(to, value, bytes);
  }
  std::unique_ptr<Event> make_event(const LaunchOptions&) const override {
    return std::make_unique<CpuEvent>();
  }
  std::size_t cache_bytes(const LaunchOptions&) const override {
    return static_cast<std::size_t>(last_level_cache_bytes());
  }
  std::string device_name(const LaunchOptions&) const override { return {}; }

 private:
  // All of a target that the answer depends on.
  struct Question {
    std::string backend, name;
    std::vector<std::string> features, flags;
    bool operator==(const Question&) const = default;
  };
  static std::string find_reason(const Target& target) {
    if (target.backend != "cpu") {
      return fmt::format("target '{}' needs the backend '{}', this is 'cpu'", target.name,
                         target.backend);
    }
    std::vector<std::string> missing;
    for (const std::string& feature : target.features) {
      if (!cpu_has(feature)) missing.push_back(feature);
    }
    if (missing.empty()) return why_flags_not_here(target);
    return fmt::format("target '{}' needs the processor features {}, this machine lacks {}",
                       target.name, join(target.features, ", "), join(missing, ", "));
  }

  mutable Mutex mutex_;
  mutable std::optional<Question> last_;
  mutable std::string reason_;
};

// More threads than processors help only a caller who asks OpenMP for them.
int named_threads(int wanted) {
  const int most = std::min(kMaxThreads, std::max(usable_processors(), omp_get_max_threads()));
  if (wanted > most) {
    note_too_many_threads(wanted, most,
                          "the larger of this process's processors and OpenMP's limit, and never "
                          "more than 1024");
  }
  return std::min({wanted, most, omp_get_thread_limit()});
}

}  // namespace

const Backend& cpu_backend() {
  static const Forever<CpuBackend> backend;
  return *backend;
}

Place host_place() { return {&cpu_backend(), {}}; }

// Inside a parallel region one thread per launch is the polite default; a caller that wants nested
// teams allows them in OpenMP and gives a number of threads.
int thread_limit(const LaunchOptions& options) {
  if (options.threads < 0) refuse_threads(options.threads);
  if (options.threads == 1 || g_openmp.is_alone.load(std::memory_order_relaxed)) return 1;
  if (omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  if (options.threads > 0) return named_threads(options.threads);
  return omp_in_parallel() != 0 ? 1 : std::min(omp_get_max_threads(), kMaxThreads);
}

void set_default_threads(int threads) { omp_set_num_threads(std::clamp(threads, 1, kMaxThreads)); }

}  // namespace tessera::runtime
