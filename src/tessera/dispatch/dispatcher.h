// The spine: problem in, result out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/registry/registry.h"
#include "tessera/select/select.h"

namespace tessera {

struct DispatcherOptions {
  std::string target;  // a row's name or a JSON file; empty: TESSERA_TARGET, this machine
  jit::BuildOptions build;
  std::vector<std::shared_ptr<const Ranker>>
      rankers;            // empty: tuned, learned, analytic, first legal
  std::string models;     // a folder of learned models that replace the shipped ones; empty:
                          // TESSERA_MODELS, else models in the cache folder
  bool autotune = false;  // measure on first use and remember the winner
  double autotune_seconds = 2.0;  // per problem
  int autotune_top = 5;           // the k that the rankers think best
  std::string tuning_store;       // empty: tuning.sqlite in the cache folder
  std::string tuning_worker;      // the helper program; empty: the one installed with the library
  bool deterministic = false;
};

struct RunOptions {
  runtime::LaunchOptions launch;
  std::string force;    // a kernel name: that one or an error
  bool verify = false;  // compare with the fp64 reference; throws Error{verification_failed}
};

// A kernel that is ready to be called for one problem.
struct ReadyKernel {
  KernelSpec spec;
  std::string name;
  ChoiceSource source = ChoiceSource::first_legal;
  double predicted_seconds = 0;
  std::shared_ptr<const runtime::LoadedKernel> loaded;
};

// Thread-safe. Holds the memo; kernels themselves live in the registry.
class Dispatcher {
 public:
  explicit Dispatcher(DispatcherOptions options = {});
  // Chooses among the registry's declared kernels only, and loads through it.
  Dispatcher(DispatcherOptions options, std::shared_ptr<Registry> registry);
  ~Dispatcher();

  const Target& target() const;
  Registry& registry();

  // Memo -> validate -> choose -> emit -> build -> load -> memo. The reference stays valid while
  // the dispatcher lives, and what was chosen once stays chosen. On a machine without a compiler
  // the best of the kernels in packs is chosen, and a warning logged. Throws Error{unsupported}
  // naming the missing features when this machine cannot run the target.
  const ReadyKernel& kernel_for(const Problem& problem, const RunOptions& options = {});

  // kernel_for() and launch. Operands are checked against the problem. A packed operand cannot be
  // verified: the reference needs it as it was.
  void run(const Problem& problem, const Operands& operands, const RunOptions& options = {});

  // The decision alone; builds nothing.
  Decision explain(const Problem& problem, const RunOptions& options = {}) const;

  // Bytes that a run may need as LaunchOptions::workspace, wherever the operands lie; 0: none.
  // Ask with the options of the runs: they decide which kernel is chosen.
  std::size_t workspace_bytes(const Problem& problem, const RunOptions& options = {});

  // Preshuffle: bytes of the packed operand and the packing, for a problem with preshuffled_b set.
  // Of the operands only the one that is packed is looked at. Pack with the options of the runs.
  std::size_t packed_bytes(const Problem& problem, const RunOptions& options = {});
  void pack(const Problem& problem, const Operands& operands, void* packed,
            const RunOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
