#include "tessera/tune/winners.h"

#include <utility>

namespace tessera::tune {
namespace {

bool is_of(const measure::SweepRun& run, const Machine& machine) {
  return run.device == machine.device && run.target == machine.target &&
         run.threads == machine.threads;
}

template <class Use>
void for_rows(const measure::SweepData& data, const Machine& machine, const Use& use) {
  for (const measure::SweepRow& row : data.rows) {
    const measure::SweepRun& run = data.runs.at(static_cast<std::size_t>(row.run));
    if (!is_of(run, machine)) continue;
    use(row, run, data.problems.at(static_cast<std::size_t>(row.problem)),
        data.kernels.at(static_cast<std::size_t>(row.kernel)));
  }
}

}  // namespace

std::vector<Measurement> winners_of(const measure::SweepData& data, const Machine& machine) {
  std::vector<Measurement> found;
  for_rows(data, machine,
           [&](const measure::SweepRow& row, const measure::SweepRun& run,
               const std::string& problem, const std::string& kernel) {
             const bool is_finalist = row.outcome == measure::Outcome::ok && row.finalist;
             if (!is_finalist && !measure::is_refusal(row.outcome)) return;
             found.push_back({machine.device, machine.target, problem, kernel, machine.threads,
                              row.outcome, row.seconds, row.spread, row.note, run.protocol});
           });
  return found;
}

std::vector<Change> changes_of(const measure::SweepData& data, const Machine& machine,
                               const std::map<std::string, std::string>& chosen) {
  std::map<std::string, Change> changes;
  for (const auto& [problem, kernel] : chosen) changes[problem] = {problem, kernel, "", 0, 0};
  for_rows(data, machine,
           [&](const measure::SweepRow& row, const measure::SweepRun&, const std::string& problem,
               const std::string& kernel) {
             const auto found = changes.find(problem);
             if (row.outcome != measure::Outcome::ok || found == changes.end()) return;
             Change& change = found->second;
             if (kernel == change.before) change.before_seconds = row.seconds;
             // Kernels that are not finalists have too few readings to win.
             if (!row.finalist) return;
             const bool is_faster = change.after.empty() || row.seconds < change.after_seconds ||
                                    (row.seconds == change.after_seconds && kernel < change.after);
             if (!is_faster) return;
             change.after = kernel;
             change.after_seconds = row.seconds;
           });
  std::vector<Change> list;
  for (auto& [problem, change] : changes) {
    if (!change.after.empty()) list.push_back(std::move(change));
  }
  return list;
}

}  // namespace tessera::tune
