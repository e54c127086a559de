#include "tessera/dispatch/among_ready_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/dispatch/tuning_internal.h"

namespace tessera {

bool can_run(const Considered& candidate, Registry& registry, std::string_view failed) {
  return candidate.refusal.empty() && candidate.name != failed && registry.is_ready(candidate.spec);
}

void take(Decision& decision, const Considered& candidate) {
  decision.spec = candidate.spec;
  decision.name = candidate.name;
  decision.source = candidate.source;
  decision.predicted_seconds = candidate.predicted_seconds;
}

Decision among_ready(Decision decision, Registry& registry, const std::string& no_compiler,
                     std::string_view failed) {
  std::vector<Considered> missing;
  std::vector<Considered> others;
  for (const Considered& c : decision.considered) {
    if (!c.refusal.empty() || can_run(c, registry, failed)) {
      others.push_back(c);
      continue;
    }
    missing.push_back(c);
    missing.back().refusal = "it is in no pack, and cannot be compiled here: " + no_compiler;
  }
  if (others.empty() || !others.front().refusal.empty()) return decision;
  decision.why = fmt::format(
      "the best of those that are ready; {} others, {} among them, would have to "
      "be compiled, and {}",
      missing.size(), decision.name, no_compiler);
  decision.considered = std::move(others);
  take(decision, Considered(decision.considered.front()));
  add_refused(decision, missing);
  return decision;
}

Error nothing_ready(const Problem& problem, const Error& missing) {
  if (missing.code() != ErrorCode::jit_disabled) return missing;
  return {missing.code(), fmt::format("no kernel that can run '{}' is ready; the best one, {}",
                                      to_string(problem), missing.what())};
}

bool is_missing(const Error& error) {
  return error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::jit_disabled ||
         error.code() == ErrorCode::load_failed;
}

}  // namespace tessera
