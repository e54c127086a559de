// A sweep works problem by problem: it makes a problem's operands once, measures the problem's
// kernels against each other, and stores the rows in one transaction. When a sweep ends early, at
// most the current problem is lost.
#include "tessera/measure/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/base/text.h"
#include "tessera/base/timer.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/jit/compilers.h"
#include "tessera/measure/outcome.h"
#include "tessera/measure/sweep_worker.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

constexpr double kClockSeconds = 5;     // between two readings of the clock's kernel
constexpr double kProblemSeconds = 30;  // after so many seconds no new round of readings starts
constexpr int kStrikes = 3;          // a kernel that has ended the worker so often is not run again
constexpr std::size_t kGivesUp = 5;  // the sweep ends after so many problems in a row that cannot
                                     // be prepared
constexpr std::size_t kNoteLetters = 300;

// Thrown to end a build when the caller stops the sweep.
struct Stopped {};

// A problem, with the indices of the kernels that are still to be measured.
struct Task {
  std::string problem;
  std::vector<int> kernels;
};

std::string random_id() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:x},", device());
  return hash_hex(text);
}

std::string compiler_words(const Target& target, const jit::BuildOptions& build) {
  try {
    return jit::compiler_for(target).find(build, target, {}).version;
  } catch (const Error&) {
    return "none: kernels come from packs and the cache";
  }
}

std::string protocol_words(const SweepSetup& setup, bool is_cold) {
  const RoundRules& rules = setup.rules;
  return fmt::format(
      "interleaved, {} to {} readings until the median is known to {:g}%, out at {:g}x after {} "
      "and {:g}x after {}, one reading against the estimate again; best {} again in {} rounds; {}",
      rules.least, rules.most, 100 * rules.tight, rules.hopeless, rules.hopeless_after,
      rules.slower, rules.least, setup.finalists, setup.final_rounds,
      is_cold ? "cold caches" : fmt::format("warm caches, {:g} s a reading", setup.min_seconds));
}

class Sweep {
 public:
  Sweep(std::span<const Problem> problems, std::span<const KernelSpec> kernels,
        const Target& target, SweepStore& store, const SweepOptions& options)
      : kernels_(kernels), target_(target), store_(store), options_(options) {
    for (const KernelSpec& spec : kernels) names_.push_back(name_of(spec));
    run_.device = device_name(target, options.device);
    run_.target = target.name;
    run_.threads = filed_threads(target, runtime::thread_limit({.threads = options.threads}));
    plan(problems);
  }

  SweepReport run() {
    report_.remaining = tasks_.size();
    if (tasks_.empty()) return report_;
    describe_run();
    try {
      build();
      measure_all();
    } catch (const Stopped&) {
      report_.stopped = true;
    }
    return report_;
  }

 private:
  bool should_stop() const { return options_.stop && options_.stop(); }
  bool out_of_time() const {
    return options_.budget_seconds > 0 && timer_.seconds() > options_.budget_seconds;
  }

  // Problems are measured in a random order, so that a sweep that ends early has problems of all
  // kinds.
  void plan(std::span<const Problem> problems) {
    std::set<std::string> seen;
    for (const Problem& problem : problems) {
      const std::string text = to_string(problem);
      if (!in_shard(text, options_.shard, options_.shards) || !seen.insert(text).second) continue;
      bool is_served = false;
      Task task = task_of(problem, text, is_served);
      ++report_.problems;
      if (!task.kernels.empty()) {
        tasks_.push_back(std::move(task));
      } else {
        ++(is_served ? report_.stored : report_.unserved);
      }
    }
    std::sort(tasks_.begin(), tasks_.end(),
              [&](const Task& a, const Task& b) { return rank(a.problem) < rank(b.problem); });
    if (report_.unserved < report_.problems || seen.empty()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sweep: none of the {} kernels serves any of the {} problems; are "
                            "their types and layouts the same?",
                            kernels_.size(), seen.size()));
  }

  std::uint64_t rank(const std::string& problem) const { return hash64(problem, options_.seed); }

  Task task_of(const Problem& problem, const std::string& text, bool& is_served) const {
    const Family& family = family_of(problem);
    family.validate(problem);
    const auto known = store_.find(run_.device, run_.target, run_.threads, text);
    Task task{text, {}};
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      if (!family.supports(kernels_[i], problem, target_)) continue;
      is_served = true;
      const auto found = known.find(names_[i]);
      const bool is_done =
          found != known.end() && (!options_.retry || found->second == Outcome::ok);
      if (!is_done) task.kernels.push_back(static_cast<int>(i));
    }
    return task;
  }

  void describe_run() {
    setup_.target = target_;
    setup_.threads = run_.threads;
    setup_.device = options_.device;
    setup_.device_name = run_.device;
    setup_.seed = options_.seed;
    setup_.finalists = options_.finalists;
    // One GPU reading is enough to drop a hopeless kernel that the estimate does not expect among
    // the best: events measure it, and flushing the caches before it hides pauses of the host. A
    // CPU reading may include the time of other programs.
    setup_.rules.hopeless_after = is_gpu(target_) ? 1 : 2;
    setup_.rules.budget_seconds = kProblemSeconds;
    run_.id = report_.run = random_id();
    run_.version = options_.version;
    run_.abi = kernels_.empty() ? 0 : int{family_of(kernels_.front()).abi};
    run_.compiler = compiler_words(target_, options_.build);
    run_.protocol = protocol_words(setup_, starts_cold(target_));
    run_.seed = static_cast<std::int64_t>(options_.seed);
    run_.clock_mhz = is_gpu(target_) ? 0 : 1000 * host_info().clock_ghz;
    run_.started = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  }

  // Builds the kernels that the tasks need. A kernel that failed has an error instead of an
  // artifact.
  void build() {
    const Timer timer;
    std::vector<int> needed = needed_kernels();
    std::vector<Source> sources;
    for (const int i : needed) sources.push_back(emit_legal(spec(i), target_));
    builder_ = std::make_unique<jit::Builder>(options_.build);
    built_.resize(kernels_.size());
    std::vector<jit::BuildResult> results = builder_->build_all(
        sources, target_, options_.jobs,
        [&](std::size_t done, std::size_t total, const jit::BuildResult& result) {
          if (options_.progress) options_.progress({true, done, total, result.name, 0});
          if (should_stop()) throw Stopped{};
        });
    for (std::size_t i = 0; i < needed.size(); ++i) {
      built_[static_cast<std::size_t>(needed[i])] = std::move(results[i]);
    }
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      setup_.kernels.push_back({names_[i], path_for_child(built_[i].artifact.binary.string())});
    }
    report_.build_seconds = timer.seconds();
  }

  std::vector<int> needed_kernels() const {
    std::set<int> needed;
    for (const Task& task : tasks_) needed.insert(task.kernels.begin(), task.kernels.end());
    return {needed.begin(), needed.end()};
  }

  const KernelSpec& spec(int i) const { return kernels_[static_cast<std::size_t>(i)]; }
  const std::string& name(int i) const { return names_[static_cast<std::size_t>(i)]; }

  void measure_all() {
    const Timer timer;
    SweepWorker worker(find_worker(options_.worker), setup_, options_.kernel_timeout_seconds,
                       options_.stop);
    std::size_t unmeasured_in_a_row = 0;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      report_.out_of_time = out_of_time();
      if (report_.out_of_time || should_stop()) break;
      const std::string next = i + 1 < tasks_.size() ? tasks_[i + 1].problem : std::string();
      const std::size_t before = report_.unmeasured.size();
      if (!measure(worker, tasks_[i], next)) break;
      unmeasured_in_a_row =
          report_.unmeasured.size() > before ? unmeasured_in_a_row + 1 : std::size_t{0};
      give_up_after(unmeasured_in_a_row);
      report_.measure_seconds = timer.seconds();
      tell(i + 1, tasks_[i].problem);
      read_clock(worker);
    }
    report_.stopped = should_stop();
  }

  void give_up_after(std::size_t unmeasured_in_a_row) const {
    if (unmeasured_in_a_row < kGivesUp) return;
    throw Error(ErrorCode::crashed,
                fmt::format("sweep: {} problems in a row could not be measured, the last one: {}",
                            unmeasured_in_a_row, report_.unmeasured.back()));
  }

  void tell(std::size_t done, const std::string& problem) const {
    if (!options_.progress) return;
    const double pace = report_.measure_seconds / static_cast<double>(done);
    options_.progress(
        {false, done, tasks_.size(), problem, pace * static_cast<double>(tasks_.size() - done)});
  }

  // False when the caller stops the sweep. Nothing of this problem is stored then.
  bool measure(SweepWorker& worker, const Task& task, const std::string& next) {
    std::vector<SweepRow> rows;
    SweepRequest request{task.problem, {}, next};
    for (const int kernel : task.kernels) {
      const jit::BuildResult& built = built_[static_cast<std::size_t>(kernel)];
      if (!built.error.empty()) {
        rows.push_back(row_of(kernel, Outcome::failed, built.error));
      } else if (strikes_[kernel] >= kStrikes) {
        rows.push_back(row_of(kernel, Outcome::refused,
                              fmt::format("not run: it ended the worker {} times", kStrikes)));
      } else {
        request.kernels.push_back(kernel);
      }
    }
    while (!request.kernels.empty()) {
      const SweepReply reply = worker.measure(request);
      if (reply.stopped) return false;
      if (reply.is_answer()) {
        rows.insert(rows.end(), reply.rows.begin(), reply.rows.end());
        break;
      }
      if (std::erase(request.kernels, reply.culprit) == 0) {
        report_.unmeasured.push_back(fmt::format("{}: {}", task.problem, reply.note));
        return true;
      }
      ++strikes_[reply.culprit];
      rows.push_back(row_of(reply.culprit, reply.outcome, reply.note));
    }
    record(task.problem, rows);
    return true;
  }

  SweepRow row_of(int kernel, Outcome outcome, const std::string& note) const {
    SweepRow row;
    row.kernel = kernel;
    row.outcome = outcome;
    row.note = note;
    return row;
  }

  void record(const std::string& problem, std::vector<SweepRow>& rows) {
    std::vector<std::string> names;
    const double at = timer_.seconds();
    for (SweepRow& row : rows) {
      row.at = at;
      row.note = row.note.substr(0, kNoteLetters);
      names.push_back(name(row.kernel));
      ++report_.outcomes[row.outcome];
      const bool is_better = row.outcome == Outcome::ok && row.finalist &&
                             (clock_problem_.empty() || clock_problem_ == problem) &&
                             (clock_seconds_ == 0 || row.seconds < clock_seconds_);
      if (!is_better) continue;
      clock_problem_ = problem;
      clock_kernel_ = row.kernel;
      clock_seconds_ = row.seconds;
    }
    store_.record(run_, problem, names, rows);
    report_.rows += rows.size();
    ++report_.measured;
    --report_.remaining;
  }

  void read_clock(SweepWorker& worker) {
    if (clock_problem_.empty() || (clock_at_ > 0 && timer_.seconds() - clock_at_ < kClockSeconds)) {
      return;
    }
    clock_at_ = timer_.seconds();
    const double seconds = worker.read_clock(clock_problem_, clock_kernel_);
    if (seconds > 0) {
      store_.record_clock(run_, clock_problem_, name(clock_kernel_), clock_at_, seconds);
    }
  }

  std::span<const KernelSpec> kernels_;
  const Target& target_;
  SweepStore& store_;
  const SweepOptions& options_;
  Timer timer_;
  std::vector<std::string> names_;
  SweepRun run_;
  SweepSetup setup_;
  std::vector<Task> tasks_;
  std::unique_ptr<jit::Builder> builder_;
  std::vector<jit::BuildResult> built_;
  std::map<int, int> strikes_;
  std::string clock_problem_;
  int clock_kernel_ = -1;
  double clock_seconds_ = 0;
  double clock_at_ = 0;
  SweepReport report_;
};

}  // namespace

bool in_shard(const std::string& problem, int shard, int shards) {
  return hash64(problem) % static_cast<std::uint64_t>(shards) ==
         static_cast<std::uint64_t>(shard - 1);
}

std::vector<KernelSpec> kernels_for(std::span<const Problem> problems, const Target& target,
                                    std::string_view wildcard) {
  // Two problems of one signature need not have the same candidates: a convolution with a filter of
  // one point has some of its own.
  std::map<std::string, KernelSpec> found;
  for (const Problem& problem : problems) {
    const Family& family = family_of(problem);
    for (const KernelSpec& spec : family.candidates(problem, target)) {
      const std::string name = name_of(spec);
      if (!found.contains(name) && matches_wildcard(wildcard, name) &&
          family.is_legal(spec, target)) {
        found.emplace(name, spec);
      }
    }
  }
  std::vector<KernelSpec> specs;
  for (auto& [name, spec] : found) specs.push_back(std::move(spec));
  return specs;
}

SweepReport sweep(std::span<const Problem> problems, std::span<const KernelSpec> kernels,
                  const Target& target, SweepStore& store, const SweepOptions& options) {
  if (options.shards < 1 || options.shard < 1 || options.shard > options.shards) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("sweep: shard must be 1/n to n/n, got {}/{}", options.shard, options.shards));
  }
  const std::string reason = runtime::backend_for(target).unavailable_reason(target);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, "sweep: " + reason);
  return Sweep(problems, kernels, target, store, options).run();
}

}  // namespace tessera::measure
