#include "tessera/commands/explain_range.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/commands/format.h"

namespace tessera::commands {
namespace {

// A part, and what was decided at its ends.
struct ExplainedPart {
  RangePart part;
  Decision first, last;
};

std::vector<ExplainedPart> explained_parts(const RangedProblem& ranged, const Target& target,
                                           const ChooseOptions& given) {
  ChooseOptions options = given;
  options.explain = options.says_why = false;
  const auto at = [&](std::int64_t value) {
    return problem_at(ranged.problem, ranged.range, value);
  };
  const KernelOf kernel_of = [&](std::int64_t value) {
    return choose(at(value), target, options).name;
  };
  const Serves serves = [&](std::int64_t value, const std::string& kernel) {
    const Problem problem = at(value);
    return static_cast<bool>(supports(
        parse_name(kernel), options.batch_invariant ? any_batch(problem).own : problem, target));
  };
  const auto parts = with_served(parts_of(ranged.range, kernel_of, 0), serves, kernel_of, 0);
  options.says_why = true;
  std::vector<ExplainedPart> explained;
  for (const RangePart& part : parts) {
    explained.push_back(
        {part, choose(at(part.first), target, options), choose(at(part.last), target, options)});
  }
  return explained;
}

Json range_json(const RangedProblem& ranged, const Target& target,
                const std::vector<ExplainedPart>& parts) {
  Json rows = Json::array();
  for (const auto& [part, first, last] : parts) {
    rows.push_back({{"first", part.first},
                    {"last", part.last},
                    {"kernel", part.kernel},
                    {"source", to_string(first.source)},
                    {"predicted_seconds", {first.predicted_seconds, last.predicted_seconds}},
                    {"why", first.why}});
  }
  return {{"problem", to_string(ranged)}, {"target", target.name}, {"parts", rows}};
}

}  // namespace

int explain_range(const RangedProblem& ranged, const Target& target, const ChooseOptions& options,
                  const Console& console) {
  const std::vector<ExplainedPart> parts = explained_parts(ranged, target, options);
  if (console.json) {
    console.print_json(range_json(ranged, target, parts));
    return 0;
  }
  std::size_t width = 0;
  for (const ExplainedPart& each : parts) width = std::max(width, each.part.kernel.size());
  console.write_out("{} on {}: {} parts\n", to_string(ranged), target.name, parts.size());
  for (const auto& [part, first, last] : parts) {
    console.write_out("  {} {:>6} to {:>6}  {:<{}}  {} to {}: {}\n", ranged.range.field, part.first,
                      part.last, part.kernel, width, format_seconds(first.predicted_seconds),
                      format_seconds(last.predicted_seconds),
                      first.why.substr(0, first.why.find(';')));
  }
  return 0;
}

}  // namespace tessera::commands
