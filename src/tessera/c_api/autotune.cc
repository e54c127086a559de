// Measuring the kernels that a dispatcher predicts to be best, and remembering the winner.
#include "tessera/tune/autotune.h"

#include "tessera/c_api/handles_internal.h"
#include "tessera/tune/store.h"

namespace tessera::c_api {
namespace {

// Where nothing can be compiled, only kernels that are ready are measured.
std::vector<KernelSpec> best_of(const Decision& decision, int top, Dispatcher& dispatcher) {
  Registry& registry = dispatcher.registry();
  const bool all_can_run = registry.builder().no_compiler(dispatcher.target()).empty();
  std::vector<KernelSpec> best;
  for (const Considered& each : decision.considered) {
    if (!each.refusal.empty() || std::ssize(best) == top) break;
    if (all_can_run || registry.is_ready(each.spec)) best.push_back(each.spec);
  }
  return best;
}

std::filesystem::path store_of(const tsr_dispatcher_t& dispatcher) {
  if (!dispatcher.options.tuning_store.empty()) return dispatcher.options.tuning_store;
  const auto folder = dispatcher.dispatcher->registry().builder().cache().folder();
  if (!folder.empty()) return tune::tuning_store_in(folder);
  refuse("autotune: there is no cache folder to keep measurements in; give a tuning_store");
}

Json to_json(const std::vector<tune::Measurement>& measurements) {
  Json rows = Json::array();
  for (const tune::Measurement& m : measurements) {
    rows.push_back({{"kernel", m.kernel},
                    {"outcome", measure::to_string(m.outcome)},
                    {"seconds", m.seconds},
                    {"spread", m.spread},
                    {"note", m.note}});
  }
  return {{"measurements", rows}};
}

std::vector<tune::Measurement> autotune(const tsr_dispatcher_t& tuner, const Problem& problem,
                                        double seconds, int top) {
  check_least("seconds", seconds, 0);
  check_seconds("seconds", seconds);
  check_least("top", top, 0);
  const DispatcherOptions& defaults = tuner.options;
  const RunOptions run = run_options_of(tuner, nullptr);
  const Decision decision = tuner.dispatcher->explain(problem, run);
  tune::Store store(store_of(tuner));
  return tune::autotune(problem, tuner.dispatcher->target(),
                        best_of(decision, top > 0 ? top : defaults.autotune_top, *tuner.dispatcher),
                        tuner.dispatcher->registry(), store,
                        {.budget_seconds = seconds > 0 ? seconds : defaults.autotune_seconds,
                         .top = top > 0 ? top : defaults.autotune_top,
                         .threads = decision.threads,
                         .device = tuner.device,
                         .worker = defaults.tuning_worker});
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

tsr_status_t tsr_autotune(tsr_dispatcher_t* dispatcher, const tsr_problem_t* problem,
                          double seconds, int top, char** json) {
  return guarded([&] {
    result_of(json, "JSON");
    const tsr_dispatcher_t& tuner = object_of(dispatcher, "dispatcher");
    *json = json_copy(to_json(autotune(tuner, problem_for(tuner, problem), seconds, top)));
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace tessera::c_api
