// Choosing and running GEMM kernels of a registry.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/dispatcher_error.hpp"
#include "ck_tile/dispatcher/dispatcher_log.hpp"
#include "ck_tile/dispatcher/kernel_instance.hpp"
#include "ck_tile/dispatcher/problem.hpp"
#include "ck_tile/dispatcher/registry.hpp"
#include "ck_tile/dispatcher/selection_strategy.hpp"

namespace ck_tile::dispatcher {

// Identifiers of kernels, best first.
using HeuristicFunction = std::function<std::vector<std::string>(const Problem&)>;

class Dispatcher {
 public:
  // FirstFit: the first kernel that computes the problem. Heuristic: the first of the function's
  // that does, or else the first fit; without a function the one that is predicted to be fastest.
  using SelectionStrategy = dispatcher::SelectionStrategy;

  // registry: null means Registry::instance(). It must outlive the dispatcher.
  explicit Dispatcher(Registry* registry = nullptr, const std::string& gfx_arch = "")
      : registry_(registry == nullptr ? &Registry::instance() : registry), arch_(gfx_arch) {}
  explicit Dispatcher(Registry& registry, const std::string& gfx_arch = "")
      : Dispatcher(&registry, gfx_arch) {}

  // Only kernels of this target are chosen; empty: of any.
  void set_arch(const std::string& arch) { arch_ = arch; }
  const std::string& arch() const { return arch_; }
  void set_heuristic(HeuristicFunction heuristic) {
    heuristic_ = nullptr;
    if (heuristic) {
      heuristic_ = [registry = registry_, named = std::move(heuristic)](const Problem& problem) {
        std::vector<KernelInstancePtr> found;
        for (const std::string& identifier : named(problem)) {
          found.push_back(registry->lookup(identifier));
        }
        return found;
      };
    }
    strategy_ = SelectionStrategy::Heuristic;
  }
  // The same by a function that gives the key of one kernel, or none.
  template <class Function,
            class = std::enable_if_t<std::is_convertible_v<
                std::invoke_result_t<Function, const Problem&>, std::optional<KernelKey>>>>
  void set_heuristic(Function keyed) {
    heuristic_ = [registry = registry_, keyed = std::move(keyed)](const Problem& problem) {
      const std::optional<KernelKey> key = keyed(problem);
      return std::vector<KernelInstancePtr>{key ? registry->lookup(*key) : nullptr};
    };
    strategy_ = SelectionStrategy::Heuristic;
  }
  void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
  // Without it kernels run once, and run() returns 0 where they know how.
  void set_benchmarking(bool enable) { benchmarking_ = enable; }
  bool benchmarking_enabled() const { return benchmarking_; }

  // Null where no kernel of the registry computes the problem.
  KernelInstancePtr select_kernel(const Problem& problem) const {
    KernelInstancePtr found;
    if (strategy_ == SelectionStrategy::Heuristic) {
      found = heuristic_ ? by_heuristic(problem) : fastest(problem);
    }
    if (found == nullptr) found = first_fit(problem);
    if (found == nullptr) {
      log_no_kernel_found(text(problem));
    } else {
      log_kernel_selected(found->get_name(), text(problem));
    }
    return found;
  }

  // Milliseconds. Throws NoKernelFound.
  float run(const void* a_ptr, const void* b_ptr, void* c_ptr, const Problem& problem,
            void* stream = nullptr) const {
    return run_fused(a_ptr, b_ptr, c_ptr, nullptr, problem, stream);
  }
  float run_fused(const void* a_ptr, const void* b_ptr, void* c_ptr, const void** d_ptrs,
                  const Problem& problem, void* stream = nullptr) const {
    const KernelInstancePtr kernel = select_kernel(problem);
    if (kernel == nullptr) {
      throw NoKernelFound("no kernel of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) + ", computes " + text(problem));
    }
    return run_one(*kernel, a_ptr, b_ptr, c_ptr, d_ptrs, problem, stream);
  }
  // Throws NoKernelFound for an identifier that is not here, UnsupportedProblem where the kernel
  // does not compute the problem.
  float run_explicit(const std::string& kernel_id, const void* a_ptr, const void* b_ptr,
                     void* c_ptr, const void** d_ptrs, const Problem& problem,
                     void* stream = nullptr) const {
    const KernelInstancePtr kernel = registry_->lookup(kernel_id);
    if (kernel == nullptr) {
      throw NoKernelFound("the registry '" + registry_->get_name() + "' has no kernel '" +
                          kernel_id + "'");
    }
    if (!kernel->supports(problem)) {
      throw UnsupportedProblem(kernel->get_name() + " does not compute " + text(problem));
    }
    return run_one(*kernel, a_ptr, b_ptr, c_ptr, d_ptrs, problem, stream);
  }
  // Whether C holds the result; false where no kernel computes the problem.
  bool validate(const void* a_ptr, const void* b_ptr, const void* c_ptr, const void** d_ptrs,
                const Problem& problem, float tolerance = 1e-3F) const {
    const KernelInstancePtr kernel = select_kernel(problem);
    return kernel != nullptr && kernel->validate(a_ptr, b_ptr, c_ptr, d_ptrs, problem, tolerance);
  }

 private:
  static std::string text(const Problem& p) {
    return "M=" + std::to_string(p.M) + " N=" + std::to_string(p.N) + " K=" + std::to_string(p.K);
  }
  bool fits(const KernelInstance& one, const Problem& problem) const {
    const std::string& arch = one.get_key().gfx_arch;
    const bool is_other = !arch_.empty() && !arch.empty() && arch != arch_;
    const bool can = !is_other && one.supports(problem);
    log_kernel_candidate(one.get_name(), can, is_other ? "it is for " + arch : "");
    return can;
  }
  KernelInstancePtr first_fit(const Problem& problem) const {
    for (const KernelInstancePtr& one : registry_->get_all()) {
      if (fits(*one, problem)) return one;
    }
    return nullptr;
  }
  KernelInstancePtr by_heuristic(const Problem& problem) const {
    for (const KernelInstancePtr& one : heuristic_(problem)) {
      if (one != nullptr && fits(*one, problem)) return one;
    }
    return nullptr;
  }
  KernelInstancePtr fastest(const Problem& problem) const {
    KernelInstancePtr found;
    double least = 0;
    for (const KernelInstancePtr& one : registry_->get_all()) {
      if (!fits(*one, problem)) continue;
      const double seconds = one->predicted_seconds(problem);
      if (found == nullptr || (seconds > 0 && seconds < least)) found = one, least = seconds;
    }
    return found;
  }
  float run_one(const KernelInstance& kernel, const void* a, const void* b, void* c,
                const void** d_ptrs, const Problem& problem, void* stream) const {
    return benchmarking_ ? kernel.run(a, b, c, d_ptrs, problem, stream)
                         : kernel.run_once(a, b, c, d_ptrs, problem, stream);
  }

  Registry* registry_;
  std::string arch_;
  std::function<std::vector<KernelInstancePtr>(const Problem&)> heuristic_;
  SelectionStrategy strategy_ = SelectionStrategy::FirstFit;
  bool benchmarking_ = true;
};

}  // namespace ck_tile::dispatcher
