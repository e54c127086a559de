// Choosing and running attention kernels of a registry.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera_ck/base_dispatcher.hpp"
#include "tessera_ck/fmha_registry.hpp"

namespace tessera_ck {

// The names of kernels, best first.
using FmhaHeuristicFunction = std::function<std::vector<std::string>(const FmhaProblem&)>;

struct FmhaExecutionStage {
  FmhaKernelFamily family;
  std::string kernel_id;
};

// The original's stages. Tessera does those of one API family in one launch of one kernel, whose
// name they all have: parts of the keys are merged where they were made, and gradients need no
// stage that sums or converts.
struct FmhaExecutionPlan {
  FmhaApiFamily api_family = FmhaApiFamily::Fwd;
  std::vector<FmhaExecutionStage> stages;
  bool is_valid() const { return !stages.empty(); }
};

// FirstFit: by the lengths that kernels are tuned for, as the original orders them: the shortest
// that reaches the problem's queries.
class FmhaDispatcher
    : public BaseDispatcher<FmhaRegistry, FmhaKernelInstance, FmhaProblem, FittingStrategy> {
 public:
  // registry: null means FmhaRegistry::instance(). It must outlive the dispatcher.
  explicit FmhaDispatcher(FmhaRegistry* registry = nullptr, const std::string& gfx_arch = {})
      : BaseDispatcher(registry, SelectionStrategy::FirstFit, false, gfx_arch) {}

  void set_timing(int cold, int repeat) { timing_ = {cold, repeat}; }

  // Null where no kernel of the registry computes the problem.
  FmhaKernelInstancePtr select_kernel(const FmhaProblem& problem) const {
    const auto able = fitting(problem, problem.gfx_arch);
    const bool by_estimate = strategy() == SelectionStrategy::Heuristic || able.empty();
    return by_estimate ? best(problem, able, is_equal) : by_length(problem, able);
  }

  // Not valid where no kernel computes the problem.
  FmhaExecutionPlan plan(const FmhaProblem& problem) const {
    FmhaExecutionPlan made;
    made.api_family = problem.api_family;
    const FmhaKernelInstancePtr kernel = select_kernel(problem);
    if (kernel == nullptr) return made;
    for (const FmhaKernelFamily family : stages_of(problem.api_family)) {
      made.stages.push_back({family, kernel->get_name()});
    }
    return made;
  }

  // Milliseconds, or 0 without benchmarking. Throws NoKernelFound, and DispatcherError with a
  // sentence where the kernel's machine is not here.
  float run(const FmhaInvocation& call, void* stream = nullptr) const {
    const auto text = [&call] { return "'" + call.problem.to_string() + "'"; };
    return run(required(select_kernel(call.problem), text), call, stream);
  }
  float run_explicit(const std::string& id, const FmhaInvocation& call,
                     void* stream = nullptr) const {
    return run(named(id), call, stream);
  }
#define CK_TILE_RUN(name, family)                                                             \
  float name(const FmhaProblem& p, const tessera::FmhaOperands& args, void* stream = nullptr) \
      const {                                                                                 \
    return run_family(FmhaApiFamily::family, p, args, stream);                                \
  }
  CK_TILE_RUN(run_fwd, Fwd)
  CK_TILE_RUN(run_fwd_pagedkv, FwdPagedKv)
  CK_TILE_RUN(run_fwd_splitkv, FwdSplitKv)
  CK_TILE_RUN(run_fwd_appendkv, FwdAppendKv)
  CK_TILE_RUN(run_batch_prefill, BatchPrefill)
  CK_TILE_RUN(run_bwd, Bwd)
#undef CK_TILE_RUN

 private:
  float run(const FmhaKernelInstancePtr& kernel, const FmhaInvocation& call, void* stream) const {
    return kernel->run(call, stream, benchmarking_enabled(), timing_);
  }
  static std::vector<FmhaKernelFamily> stages_of(FmhaApiFamily family) {
    using Kernel = FmhaKernelFamily;
    static const std::vector<FmhaKernelFamily> kStages[] = {
        {Kernel::Fwd},
        {Kernel::FwdPagedKv},
        {Kernel::FwdSplitKv, Kernel::FwdSplitKvCombine},
        {Kernel::FwdAppendKv},
        {Kernel::BatchPrefill},
        {Kernel::BwdDotDoO, Kernel::BwdDqDkDv, Kernel::BwdConvertDq}};
    return kStages[static_cast<std::size_t>(family)];
  }
  float run_family(FmhaApiFamily family, const FmhaProblem& p, const tessera::FmhaOperands& args,
                   void* stream) const {
    if (p.api_family != family) {
      throw UnsupportedProblem(std::string("the problem is of the family ") +
                               to_string(p.api_family) + ", and the call is of " +
                               to_string(family));
    }
    return run(FmhaInvocation::make(p, args), stream);
  }
  static FmhaKernelInstancePtr by_length(const FmhaProblem& problem,
                                         const std::vector<FmhaKernelInstancePtr>& able) {
    const auto rank = [&problem](const FmhaKernelInstancePtr& one) {
      const int rows = one->spec().algorithm.tile.m;
      return rows >= problem.asked.seqlen_q ? std::pair(0, rows) : std::pair(1, -rows);
    };
    return *std::min_element(able.begin(), able.end(),
                             [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
  }

  Timing timing_;
};

}  // namespace tessera_ck
