// Choosing and running GEMM kernels of a registry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera_ck/base_dispatcher.hpp"
#include "tessera_ck/registry.hpp"

namespace tessera_ck {

// The names of kernels, best first.
using HeuristicFunction = std::function<std::vector<std::string>(const Problem&)>;

class Dispatcher : public BaseDispatcher<Registry, KernelInstance, Problem, FittingStrategy> {
 public:
  // registry: null means Registry::instance(). It must outlive the dispatcher.
  explicit Dispatcher(Registry* registry = nullptr, const std::string& gfx_arch = {})
      : BaseDispatcher(registry, SelectionStrategy::FirstFit, true, gfx_arch) {}

  // Null where no kernel of the registry computes the problem.
  KernelInstancePtr select_kernel(const Problem& problem) const {
    if (strategy() == SelectionStrategy::FirstFit) return first_fit(problem);
    return best(problem, fitting(problem), is_equal);
  }

  // Milliseconds. Throws NoKernelFound, and DispatcherError with a sentence where the kernel's
  // machine is not here.
  float run(const void* a, const void* b, void* c, const Problem& problem,
            void* stream = nullptr) const {
    return run_fused(a, b, c, nullptr, problem, stream);
  }
  float run_fused(const void* a, const void* b, void* c, const void* const* d_ptrs,
                  const Problem& problem, void* stream = nullptr) const {
    return selected(problem)->run(a, b, c, d_ptrs, problem, stream, benchmarking_enabled());
  }
  // Throws NoKernelFound for a name that is not here, UnsupportedProblem where it cannot.
  float run_explicit(const std::string& id, const void* a, const void* b, void* c,
                     const void* const* d_ptrs, const Problem& problem,
                     void* stream = nullptr) const {
    return named(id)->run(a, b, c, d_ptrs, problem, stream, benchmarking_enabled());
  }
  // Runs the chosen kernel and compares every element with the fp64 reference. `tolerance` is not
  // used: the formats and the lengths of the sums say how near a result must be.
  bool validate(const void* a, const void* b, void* c, const void* const* d_ptrs,
                const Problem& problem, float tolerance = 1e-3F) const {
    detail::changes_nothing("tolerance", tolerance != 1e-3F, "it follows from the formats");
    return selected(problem)->validate(a, b, c, d_ptrs, problem);
  }

 private:
  KernelInstancePtr selected(const Problem& p) const {
    return required(select_kernel(p), [&p] {
      return "M=" + std::to_string(p.M) + " N=" + std::to_string(p.N) + " K=" + std::to_string(p.K);
    });
  }
};

}  // namespace tessera_ck
