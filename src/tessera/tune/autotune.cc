#include "tessera/tune/autotune.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/interruption.h"
#include "tessera/base/seconds.h"
#include "tessera/base/timer.h"
#include "tessera/families/operations.h"
#include "tessera/measure/child.h"
#include "tessera/targets/targets.h"

namespace tessera::tune {
namespace {

constexpr std::size_t kFinalists = 3;
constexpr double kVettingShare = 0.6;  // share of the budget for the first checks; the rest is for
                                       // the final
constexpr double kLeastFinalSeconds = 0.05;  // even when the checks took the whole budget
constexpr const char* kCheckProtocol = "one call after a check";
constexpr const char* kFinalProtocol = "interleaved rounds in one process, median";

// A candidate that is built, then checked, then measured.
struct Entry {
  measure::WorkerKernel kernel;
  jit::Artifact artifact;  // kept, because its file may exist only as long as this object
  measure::WorkerReading reading;
  const char* protocol = kCheckProtocol;
  double quick_seconds = 0;
};

measure::WorkerRequest request_for(const Problem& problem, const Target& target,
                                   const AutotuneOptions& options) {
  measure::WorkerRequest request;
  request.problem = to_string(problem);
  request.target = target;
  request.threads = runtime::thread_limit({.threads = options.threads});
  request.device = options.device;
  request.device_name = measure::device_name(target, options.device);
  request.seed = options.seed;
  request.timeout_seconds = options.candidate_timeout_seconds;
  return request;
}

// Builds one candidate and checks it in a child process of its own.
Entry vet(const KernelSpec& spec, const Target& target, jit::Builder& builder,
          const std::filesystem::path& worker, measure::WorkerRequest request) {
  Entry entry;
  entry.kernel.name = name_of(spec);
  try {
    entry.artifact = builder.build(emit_legal(spec, target), target);
    entry.kernel.binary = measure::path_for_child(entry.artifact.binary.string());
    request.kernels = {entry.kernel};
    entry.reading = ask_worker(worker, request).readings.front();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    entry.reading = {measure::Outcome::failed, 0, 0, error.what()};
  }
  entry.quick_seconds = entry.reading.seconds;
  entry.reading.seconds = 0;
  if (entry.reading.outcome == measure::Outcome::ok) {
    entry.reading.note = fmt::format("one call took {:.3g} s", entry.quick_seconds);
  }
  return entry;
}

std::vector<Entry*> finalists(std::vector<Entry>& entries) {
  std::vector<Entry*> chosen;
  for (Entry& entry : entries) {
    if (entry.reading.outcome == measure::Outcome::ok) chosen.push_back(&entry);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const Entry* a, const Entry* b) {
    return a->quick_seconds < b->quick_seconds;
  });
  if (chosen.size() > kFinalists) chosen.resize(kFinalists);
  return chosen;
}

// Times the entries against each other. When the child is lost, times them one by one to find the
// culprit.
void measure(const std::vector<Entry*>& entries, const std::filesystem::path& worker,
             measure::WorkerRequest request) {
  request.kernels.clear();
  for (const Entry* entry : entries) request.kernels.push_back(entry->kernel);
  const measure::WorkerReply reply = ask_worker(worker, request);
  if (reply.lost && entries.size() > 1) {
    for (Entry* entry : entries) measure({entry}, worker, request);
    return;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i]->reading = reply.readings[i];
    entries[i]->protocol = kFinalProtocol;
  }
}

// Sorts: measured kernels by time, then correct ones, then refused ones, the last two by name.
bool ranks_before(const Measurement& a, const Measurement& b) {
  const auto group = [](const Measurement& m) {
    return m.outcome != measure::Outcome::ok ? 2 : m.seconds > 0 ? 0 : 1;
  };
  if (group(a) != group(b)) return group(a) < group(b);
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  return a.kernel < b.kernel;
}

}  // namespace

std::vector<Measurement> autotune(const Problem& problem, const Target& target,
                                  const std::vector<KernelSpec>& candidates, Registry& registry,
                                  Store& store, const AutotuneOptions& options) {
  check_seconds("autotune: budget_seconds", options.budget_seconds);
  check_seconds("autotune: candidate_timeout_seconds", options.candidate_timeout_seconds);
  const std::filesystem::path worker = measure::find_worker(options.worker);
  const Timer timer;
  measure::WorkerRequest request = request_for(problem, target, options);
  std::vector<Entry> entries;
  for (const KernelSpec& spec : candidates) {
    check_interruption();
    const bool is_enough = static_cast<int>(entries.size()) >= std::max(options.top, 1);
    const bool is_late = timer.seconds() > kVettingShare * options.budget_seconds;
    if (!options.all && (is_enough || (is_late && !entries.empty()))) break;
    entries.push_back(vet(spec, target, registry.builder(), worker, request));
  }
  request.measure = true;
  const double rest = options.all ? (1 - kVettingShare) * options.budget_seconds
                                  : options.budget_seconds - timer.seconds();
  request.budget_seconds = std::max(rest, kLeastFinalSeconds);
  request.timeout_seconds += request.budget_seconds;
  const std::vector<Entry*> best = finalists(entries);
  if (!best.empty()) measure(best, worker, request);

  std::vector<Measurement> found;
  std::vector<Measurement> recorded;
  for (const Entry& e : entries) {
    found.push_back({measure::device_name(target, options.device), target.name, request.problem,
                     e.kernel.name, measure::filed_threads(target, request.threads),
                     e.reading.outcome, e.reading.seconds, e.reading.spread, e.reading.note,
                     e.protocol});
    if (e.reading.outcome != measure::Outcome::failed) recorded.push_back(found.back());
  }
  store.record(recorded);
  std::sort(found.begin(), found.end(), ranks_before);
  return found;
}

}  // namespace tessera::tune
