// Choosing and running GEMM kernels of a registry.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/registry.hpp"

namespace ck_tile::dispatcher {

// The names of kernels, best first.
using HeuristicFunction = std::function<std::vector<std::string>(const Problem&)>;

class Dispatcher {
 public:
  // Heuristic without a function takes the kernel that Tessera predicts to be the fastest.
  enum class SelectionStrategy { FirstFit, Heuristic };

  // registry: null means Registry::instance(). It must outlive the dispatcher.
  explicit Dispatcher(Registry* registry = nullptr, const std::string& gfx_arch = {})
      : registry_(registry == nullptr ? &Registry::instance() : registry), arch_(gfx_arch) {}

  void set_strategy(SelectionStrategy strategy) { strategy_ = strategy; }
  void set_heuristic(HeuristicFunction heuristic) {
    heuristic_ = std::move(heuristic);
    strategy_ = SelectionStrategy::Heuristic;
  }
  // Only kernels of this target are chosen; empty: of any.
  void set_arch(const std::string& gfx_arch) { arch_ = gfx_arch; }
  const std::string& arch() const { return arch_; }
  // Without it run() launches once, and returns 0.
  void set_benchmarking(bool value) { benchmarking_ = value; }
  bool benchmarking_enabled() const { return benchmarking_; }

  // Null where no kernel of the registry computes the problem.
  KernelInstancePtr select_kernel(const Problem& problem) const {
    const std::vector<KernelInstancePtr> able = fitting(problem);
    if (able.empty() || strategy_ == SelectionStrategy::FirstFit) {
      return able.empty() ? nullptr : able.front();
    }
    return heuristic_ ? ranked(problem, able) : fastest(problem, able);
  }

  // Milliseconds. Throws NoKernelFound, and DispatcherError with a sentence where the kernel's
  // machine is not here.
  float run(const void* a, const void* b, void* c, const Problem& problem,
            void* stream = nullptr) const {
    return run_fused(a, b, c, nullptr, problem, stream);
  }
  float run_fused(const void* a, const void* b, void* c, const void* const* d_ptrs,
                  const Problem& problem, void* stream = nullptr) const {
    return selected(problem)->run(a, b, c, d_ptrs, problem, stream, benchmarking_);
  }
  // Throws NoKernelFound for a name that is not here, UnsupportedProblem where it cannot.
  float run_explicit(const std::string& id, const void* a, const void* b, void* c,
                     const void* const* d_ptrs, const Problem& problem,
                     void* stream = nullptr) const {
    const KernelInstancePtr kernel = registry_->lookup(id);
    if (kernel == nullptr) {
      throw NoKernelFound("the registry '" + registry_->get_name() + "' has no kernel '" + id +
                          "'");
    }
    return kernel->run(a, b, c, d_ptrs, problem, stream, benchmarking_);
  }
  // Runs the chosen kernel and compares every element with the fp64 reference. `tolerance` is not
  // used: the formats and the lengths of the sums say how near a result must be.
  bool validate(const void* a, const void* b, void* c, const void* const* d_ptrs,
                const Problem& problem, float tolerance = 1e-3F) const {
    detail::changes_nothing("tolerance", tolerance != 1e-3F, "it follows from the formats");
    return selected(problem)->validate(a, b, c, d_ptrs, problem);
  }

 private:
  KernelInstancePtr selected(const Problem& problem) const {
    KernelInstancePtr kernel = select_kernel(problem);
    if (kernel == nullptr) {
      throw NoKernelFound("no kernel of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) +
                          ", computes M=" + std::to_string(problem.M) +
                          " N=" + std::to_string(problem.N) + " K=" + std::to_string(problem.K));
    }
    return kernel;
  }
  std::vector<KernelInstancePtr> fitting(const Problem& problem) const {
    const std::string name = arch_.empty() ? "" : machine_for(arch_)->name;
    return registry_->filter([&](const KernelInstance& one) {
      return (name.empty() || one.spec().target == name) && one.supports(problem);
    });
  }
  // The first of the heuristic's names that fits, or else the first that fits.
  KernelInstancePtr ranked(const Problem& problem,
                           const std::vector<KernelInstancePtr>& able) const {
    for (const std::string& name : heuristic_(problem)) {
      for (const KernelInstancePtr& one : able) {
        if (one->get_name() == name) return one;
      }
    }
    return able.front();
  }
  KernelInstancePtr fastest(const Problem& problem,
                            const std::vector<KernelInstancePtr>& able) const {
    KernelInstancePtr best = able.front();
    double least = best->predicted_seconds(problem);
    for (const KernelInstancePtr& one : able) {
      const double seconds = one->predicted_seconds(problem);
      if (seconds < least) least = seconds, best = one;
    }
    return best;
  }

  Registry* registry_;
  std::string arch_;
  SelectionStrategy strategy_ = SelectionStrategy::FirstFit;
  HeuristicFunction heuristic_;
  bool benchmarking_ = true;
};

}  // namespace ck_tile::dispatcher
