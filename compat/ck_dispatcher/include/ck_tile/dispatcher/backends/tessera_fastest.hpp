// The fastest kernel for a problem: by a model or a measurement that there is, else measured now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_sets.hpp"

namespace ck_tile::dispatcher::backends {

// Among `names`; empty: all that the machine has. What is measured are the best few by estimate;
// the winner is remembered in the tuning store, as `tessera tune` does.
inline std::string fastest_kernel(const Machine& machine, const std::string& line,
                                  const std::vector<std::string>& names) {
  const std::string target = machine.name();
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = target.c_str();
  options.measure_without_model = 1, options.without_model_top = 5;
  std::shared_ptr<tsr_registry_t> pool;
  if (!names.empty()) {
    pool = made_by<tsr_registry_t>(tsr_registry_destroy, tsr_registry_create, "declared", nullptr);
    const KernelSetHandle set = kernel_set(machine);
    for (const std::string& name : names) check(tsr_kernel_set_add(set.get(), name.c_str()));
    check(tsr_registry_declare(pool.get(), set.get()));
    options.pool = pool.get();
  }
  const auto dispatcher =
      made_by<tsr_dispatcher_t>(tsr_dispatcher_destroy, tsr_dispatcher_create, &options);
  const ProblemHandle problem = problem_of(line);
  if (!is_here(machine)) {
    return field(text_of(tsr_choose, dispatcher.get(), problem.get(), nullptr), "kernel");
  }
  const auto plan =
      made_by<tsr_plan_t>(tsr_plan_destroy, tsr_plan, dispatcher.get(), problem.get(), nullptr);
  return field(text_of(tsr_plan_json, plan.get()), "kernel");
}

}  // namespace ck_tile::dispatcher::backends
