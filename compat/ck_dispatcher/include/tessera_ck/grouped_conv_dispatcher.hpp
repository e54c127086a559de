// Choosing and running convolution kernels of a registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera_ck/base_dispatcher.hpp"
#include "tessera_ck/grouped_conv_registry.hpp"

namespace tessera_ck {

// Parts of kernels' names, best first.
using GroupedConvHeuristic = std::function<std::vector<std::string>(const GroupedConvProblem&)>;

// Heuristic without a function is GroupedConvRegistry::get_solution().
enum class GroupedConvStrategy { PriorityBased, Heuristic };

class GroupedConvDispatcher : public BaseDispatcher<GroupedConvRegistry, GroupedConvKernelInstance,
                                                    GroupedConvProblem, GroupedConvStrategy> {
 public:
  // registry: null means GroupedConvRegistry::instance(). It must outlive the dispatcher.
  explicit GroupedConvDispatcher(GroupedConvRegistry* registry = nullptr)
      : BaseDispatcher(registry, SelectionStrategy::PriorityBased, true) {}

  // Null where no kernel of the registry computes the problem.
  GroupedConvKernelInstancePtr select_kernel(const GroupedConvProblem& problem) const {
    if (strategy() == SelectionStrategy::PriorityBased) return registry().find(problem);
    if (!has_heuristic()) return registry().get_solution(problem);
    const auto has_part = [](const std::string& kernel, const std::string& part) {
      return kernel.find(part) != std::string::npos;
    };
    return best(problem, fitting(problem), has_part);
  }
  GroupedConvKernelInstancePtr select(const GroupedConvProblem& problem) const {
    return select_kernel(problem);
  }

  // Milliseconds. Throws NoKernelFound, and DispatcherError with a sentence where the kernel's
  // machine is not here.
  float run(const void* in, const void* wei, void* out, const GroupedConvProblem& problem,
            void* stream = nullptr, int warmup = 3, int repeat = 10) const {
    return required(select_kernel(problem), [&] { return "'" + problem.to_string() + "'"; })
        ->run(in, wei, out, problem, stream, benchmarking_enabled(), {warmup, repeat});
  }
};

}  // namespace tessera_ck
