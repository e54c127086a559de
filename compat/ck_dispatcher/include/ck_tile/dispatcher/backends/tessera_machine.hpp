// The machines that run Tessera's kernels: choosing, timing and verifying by the C ABI.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_handles.hpp"
#include "ck_tile/dispatcher/ignored.hpp"

namespace ck_tile::dispatcher::backends {

// How a run is timed: runs before the clock is read, and readings.
struct Timing {
  int cold = 5, repeat = 10;
};

// Operands by name; those that a problem does not have must not be there.
using Operands = std::vector<std::pair<std::string, const void*>>;

// One target and its dispatcher, shared by all kernels for it. Plans are kept, so that a problem is
// chosen for and built once.
class Machine {
 public:
  explicit Machine(const std::string& target, bool is_deterministic = false) {
    tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
    options.target = target.empty() ? nullptr : target.c_str();
    options.deterministic = is_deterministic ? 1 : 0;
    dispatcher_ =
        made_by<tsr_dispatcher_t>(tsr_dispatcher_destroy, tsr_dispatcher_create, &options);
    row_ = text_of(tsr_dispatcher_target, dispatcher_.get());
  }

  std::string name() const { return field(row_, "name"); }
  std::string backend() const { return field(row_, "backend"); }
  const std::string& row() const { return row_; }

  // The decision's JSON, for one kernel or, where it is empty, for the best. Builds nothing. Throws
  // the sentence that says why there is none.
  std::string choose(const std::string& line, const std::string& kernel = {}) const {
    tsr_choose_options_t options = TSR_INIT(tsr_choose_options_t);
    options.force = kernel.empty() ? nullptr : kernel.c_str();
    const ProblemHandle problem = problem_of(line);
    return text_of(tsr_choose, dispatcher_.get(), problem.get(), &options);
  }
  bool can(const std::string& line, const std::string& kernel = {}) const {
    try {
      choose(line, kernel);
      return true;
    } catch (const DispatcherError&) {
      return false;
    }
  }
  double seconds(const std::string& line, const std::string& kernel = {}) const {
    return number_field(choose(line, kernel), "predicted_seconds");
  }

  // Runs once. With `verifies`, false where the result is not the reference's.
  bool run(const std::string& line, const std::string& kernel, const Operands& operands,
           void* stream, bool verifies = false) const {
    std::vector<tsr_operand_t> named;
    for (const auto& [name, data] : operands) named.push_back({name.c_str(), data});
    tsr_launch_options_t options = launch(stream);
    options.verify = verifies ? 1 : 0;
    const PlanHandle plan = planned(line, kernel);
    const tsr_status_t status = tsr_launch_named(plan.get(), named.data(), named.size(), &options);
    if (status == TSR_VERIFICATION_FAILED) return false;
    check(status);
    return true;
  }
  // Milliseconds: the median.
  float time(const std::string& line, const std::string& kernel, const Operands& operands,
             void* stream, const Timing& timing = {}) const {
    const PlanHandle plan = planned(line, kernel);
    std::size_t count = 0;
    check(tsr_operand_count(plan.get(), &count));
    std::vector<const void*> in_order(count, nullptr);
    for (const auto& [name, data] : operands) {
      std::size_t place = 0;
      check(tsr_operand_index(plan.get(), name.c_str(), &place));
      in_order[place] = data;
    }
    tsr_bench_options_t options = TSR_INIT(tsr_bench_options_t);
    options.rounds = timing.repeat > 0 ? timing.repeat : 1;
    options.warmup = timing.cold > 0 ? timing.cold : 1;
    options.min_seconds = 1e-9;  // a reading is one call
    const tsr_launch_options_t where = launch(stream);
    const std::string json =
        text_of(tsr_bench, plan.get(), in_order.data(), count, &options, &where);
    return static_cast<float>(number_field(json, "median_seconds") * 1e3);
  }
  void synchronize(const std::string& line, const std::string& kernel, void* stream) const {
    const tsr_launch_options_t options = launch(stream);
    check(tsr_synchronize(planned(line, kernel).get(), &options));
  }

 private:
  using PlanHandle = std::shared_ptr<tsr_plan_t>;

  static tsr_launch_options_t launch(void* stream) {
    tsr_launch_options_t options = TSR_INIT(tsr_launch_options_t);
    options.stream = stream;
    return options;
  }
  PlanHandle planned(const std::string& line, const std::string& kernel) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    PlanHandle& plan = plans_[line + "|" + kernel];
    if (plan == nullptr) {
      tsr_choose_options_t options = TSR_INIT(tsr_choose_options_t);
      options.force = kernel.empty() ? nullptr : kernel.c_str();
      const ProblemHandle problem = problem_of(line);
      plan = made_by<tsr_plan_t>(tsr_plan_destroy, tsr_plan, dispatcher_.get(), problem.get(),
                                 &options);
    }
    return plan;
  }

  std::shared_ptr<tsr_dispatcher_t> dispatcher_;
  std::string row_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, PlanHandle> plans_;
};

using MachinePtr = std::shared_ptr<Machine>;

// The targets of the GPUs that are here, as "doctor" finds them.
inline const std::string& gpus_here() {
  static const std::string detail = [] {
    const std::string found = command("doctor", "{}");
    const std::size_t place = found.find("\"what\":\"GPU targets\"");
    if (place == std::string::npos || field(found, "found", place) != "true") return std::string();
    return field(found, "detail", place);
  }();
  return detail;
}

// A target's machine, wherever it is: kernels for it can be chosen. "", "*" and "native" mean this
// machine's GPU, or else its CPU; TESSERA_TARGET names another.
// deterministic: only kernels whose bits do not depend on threads or on an order are chosen.
inline MachinePtr machine_for(const std::string& arch = {}, bool deterministic = false) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, bool>, MachinePtr> machines;
  std::string name = arch.substr(0, arch.find(':'));
  if (name == "native" || name == "*") name.clear();
  if (name.empty() && std::getenv("TESSERA_TARGET") == nullptr) {
    const std::string& gpus = gpus_here();
    name = gpus.substr(0, gpus.find_first_of(" ,;:"));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  MachinePtr& machine = machines[{name, deterministic}];
  if (machine == nullptr) machine = std::make_shared<Machine>(name, deterministic);
  return machine;
}

// Whether a machine's kernels can run here.
inline bool is_here(const Machine& machine) {
  if (machine.backend() != "cpu") return gpus_here().find(machine.name()) != std::string::npos;
  return true;
}

// The machine that runs what is declared for a target: the target, where it is here and
// TESSERA_TARGET names no other one; else this machine, which is said once on stderr.
inline MachinePtr machine_that_runs(const std::string& arch) {
  const bool is_named = !arch.empty() && arch != "native" && arch != "*";
  if (is_named && std::getenv("TESSERA_TARGET") == nullptr) {
    try {
      const MachinePtr wanted = machine_for(arch);
      if (is_here(*wanted)) return wanted;
    } catch (const DispatcherError&) {  // a target that Tessera has no row for
    }
  }
  const MachinePtr here = machine_for();
  if (is_named && here->name() != arch) {
    detail::tell("target " + arch + " is not here; what is declared for it runs on " +
                 here->name() + " by kernels that Tessera chooses");
  }
  return here;
}

}  // namespace ck_tile::dispatcher::backends
