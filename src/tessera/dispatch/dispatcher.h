// The spine: problem in, result out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/registry/registry.h"
#include "tessera/select/select.h"

namespace tessera {
struct Family;  // families/family.h, which tools.hpp brings along
}

#pragma GCC visibility push(default)
namespace tessera {

// What happens with a problem on which no learned model has an opinion: the next ranker chooses, or
// the legal kernels are measured once and the winner is remembered, as with autotuning.
enum class WithoutModel : std::uint8_t { estimate, measure };

struct DispatcherOptions {
  std::string target;  // a row's name or a JSON file; empty: TESSERA_TARGET, or else this machine
  jit::BuildOptions build;
  std::vector<std::shared_ptr<const Ranker>>
      rankers;            // empty: tuned, learned, analytic, first legal
  std::string models;     // a folder of learned models, asked before the shipped ones; empty:
                          // TESSERA_MODELS, or else models in the cache folder
  bool autotune = false;  // measure on first use and remember the winner
  double autotune_seconds = 2.0;  // per problem
  int autotune_top = 5;           // how many of the rankers' best kernels are measured
  WithoutModel without_model = WithoutModel::estimate;
  int without_model_top = 0;  // how many of the best by the estimate are measured; 0: all
  std::string tuning_store;   // empty: tuning.sqlite in the cache folder
  std::string tuning_worker;  // the worker program; empty: the one installed with the library
  bool deterministic = false;
  // A row, an image or a sequence has the same bits whatever else is in the batch.
  bool batch_invariant = false;
  // The file in which the problems that are asked are written down, see docs/serving.md; empty:
  // TESSERA_RECORD, or else none.
  std::string record;
  // Compares one launch of so many, drawn at random, with the fp64 reference in the background, on
  // rows that are drawn at random too. A mismatch is a warning, and the kernel is set aside for the
  // problem. 0: TESSERA_VERIFY_EVERY, or else none. See docs/serving.md.
  int verify_every = 0;
};

struct RunOptions {
  runtime::LaunchOptions launch;
  std::string force;    // a kernel name: run this kernel or throw
  bool verify = false;  // compare with the fp64 reference; throws Error{verification_failed}
};

struct [[gnu::visibility("hidden")]] CallPlan;

// A kernel that is ready to be called for one problem.
struct ReadyKernel {
  const Family* family = nullptr;
  const Target* target = nullptr;  // the dispatcher's; lives as long as that
  KernelSpec spec;
  std::string name;
  ChoiceSource source = ChoiceSource::first_legal;
  int worth_threads = 0;  // CPU: the most threads that a call is worth; 0: as many as there may be
  double predicted_seconds = 0;
  std::shared_ptr<const runtime::LoadedKernel> loaded;
  std::shared_ptr<const CallPlan> plan;
  std::shared_ptr<const Problem> own;  // batch invariant: what is computed, any_batch().own
};
// The launch of a ready kernel, on no more threads than it is worth. For programs with tools.hpp.
[[gnu::visibility("hidden")]] Launch launch_of(const ReadyKernel& kernel, const Problem& problem,
                                               const Operands& operands);

// A kernel for a problem, and what its steps do.
struct ExecutionPlan {
  std::string kernel;
  std::vector<Stage> stages;
};

// What a dispatcher with these options computes for a problem.
[[gnu::visibility("hidden")]] Problem computed_of(const DispatcherOptions& options,
                                                  const Problem& problem);

// What time() measured.
struct RunTiming {
  double median_seconds = 0;
  double min_seconds = 0;
  std::vector<double> seconds;  // one for each timed run
};

// What verify_every did so far.
struct SamplingReport {
  std::uint64_t launches = 0;  // among which launches were drawn
  std::uint64_t compared = 0;
  std::uint64_t wrong = 0;  // of those that were compared
  // Launches that were drawn and not compared: because the last comparison was still running, the
  // operands had more than 256 MiB, an operand was packed ahead or the stream was captured, or
  // memory, a thread or the reference was not to be had.
  std::uint64_t busy = 0, too_large = 0, not_comparable = 0, failed = 0;
};
class RangePlan;    // dispatch/range_plan.h
struct FieldRange;  // select/ranges.h

// Thread-safe. Holds the memo; kernels themselves live in the registry.
class Dispatcher {
 public:
  explicit Dispatcher(DispatcherOptions options = {});
  // Chooses among the registry's declared kernels only, and loads through it.
  Dispatcher(DispatcherOptions options, std::shared_ptr<Registry> registry);
  ~Dispatcher();

  const Target& target() const;
  Registry& registry();

  // The kernel for a problem: memo -> validate -> choose -> emit -> build -> load -> memo. The
  // reference stays valid while the dispatcher lives. A choice once made does not change, unless
  // verify_every finds the kernel wrong. Without a compiler, or where compiling is forbidden
  // (TESSERA_NO_JIT=1, allow_compile = false, a hook that refuses), it chooses the best kernel that
  // is ready and logs a warning; Error{jit_disabled} where none is.
  // Throws Error{unsupported} with the missing features when this machine cannot run the target.
  const ReadyKernel& kernel_for(const Problem& problem, const RunOptions& options = {});

  // kernel_for() and launch. Checks the operands against the problem. A problem with a packed
  // operand cannot be verified, because the reference needs the operand as it was before.
  void run(const Problem& problem, const Operands& operands, const RunOptions& options = {});

  // Loads the kernels of a pack, on a GPU onto the device of `place` too, so that later launches of
  // them load nothing: the first launch may then be captured into a graph, given a workspace. Calls
  // choose as ever; a problem whose choice is not in the pack loads its kernel at its first call.
  Preloaded preload(const std::filesystem::path& pack, const runtime::LaunchOptions& place = {});

  // What verify_every did so far. Waits for a comparison that is running.
  SamplingReport sampling() const;

  // How often time() runs a problem: `cold` times before it reads the clock, then `repeat` times.
  // Without a call, 5 and 10. Throws Error{invalid_argument} for cold below 0 or repeat below 1.
  void set_timing(int cold, int repeat);
  // run(), timed: on a GPU by events of the stream. Returns when the work is done.
  RunTiming time(const Problem& problem, const Operands& operands, const RunOptions& options = {});

  // The decision and its stages, in their order; builds nothing.
  ExecutionPlan plan(const Problem& problem, const RunOptions& options = {}) const;
  // The decision alone; builds nothing.
  Decision explain(const Problem& problem, const RunOptions& options = {}) const;

  // The most bytes that a run may need as LaunchOptions::workspace, at any addresses of the
  // operands; may be 0. Ask with the options of the runs: they decide which kernel is chosen.
  std::size_t workspace_bytes(const Problem& problem, const RunOptions& options = {});

  // The bytes of the packed operand and the packing itself, for a problem that reads an operand
  // packed ahead. Only the operand that is packed need be given. Call both with the options of the
  // later runs.
  std::size_t packed_bytes(const Problem& problem, const RunOptions& options = {});
  void pack(const Problem& problem, const Operands& operands, void* packed,
            const RunOptions& options = {});

  // Counts a launch in the record, if there is one. For launches that do not pass through run().
  [[gnu::visibility("hidden")]] void count_call(const ReadyKernel& kernel, const Problem& problem,
                                                const RunOptions& options);
  // Whether launches of this dispatcher's kernels are to go through launch_sampled().
  [[gnu::visibility("hidden")]] bool samples() const;
  [[gnu::visibility("hidden")]] void launch_sampled(const ReadyKernel& kernel,
                                                    const Problem& problem,
                                                    const Operands& operands, const Launch& launch,
                                                    const runtime::LaunchOptions& options) const;
  // One plan for all values of one field of the problem: chooses, builds and loads every kernel
  // that one of them needs. Measures nothing; what was measured for a value counts there. The
  // options' threads, device and forced kernel count. The dispatcher must outlive the plan.
  std::shared_ptr<const RangePlan> plan_range(const Problem& problem, const FieldRange& range,
                                              const RunOptions& options = {});

 private:
  struct [[gnu::visibility("hidden")]] State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
#pragma GCC visibility pop
