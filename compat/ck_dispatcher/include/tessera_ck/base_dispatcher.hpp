// What the dispatchers share: kernels of a registry that fit, and the choice among them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera_ck/dispatcher_error.hpp"
#include "tessera_ck/machine.hpp"

namespace tessera_ck {

// Instance has supports(problem) and predicted_seconds(problem). Strategy is an enumeration that
// has a Heuristic.
template <class Registry, class Instance, class Problem, class Strategy>
class BaseDispatcher {
 public:
  using SelectionStrategy = Strategy;

  void set_strategy(Strategy strategy) { strategy_ = strategy; }
  void set_heuristic(std::function<std::vector<std::string>(const Problem&)> heuristic) {
    heuristic_ = std::move(heuristic);
    strategy_ = Strategy::Heuristic;
  }
  // Without it run() launches once, and returns 0.
  void set_benchmarking(bool value) { benchmarking_ = value; }
  bool benchmarking_enabled() const { return benchmarking_; }
  // Only kernels of this target are chosen; empty: of any.
  void set_arch(const std::string& gfx_arch) { arch_ = gfx_arch; }
  const std::string& arch() const { return arch_; }

 protected:
  using InstancePtr = std::shared_ptr<Instance>;
  using Instances = std::vector<InstancePtr>;

  BaseDispatcher(Registry* registry, Strategy strategy, bool benchmarking,
                 const std::string& arch = {})
      : registry_(registry == nullptr ? &Registry::instance() : registry),
        strategy_(strategy),
        benchmarking_(benchmarking),
        arch_(arch) {}

  const Registry& registry() const { return *registry_; }
  Strategy strategy() const { return strategy_; }
  bool has_heuristic() const { return static_cast<bool>(heuristic_); }

  // The kernels that compute the problem, and the first of them; of one target where it is named,
  // be it here or by set_arch().
  Instances fitting(const Problem& problem, const std::string& arch = {}) const {
    return registry_->filter(fits(problem, arch.empty() ? arch_ : arch));
  }
  InstancePtr first_fit(const Problem& problem) const {
    return registry_->first(fits(problem, arch_));
  }
  // The first of the heuristic's names that fits, or else the first kernel; without a heuristic the
  // one that is predicted to be the fastest. Null where there is none.
  InstancePtr best(const Problem& problem, const Instances& able,
                   bool (*is_named)(const std::string& kernel, const std::string& name)) const {
    if (able.empty()) return nullptr;
    if (!heuristic_) return fastest(problem, able);
    for (const std::string& name : heuristic_(problem)) {
      for (const InstancePtr& one : able) {
        if (is_named(one->get_name(), name)) return one;
      }
    }
    return able.front();
  }
  static bool is_equal(const std::string& kernel, const std::string& name) {
    return kernel == name;
  }

  // The kernel, where there is one. Throws NoKernelFound; `text` is a function that returns the
  // problem's.
  template <class Text>
  InstancePtr required(InstancePtr kernel, const Text& text) const {
    if (kernel == nullptr) {
      throw NoKernelFound("no kernel of the registry '" + registry_->get_name() + "', which has " +
                          std::to_string(registry_->size()) + ", computes " + text());
    }
    return kernel;
  }
  InstancePtr named(const std::string& id) const {
    InstancePtr kernel = registry_->lookup(id);
    if (kernel == nullptr) {
      throw NoKernelFound("the registry '" + registry_->get_name() + "' has no kernel '" + id +
                          "'");
    }
    return kernel;
  }

 private:
  static std::function<bool(const Instance&)> fits(const Problem& problem,
                                                   const std::string& arch) {
    const std::string name = arch.empty() ? "" : machine_for(arch)->name;
    return [&problem, name](const Instance& one) {
      return (name.empty() || one.spec().target == name) && one.supports(problem);
    };
  }
  static InstancePtr fastest(const Problem& problem, const Instances& able) {
    InstancePtr found = able.front();
    double least = found->predicted_seconds(problem);
    for (const InstancePtr& one : able) {
      const double seconds = one->predicted_seconds(problem);
      if (seconds < least) least = seconds, found = one;
    }
    return found;
  }

  Registry* registry_;
  Strategy strategy_;
  std::function<std::vector<std::string>(const Problem&)> heuristic_;
  bool benchmarking_;
  std::string arch_;
};

// The strategies of GEMM and attention. Heuristic without a function takes the kernel that Tessera
// predicts to be the fastest.
enum class FittingStrategy { FirstFit, Heuristic };

}  // namespace tessera_ck
