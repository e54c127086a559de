// Choosing and running attention kernels of a registry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/dispatcher_error.hpp"
#include "ck_tile/dispatcher/fmha_kernels.hpp"
#include "ck_tile/dispatcher/fmha_registry.hpp"
#include "ck_tile/dispatcher/selection_strategy.hpp"

namespace ck_tile::dispatcher {

// Identifiers of kernels, best first.
using FmhaHeuristicFunction = std::function<std::vector<std::string>(const FmhaProblem&)>;

struct FmhaExecutionStage {
  FmhaKernelFamily family = FmhaKernelFamily::Fwd;
  std::string kernel_id;
};

// The stages of a call, one behind the other. Tessera does all of one call in one of them; its
// kernels for the others have nothing to do.
struct FmhaExecutionPlan {
  FmhaApiFamily api_family = FmhaApiFamily::Fwd;
  std::vector<FmhaExecutionStage> stages;
  bool is_valid() const { return !stages.empty(); }
};

class FmhaDispatcher {
 public:
  // FirstFit: by length, as the original orders kernels. Heuristic: the first of the function's
  // that fits, or else the same.
  using SelectionStrategy = dispatcher::SelectionStrategy;

  // registry: null means FmhaRegistry::instance(). It must outlive the dispatcher.
  explicit FmhaDispatcher(FmhaRegistry* registry = nullptr, const std::string& gfx_arch = "")
      : registry_(registry == nullptr ? &FmhaRegistry::instance() : registry), arch_(gfx_arch) {}

  void set_heuristic(FmhaHeuristicFunction heuristic) {
    heuristic_ = std::move(heuristic);
    if (heuristic_) strategy_ = SelectionStrategy::Heuristic;
  }
  void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
  void set_timing(int cold, int repeat) { cold_ = cold, repeat_ = repeat; }
  void set_arch(const std::string& arch) { arch_ = arch; }
  const std::string& arch() const { return arch_; }
  // Without it kernels run once, and run() returns 0.
  void set_benchmarking(bool enable) { benchmarking_ = enable; }
  bool benchmarking_enabled() const { return benchmarking_; }

  // The kernel of one family, the problem's; null where none computes it.
  FmhaKernelInstancePtr select_kernel(const FmhaProblem& problem) const {
    if (!problem.is_valid()) return nullptr;
    if (strategy_ == SelectionStrategy::Heuristic && heuristic_) {
      for (const std::string& identifier : heuristic_(problem)) {
        const FmhaKernelInstancePtr one = registry_->lookup(identifier);
        if (one != nullptr && one->supports(problem)) return one;
      }
    }
    return by_length(problem);
  }

  // Not valid where a stage that must be there has no kernel.
  FmhaExecutionPlan plan(const FmhaProblem& problem) const {
    FmhaExecutionPlan made;
    made.api_family = problem.api_family;
    for (const FmhaKernelFamily family : stages_of(problem.api_family)) {
      FmhaProblem stage = problem;
      stage.requested_family = family;
      const FmhaKernelInstancePtr kernel = select_kernel(stage);
      if (kernel != nullptr) {
        made.stages.push_back({family, kernel->get_key().encode_identifier()});
      } else if (family != FmhaKernelFamily::BwdConvertDq) {  // the one that need not be there
        made.stages.clear();
        break;
      }
    }
    return made;
  }

  // Milliseconds, or 0 without benchmarking. Throws NoKernelFound.
  float run(const FmhaInvocation& call, void* stream = nullptr) const {
    const FmhaProblem problem = FmhaProblem::from_invocation(call, arch_);
    const FmhaExecutionPlan stages = plan(problem);
    if (!stages.is_valid()) {
      throw NoKernelFound("no kernels of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) + ", compute " + problem.to_string());
    }
    float milliseconds = 0;
    for (const FmhaExecutionStage& stage : stages.stages) {
      milliseconds += run_explicit(stage.kernel_id, call, stream);
    }
    return milliseconds;
  }
  float run_explicit(const std::string& kernel_id, const FmhaInvocation& call,
                     void* stream = nullptr) const {
    const FmhaKernelInstancePtr kernel = registry_->lookup(kernel_id);
    if (kernel == nullptr) {
      throw NoKernelFound("the registry '" + registry_->get_name() + "' has no kernel '" +
                          kernel_id + "'");
    }
    return kernel->run(call, config(stream));
  }
#define CK_TILE_RUN(name)                                                                        \
  float run_##name(fmha_##name##_traits traits, fmha_##name##_args args, void* stream = nullptr) \
      const {                                                                                    \
    return run(FmhaInvocation::make(std::move(traits), std::move(args)), stream);                \
  }
  CK_TILE_RUN(fwd)
  CK_TILE_RUN(fwd_pagedkv)
  CK_TILE_RUN(fwd_splitkv)
  CK_TILE_RUN(fwd_appendkv)
  CK_TILE_RUN(batch_prefill)
  CK_TILE_RUN(bwd)
#undef CK_TILE_RUN

 private:
  static const std::vector<FmhaKernelFamily>& stages_of(FmhaApiFamily family) {
    using Kernel = FmhaKernelFamily;
    static const std::vector<Kernel> kStages[] = {
        {Kernel::Fwd},
        {Kernel::FwdPagedKv},
        {Kernel::FwdSplitKv, Kernel::FwdSplitKvCombine},
        {Kernel::FwdAppendKv},
        {Kernel::BatchPrefill},
        {Kernel::BwdDotDoO, Kernel::BwdDqDkDv, Kernel::BwdConvertDq}};
    return kStages[static_cast<std::size_t>(family)];
  }
  // The order of kernels for so many queries: those whose tile divides them, then tiles of 64, the
  // largest ones, and others; then rank, and the smaller tile.
  static std::tuple<int, int, int> place_of(const FmhaKernelKey& key, std::int64_t queries,
                                            int largest) {
    const int tile = key.algorithm.tile_shape.m0;
    int group = tile == 64 ? 1 : tile == largest ? 2 : 3;
    if (tile > 0 && queries > 0 && queries % tile == 0) group = 0;
    return {group, key.algorithm.selection_rank, tile};
  }
  FmhaKernelInstancePtr by_length(const FmhaProblem& problem) const {
    const auto able =
        registry_->filter([&](const FmhaKernelInstance& one) { return one.supports(problem); });
    int largest = 0;
    for (const auto& one : able) {
      largest = std::max<int>(largest, one->get_key().algorithm.tile_shape.m0);
    }
    const auto before = [&](const FmhaKernelInstancePtr& a, const FmhaKernelInstancePtr& b) {
      const std::int64_t queries = problem.effective_max_seqlen_q();
      return place_of(a->get_key(), queries, largest) < place_of(b->get_key(), queries, largest);
    };
    const auto best = std::min_element(able.begin(), able.end(), before);
    return best == able.end() ? nullptr : *best;
  }
  ck_tile::stream_config config(void* stream) const {
    ck_tile::stream_config made;
    made.stream_id_ = static_cast<decltype(made.stream_id_)>(stream);
    made.time_kernel_ = made.is_gpu_timer_ = benchmarking_;
    made.cold_niters_ = benchmarking_ ? cold_ : 0;
    made.nrepeat_ = benchmarking_ ? repeat_ : 1;
    return made;
  }

  FmhaRegistry* registry_;
  FmhaHeuristicFunction heuristic_;
  SelectionStrategy strategy_ = SelectionStrategy::FirstFit;
  std::string arch_;
  int cold_ = 5, repeat_ = 10;
  bool benchmarking_ = false;
};

}  // namespace ck_tile::dispatcher
