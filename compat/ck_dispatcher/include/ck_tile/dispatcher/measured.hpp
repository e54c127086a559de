// The fastest kernel for a problem: by a model or a measurement that there is, else measured now.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "ck_tile/dispatcher/machine.hpp"

namespace ck_tile::dispatcher {

namespace detail {

inline void check_status(tsr_status_t status) {
  if (status != TSR_OK) throw DispatcherError(tsr_error());
}

// The names in a list of measurements, best first, of those that were right.
inline std::vector<std::string> right_kernels(const std::string& json) {
  const std::string key = "\"kernel\":\"", outcome = "\"outcome\":\"";
  std::vector<std::string> names;
  for (std::size_t at = json.find(key); at != std::string::npos; at = json.find(key, at + 1)) {
    const std::size_t begin = at + key.size(), end = json.find('"', begin);
    const std::size_t word = json.find(outcome, end);
    if (word != std::string::npos && json.compare(word + outcome.size(), 3, "ok\"") == 0) {
      names.push_back(json.substr(begin, end - begin));
    }
  }
  return names;
}

// Measures the best by estimate, and remembers the winner in the tuning store, as `tessera tune`
// does.
inline std::vector<std::string> measured(const Machine& machine, const tessera::Problem& problem) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  const std::string& target = machine.options.target;
  options.target = target.empty() ? nullptr : target.c_str();
  tsr_dispatcher_t* made = nullptr;
  check_status(tsr_dispatcher_create(&options, &made));
  const std::unique_ptr<tsr_dispatcher_t, void (*)(tsr_dispatcher_t*)> dispatcher(
      made, tsr_dispatcher_destroy);
  tsr_problem_t* parsed = nullptr;
  check_status(tsr_problem_parse(tessera::to_string(problem).c_str(), &parsed));
  const std::unique_ptr<tsr_problem_t, void (*)(tsr_problem_t*)> owned(parsed, tsr_problem_destroy);
  char* text = nullptr;
  check_status(tsr_autotune(dispatcher.get(), owned.get(), 0, 0, &text));
  const std::string json(text);
  tsr_free(text);
  return right_kernels(json);
}

}  // namespace detail

// Among `names`; empty: all that the machine has.
inline std::string fastest_kernel(const Machine& machine, const tessera::Problem& problem,
                                  const std::vector<std::string>& names) {
  const auto among = [&names](const std::string& name) {
    for (const std::string& each : names) {
      if (each == name) return true;
    }
    return names.empty();
  };
  std::string best;
  translated([&] {
    const tessera::Decision decision = machine.dispatcher->explain(problem);
    const bool is_known = decision.source == tessera::ChoiceSource::tuned ||
                          decision.source == tessera::ChoiceSource::learned;
    if ((is_known || !machine.refusal.empty()) && among(decision.name)) best = decision.name;
  });
  if (best.empty() && machine.refusal.empty()) {
    for (const std::string& name : detail::measured(machine, problem)) {
      if (best.empty() && among(name)) best = name;
    }
  }
  if (!best.empty()) return best;
  // None of the best by estimate is in the list: the estimate decides.
  double least = 0;
  for (const std::string& name : names) {
    const double seconds = predicted_seconds(machine, name, problem);
    if (best.empty() || seconds < least) best = name, least = seconds;
  }
  return best;
}

}  // namespace ck_tile::dispatcher
