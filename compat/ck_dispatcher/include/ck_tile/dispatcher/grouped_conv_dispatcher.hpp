// Choosing and running convolution kernels of a registry.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/grouped_conv_registry.hpp"

namespace ck_tile::dispatcher {

// Parts of kernels' names, best first.
using GroupedConvHeuristic = std::function<std::vector<std::string>(const GroupedConvProblem&)>;

class GroupedConvDispatcher {
 public:
  // Heuristic without a function is GroupedConvRegistry::get_solution().
  enum class SelectionStrategy { PriorityBased, Heuristic };

  // registry: null means GroupedConvRegistry::instance(). It must outlive the dispatcher.
  explicit GroupedConvDispatcher(GroupedConvRegistry* registry = nullptr)
      : registry_(registry == nullptr ? &GroupedConvRegistry::instance() : registry) {}

  void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
  void set_heuristic(GroupedConvHeuristic heuristic) {
    heuristic_ = std::move(heuristic);
    strategy_ = SelectionStrategy::Heuristic;
  }
  // Without it run() launches once, and returns 0.
  void set_benchmarking(bool value) { benchmarking_ = value; }
  bool benchmarking_enabled() const { return benchmarking_; }

  // Null where no kernel of the registry computes the problem.
  GroupedConvKernelInstancePtr select_kernel(const GroupedConvProblem& problem) const {
    if (strategy_ == SelectionStrategy::PriorityBased) return registry_->find(problem);
    if (!heuristic_) return registry_->get_solution(problem);
    const auto able = registry_->filter(
        [&](const GroupedConvKernelInstance& one) { return one.is_supported(problem); });
    for (const std::string& part : heuristic_(problem)) {
      for (const GroupedConvKernelInstancePtr& one : able) {
        if (one->name().find(part) != std::string::npos) return one;
      }
    }
    return able.empty() ? nullptr : able.front();
  }
  GroupedConvKernelInstancePtr select(const GroupedConvProblem& problem) const {
    return select_kernel(problem);
  }

  // Milliseconds. Throws NoKernelFound, and DispatcherError with a sentence where the kernel's
  // machine is not here.
  float run(const void* in, const void* wei, void* out, const GroupedConvProblem& problem,
            void* stream = nullptr, int warmup = 3, int repeat = 10) const {
    const GroupedConvKernelInstancePtr kernel = select_kernel(problem);
    if (kernel == nullptr) {
      throw NoKernelFound("no kernel of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) + ", computes '" + problem.to_string() +
                          "'");
    }
    return kernel->run(in, wei, out, problem, stream, benchmarking_, {warmup, repeat});
  }

 private:
  GroupedConvRegistry* registry_;
  SelectionStrategy strategy_ = SelectionStrategy::PriorityBased;
  GroupedConvHeuristic heuristic_;
  bool benchmarking_ = true;
};

}  // namespace ck_tile::dispatcher
