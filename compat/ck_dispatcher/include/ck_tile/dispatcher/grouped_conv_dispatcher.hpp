// Choosing and running convolution kernels of a registry.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/dispatcher_error.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernels.hpp"

namespace ck_tile::dispatcher {

class GroupedConvDispatcher {
 public:
  // PriorityBased: GroupedConvRegistry::find(). Heuristic: the first kernel whose name has the
  // first of the function's words, and so on; else find().
  enum class SelectionStrategy { PriorityBased, Heuristic };
  using HeuristicFunction = std::function<std::vector<std::string>(const GroupedConvProblem&)>;

  // registry: null means GroupedConvRegistry::instance(). It must outlive the dispatcher.
  explicit GroupedConvDispatcher(GroupedConvRegistry* registry = nullptr)
      : registry_(registry == nullptr ? &GroupedConvRegistry::instance() : registry) {}

  void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
  void set_heuristic(HeuristicFunction heuristic) { heuristic_ = std::move(heuristic); }
  // Without it kernels run once, and run() returns 0.
  void set_benchmarking(bool enable) { benchmarking_ = enable; }
  bool benchmarking_enabled() const { return benchmarking_; }

  // Null where no kernel of the registry computes the problem. The kernel is the registry's.
  const GroupedConvKernelInstance* select_kernel(const GroupedConvProblem& problem) const {
    if (strategy_ == SelectionStrategy::Heuristic && heuristic_) {
      for (const std::string& word : heuristic_(problem)) {
        for (const GroupedConvKernelInstance* one : registry_->all_kernels()) {
          const bool is_named = one->name().find(word) != std::string::npos;
          if (is_named && one->matches(problem) && one->is_supported(problem)) return one;
        }
      }
    }
    return registry_->find(problem);
  }
  const GroupedConvKernelInstance* select(const GroupedConvProblem& problem) const {
    return select_kernel(problem);
  }

  // Milliseconds. Throws NoKernelFound. The first form reads the tensors that the thread's
  // ConvDispatchBuffers name; without any, kernels of Tessera's compute nothing and return 0.
  float run(const GroupedConvProblem& problem, void* stream = nullptr) {
    const GroupedConvKernelInstance* kernel = select_kernel(problem);
    if (kernel == nullptr) {
      throw NoKernelFound("no kernel of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) + ", computes " + problem.to_string());
    }
    return kernel->run(problem, stream);
  }
  float run(const void* input_ptr, const void* weight_ptr, void* output_ptr,
            const GroupedConvProblem& problem, void* stream = nullptr, int warmup = 3,
            int repeat = 10) {
    const Given given(
        {input_ptr, weight_ptr, output_ptr, warmup, repeat, benchmarking_, problem.split_k});
    return run(problem, stream);
  }

 private:
  // The thread's buffers while a run takes place.
  class Given {
   public:
    explicit Given(const ConvDispatchBuffers& buffers)
        : before_(std::exchange(g_conv_dispatch_buffers, buffers)) {}
    ~Given() { g_conv_dispatch_buffers = before_; }
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;

   private:
    ConvDispatchBuffers before_;
  };

  GroupedConvRegistry* registry_;
  SelectionStrategy strategy_ = SelectionStrategy::PriorityBased;
  HeuristicFunction heuristic_;
  bool benchmarking_ = true;
};

}  // namespace ck_tile::dispatcher
