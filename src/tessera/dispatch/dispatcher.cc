#include "tessera/dispatch/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/processors.h"
#include "tessera/base/seconds.h"
#include "tessera/dispatch/among_ready_internal.h"
#include "tessera/dispatch/call_plan_internal.h"
#include "tessera/dispatch/memo_internal.h"
#include "tessera/dispatch/range_plan_internal.h"
#include "tessera/dispatch/recorder_internal.h"
#include "tessera/dispatch/sampling_internal.h"
#include "tessera/dispatch/tuning_internal.h"
#include "tessera/families/operands.h"
#include "tessera/families/operations.h"
#include "tessera/jit/compile_hook_internal.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/outcome.h"
#include "tessera/runtime/availability.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

Target load_or_detect(const std::string& wanted) {
  if (!wanted.empty()) return load_target_here(wanted);
  const std::string configured = environment("TESSERA_TARGET");
  return configured.empty() ? host_target() : load_target_here(configured);
}

bool has_packed_operand(const Problem& problem) {
  return family_of(problem).unpacked(problem) != problem;
}

void require_packable(const Problem& problem) {
  if (has_packed_operand(problem)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("pack: the problem must have an operand that is packed ahead "
                          "(preshuffle=1), got '{}'",
                          to_string(problem)));
}

Prepack prepack_for(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                    void* packed) {
  std::optional<Prepack> made =
      kernel.family->prepack(kernel.spec, problem, *kernel.target, operands, packed);
  if (made) return *std::move(made);
  throw Error(ErrorCode::internal, fmt::format("{}: packs nothing, but was chosen for '{}'",
                                               kernel.name, to_string(problem)));
}

}  // namespace

namespace {

constexpr const char* kRefusedByHook = "the program's compile hook refuses it";

// A choice and its kernel.
struct ReadyLoad {
  Decision decision;
  std::shared_ptr<const runtime::LoadedKernel> loaded;
};

}  // namespace

struct Dispatcher::State {
  DispatcherOptions options;
  Target target;
  std::string not_here;  // why this machine cannot run the target; empty when it can
  bool counts_threads;   // whether kernels run on this processor's threads
  bool declared_only;    // whether to choose among the registry's kernels only
  std::shared_ptr<Registry> registry;
  Tuning tuning;
  Memo memo;
  Recording recording;
  std::atomic<int> cold = 5;
  std::atomic<int> repeat = 10;
  mutable std::atomic<bool> is_refused = false;  // whether compiling was, once
  std::unique_ptr<Sampler> sampler;              // null: no launch is sampled

  State(DispatcherOptions given, std::shared_ptr<Registry> shared)
      : options(std::move(given)),
        target(load_or_detect(options.target)),
        not_here(runtime::why_not_here(target)),
        counts_threads(tessera::counts_threads(target) && not_here.empty()),
        declared_only(shared != nullptr),
        registry(shared ? std::move(shared)
                        : std::make_shared<Registry>("dispatcher", options.build)),
        tuning(options, target, *registry, declared_only),
        recording(options.record) {
    check_seconds("dispatcher: autotune_seconds", options.autotune_seconds);
    registry->add_target(target);
    sampler =
        make_sampler(options, target,
                     [this](const Problem& problem, const KernelSpec& spec,
                            const std::string& sentence) { set_aside(problem, spec, sentence); });
  }

  // Holds only what the choice depends on. Allocates nothing.
  MemoKey key_for(const Problem& problem, const RunOptions& run) const {
    const int threads =
        counts_threads ? runtime::thread_limit(run.launch) : bounded_threads(run.launch.threads);
    return MemoKey{problem, threads, run.launch.device, run.force};
  }
  Decision decide(const MemoKey& key, bool explain) const;
  Decision decide_among_ready(const MemoKey& key, const std::string& no_compiler,
                              std::string_view failed = {}) const;
  void add_general(const MemoKey& key, Decision& decision) const;
  std::string why_not_compiled(const MemoKey& key, const Error& error) const;
  ReadyLoad load_ready(const MemoKey& key, const std::string& missing, const Error& error) const;
  void keep_ready(const MemoKey& key, std::optional<std::vector<KernelSpec>>& pool) const;
  std::string no_compiler_for(const MemoKey& key) const;
  int worth_threads_of(const Decision& decision, const Problem& problem) const;
  ReadyKernel make_ready(const MemoKey& key, MissReport* report) const;
  RecordRow row_of(const MemoKey& key) const;
  const ReadyKernel& insert_recorded(const MemoKey& key, std::uint64_t hash, Recorder& recorder);
  void count(const ReadyKernel& kernel, const MemoKey& key);
  void set_aside(const Problem& problem, const KernelSpec& spec, const std::string& sentence);
};

Decision Dispatcher::State::decide(const MemoKey& key, bool explain) const {
  ChooseOptions choice;
  choice.threads = key.threads;
  choice.pinned = std::string(key.force);
  choice.deterministic = options.deterministic;
  choice.explain = explain;
  choice.says_why = explain || recordings != 0;
  const Advice advice = tuning.advice(key);
  choice.rankers = advice.rankers;
  choice.pool = advice.pool;
  if (options.batch_invariant) {
    choice.batch_invariant = true;
    keep_ready(key, choice.pool);
  }
  Decision decision = choose(key.problem, target, choice);
  if (explain) add_refused(decision, advice.refused);
  return decision;
}

// Where nothing can be compiled, batches must agree on a kernel that is ready: one that is ready
// for some of them only would give others other bits.
void Dispatcher::State::keep_ready(const MemoKey& key,
                                   std::optional<std::vector<KernelSpec>>& pool) const {
  const std::string no_compiler = no_compiler_for(key);
  if (no_compiler.empty()) return;
  const Problem any = any_batch(key.problem).usual.front();
  std::vector<KernelSpec> ready = pool ? *pool : candidates(any, target);
  std::erase_if(ready, [&](const KernelSpec& spec) { return !registry->is_ready(spec); });
  if (ready.empty()) return;
  warn_once(fmt::format("any batch of {} gets one of the {} kernels that are ready: {}",
                        to_string(op_of(any)), ready.size(), no_compiler));
  pool = std::move(ready);
}

// A sentence that says why this machine has no compiler for the target. Empty when it has one, and
// for a forced kernel, which no other kernel may replace.
std::string Dispatcher::State::no_compiler_for(const MemoKey& key) const {
  if (!key.force.empty() || !not_here.empty()) return {};
  std::string why = registry->builder().no_compiler(target);
  if (why.empty() && options.batch_invariant && is_refused) why = kRefusedByHook;
  return why;
}

// The first choice when it is ready or no kernel is; otherwise the best kernel that is ready.
Decision Dispatcher::State::decide_among_ready(const MemoKey& key, const std::string& no_compiler,
                                               std::string_view failed) const {
  Decision decision = decide(key, true);
  if (decision.name != failed && registry->is_ready(decision.spec)) return decision;
  const auto is_there = [&](const Considered& c) { return can_run(c, *registry, failed); };
  if (std::none_of(decision.considered.begin(), decision.considered.end(), is_there)) {
    add_general(key, decision);
  }
  return among_ready(std::move(decision), *registry, no_compiler, failed);
}

// The general kernel runs any valid problem, but is no candidate where others serve.
void Dispatcher::State::add_general(const MemoKey& key, Decision& decision) const try {
  const KernelSpec general = general_kernel(key.problem, target);
  const auto is_same = [&](const Considered& c) { return c.spec == general; };
  std::vector<Considered>& all = decision.considered;
  if (std::any_of(all.begin(), all.end(), is_same)) return;
  const std::string name = name_of(general);
  const Decision forced = decide(MemoKey(key.problem, key.threads, key.device, name), false);
  const auto first_refused =
      std::find_if(all.begin(), all.end(), [](const Considered& c) { return !c.refusal.empty(); });
  all.insert(first_refused,
             Considered{general, name, forced.predicted_seconds, "", ChoiceSource::first_legal});
} catch (const Error&) {
  // It is not in the pool, or does not give the bits that the caller asks for.
}

// Why nothing more is compiled for a problem whose best kernel could not be had; empty where that
// kernel must run.
std::string Dispatcher::State::why_not_compiled(const MemoKey& key, const Error& error) const {
  const bool is_disabled = error.code() == ErrorCode::jit_disabled;
  if (!is_disabled && error.code() != ErrorCode::compile_failed) return {};
  if (is_disabled) is_refused = true;
  std::string why = no_compiler_for(key);
  if (!why.empty() || !is_disabled || !key.force.empty() || !not_here.empty()) return why;
  return kRefusedByHook;
}

// A kernel that is ready in place of one that could not be compiled.
ReadyLoad Dispatcher::State::load_ready(const MemoKey& key, const std::string& missing,
                                        const Error& error) const {
  const std::string why = why_not_compiled(key, error);
  if (why.empty()) throw error;
  Decision decision = decide_among_ready(key, why, missing);
  const std::vector<Considered> ready = decision.considered;
  for (const Considered& candidate : ready) {
    if (decision.name == missing || !candidate.refusal.empty()) break;
    try {
      take(decision, candidate);
      auto loaded = registry->get(candidate.spec);
      warn_once(
          fmt::format("'{}' runs on {}: {}", to_string(key.problem), decision.name, decision.why));
      return {std::move(decision), std::move(loaded)};
    } catch (const Error& next) {
      if (!is_missing(next)) throw;
      warn_once(next.what());
    }
  }
  throw nothing_ready(key.problem, error);
}

// The next call with any problem of this kernel chooses again; other problems choose as before.
void Dispatcher::State::set_aside(const Problem& problem, const KernelSpec& spec,
                                  const std::string& sentence) {
  const std::string name = name_of(spec);
  tuning.set_aside(problem, {spec, name, 0, sentence});
  memo.forget(name);
  log(LogLevel::warning, fmt::format("{} is set aside for '{}' until the process ends: {}", name,
                                     to_string(problem), sentence));
}

// A kernel that was named runs as the caller says, and a measured one as it was measured.
int Dispatcher::State::worth_threads_of(const Decision& decision, const Problem& problem) const {
  const bool as_asked =
      decision.source == ChoiceSource::pinned || decision.source == ChoiceSource::tuned;
  if (as_asked || !counts_threads) return 0;
  return worth_threads(decision.spec, problem, target, decision.threads);
}

namespace {

// What is computed for a problem that is batch invariant; null: the problem itself.
std::shared_ptr<const Problem> own_problem(const Problem& problem) {
  const Problem own = any_batch(problem).own;
  return own == problem ? nullptr : std::make_shared<const Problem>(own);
}

}  // namespace

// A compiler is searched for only when one is needed, because the search takes longer than loading
// a pack.
ReadyKernel Dispatcher::State::make_ready(const MemoKey& key, MissReport* report) const {
  const jit::ForProblem compiles_for(key.problem);
  Decision decision = decide(key, false);
  if (report != nullptr) report->chosen(decision, *registry);
  std::shared_ptr<const runtime::LoadedKernel> loaded;
  try {
    loaded = registry->get(decision.spec);  // emits, builds and loads, once
  } catch (const Error& error) {
    ReadyLoad other = load_ready(key, decision.name, error);
    decision = std::move(other.decision);
    if (report != nullptr) report->chosen(decision, *registry);
    loaded = std::move(other.loaded);
  }
  auto own = options.batch_invariant ? own_problem(key.problem) : nullptr;
  const int worth = worth_threads_of(decision, own ? *own : key.problem);
  const Family& family = family_of(decision.spec);
  ReadyKernel ready{&family,
                    &target,
                    decision.spec,
                    decision.name,
                    decision.source,
                    worth,
                    decision.predicted_seconds,
                    std::move(loaded),
                    nullptr,
                    std::move(own)};
  ready.plan = std::make_shared<const CallPlan>(ready, key.problem);
  return ready;
}

RecordRow Dispatcher::State::row_of(const MemoKey& key) const {
  RecordRow row;
  row.problem = to_string(key.problem);
  row.machine = measure::device_name(target, key.device);
  row.threads = key.threads;
  row.device = key.device;
  row.deterministic = options.deterministic;
  row.batch_invariant = options.batch_invariant;
  return row;
}

// A problem for which no kernel can be had is written down too: it is what a pack lacks.
const ReadyKernel& Dispatcher::State::insert_recorded(const MemoKey& key, std::uint64_t hash,
                                                      Recorder& recorder) {
  MissReport report;
  const ReadyKernel* kernel = nullptr;
  try {
    if (key.force.empty()) tuning.tune_once(key, hash);
    kernel = &memo.insert(key, hash, make_ready(key, &report));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) {
      recorder.add_miss(target, report.failed(row_of(key), error));
    }
    throw;
  }
  kernel->plan->tally = &recorder.add_miss(target, report.ready(row_of(key), *registry));
  return *kernel;
}

// A kernel that was ready before the record began is written down now.
void Dispatcher::State::count(const ReadyKernel& kernel, const MemoKey& key) {
  Recorder* const recorder = recording.active();
  if (recorder == nullptr) return;
  Tally* tally = kernel.plan->tally;
  if (tally == nullptr || tally->owner != recorder) {
    tally = &recorder->tally(target, row_earlier(row_of(key), kernel, decide(key, false)));
    kernel.plan->tally = tally;
  }
  recorder->count(*tally);
}

namespace {

CallerMemory workspace_of(const RunOptions& run) {
  return {.data = run.launch.workspace, .bytes = run.launch.workspace_bytes};
}

}  // namespace

Problem computed_of(const DispatcherOptions& options, const Problem& problem) {
  return options.batch_invariant ? any_batch(problem).own : problem;
}

Launch launch_of(const ReadyKernel& kernel, const Problem& problem, const Operands& operands) {
  Launch launch = kernel.family->bind(kernel.spec, kernel.own ? *kernel.own : problem,
                                      *kernel.target, operands);
  const int worth = kernel.worth_threads;
  if (worth > 0 && (launch.max_threads == 0 || worth < launch.max_threads)) {
    launch.max_threads = worth;
  }
  return launch;
}

Dispatcher::Dispatcher(DispatcherOptions options)
    : state_(std::make_unique<State>(std::move(options), nullptr)) {}

Dispatcher::Dispatcher(DispatcherOptions options, std::shared_ptr<Registry> registry) {
  if (registry == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "dispatcher: the registry must not be null; leave it out to use a new one");
  }
  state_ = std::make_unique<State>(std::move(options), std::move(registry));
}

Dispatcher::~Dispatcher() = default;

const Target& Dispatcher::target() const { return state_->target; }

Registry& Dispatcher::registry() { return *state_->registry; }

// The spine. The first three lines are all that a warm call executes.
const ReadyKernel& Dispatcher::kernel_for(const Problem& problem, const RunOptions& options) {
  const MemoKey key = state_->key_for(problem, options);
  const std::uint64_t hash = hash_of(key);
  if (const ReadyKernel* known = state_->memo.find(key, hash)) return *known;

  family_of(problem).validate(problem);
  if (!state_->not_here.empty()) throw Error(ErrorCode::unsupported, state_->not_here);
  if (Recorder* const recorder = recordings != 0 ? state_->recording.active() : nullptr) {
    return state_->insert_recorded(key, hash, *recorder);
  }
  if (options.force.empty()) state_->tuning.tune_once(key, hash);
  return state_->memo.insert(key, hash, state_->make_ready(key, nullptr));
}

void Dispatcher::run(const Problem& problem, const Operands& operands, const RunOptions& options) {
  const ReadyKernel& kernel = kernel_for(problem, options);
  if (recordings != 0) count_call(kernel, problem, options);
  const Launch launch = checked_launch(kernel, problem, operands, workspace_of(options));
  if (!options.verify && state_->sampler) {
    return state_->sampler->launch(kernel, problem, operands, launch, options.launch);
  }
  if (!options.verify) return kernel.loaded->launch(launch, options.launch);
  const Family& family = *kernel.family;
  if (has_packed_operand(problem)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("verify: the reference needs every operand as it was, '{}' has a packed "
                    "one; verify '{}'",
                    to_string(problem), to_string(family.unpacked(problem))));
  }
  const runtime::Place place{&runtime::backend_for(state_->target), options.launch};
  measure::HostOperands host = measure::fetch_inputs(family, problem, operands, place);
  // The reference is computed before the launch, because the launch may overwrite its inputs.
  const ReferenceLimits limits{.fp8 = state_->target.fp8_encoding};
  const Reference reference = family.reference(problem, host.operands, limits);
  kernel.loaded->launch(launch, options.launch);
  measure::fetch_results(family, operands, place, host);
  const Mismatch mismatch = family.compare(problem, host.operands, reference);
  if (!mismatch.ok) {
    throw Error(ErrorCode::verification_failed,
                fmt::format("{}: {}", kernel.name, mismatch.message));
  }
}

void Dispatcher::count_call(const ReadyKernel& kernel, const Problem& problem,
                            const RunOptions& options) {
  state_->count(kernel, state_->key_for(problem, options));
}

Preloaded Dispatcher::preload(const std::filesystem::path& pack,
                              const runtime::LaunchOptions& place) {
  if (!state_->not_here.empty()) throw Error(ErrorCode::unsupported, state_->not_here);
  return state_->registry->preload(pack, state_->target.name, place);
}

bool Dispatcher::samples() const { return state_->sampler != nullptr; }

void Dispatcher::launch_sampled(const ReadyKernel& kernel, const Problem& problem,
                                const Operands& operands, const Launch& launch,
                                const runtime::LaunchOptions& options) const {
  state_->sampler->launch(kernel, problem, operands, launch, options);
}

SamplingReport Dispatcher::sampling() const {
  return state_->sampler ? state_->sampler->report() : SamplingReport{};
}

void Dispatcher::set_timing(int cold, int repeat) {
  if (cold < 0 || repeat < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("set_timing: cold must be at least 0 and repeat at least 1, got cold={} "
                    "and repeat={}",
                    cold, repeat));
  }
  state_->cold = cold;
  state_->repeat = repeat;
}

// A reading is one run, as callers of one run see it.
RunTiming Dispatcher::time(const Problem& problem, const Operands& operands,
                           const RunOptions& options) {
  const ReadyKernel& kernel = kernel_for(problem, options);
  const Launch launch = checked_launch(kernel, problem, operands, workspace_of(options));
  const auto call = [&] { kernel.loaded->launch(launch, options.launch); };
  runtime::Protocol protocol;
  protocol.rounds = state_->repeat;
  protocol.warmup = state_->cold;
  protocol.min_seconds = 0;
  const runtime::Place place{&runtime::backend_for(state_->target), options.launch};
  const runtime::Timing timing = runtime::measure({{kernel.name, call}}, protocol, place).front();
  return {timing.median_seconds, timing.min_seconds, timing.seconds};
}

ExecutionPlan Dispatcher::plan(const Problem& problem, const RunOptions& options) const {
  const Decision decision = explain(problem, options);
  const Problem computed = computed_of(state_->options, problem);
  return {decision.name, stages_of(decision.spec, computed, state_->target)};
}

Decision Dispatcher::explain(const Problem& problem, const RunOptions& options) const {
  const MemoKey key = state_->key_for(problem, options);
  const std::string no_compiler = state_->no_compiler_for(key);
  return no_compiler.empty() ? state_->decide(key, true)
                             : state_->decide_among_ready(key, no_compiler);
}

std::size_t Dispatcher::workspace_bytes(const Problem& problem, const RunOptions& options) {
  const ReadyKernel& kernel = kernel_for(problem, options);
  const Launch launch = launch_of(kernel, problem, no_operands(problem));
  return kernel.loaded->workspace_bytes(launch, options.launch);
}

std::size_t Dispatcher::packed_bytes(const Problem& problem, const RunOptions& options) {
  require_packable(problem);
  return prepack_for(kernel_for(problem, options), problem, no_operands(problem), nullptr).bytes;
}

void Dispatcher::pack(const Problem& problem, const Operands& operands, void* packed,
                      const RunOptions& options) {
  require_packable(problem);
  const ReadyKernel& kernel = kernel_for(problem, options);
  const Prepack prepack = prepack_for(kernel, problem, operands, packed);
  if (prepack.bytes == 0) return;
  if (prepack.from == nullptr || packed == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("pack: {} must not be null: {} bytes are to be packed",
                            prepack.from == nullptr ? prepack.operand : "packed", prepack.bytes));
  }
  check_memory_apart(*kernel.family, kernel.family->tensors(problem), operands,
                     {"packed", packed, prepack.bytes});
  kernel.loaded->launch(prepack.launch, options.launch);
}

// Threads of their own choose, which may have another limit of OpenMP's: the caller's counts.
std::shared_ptr<const RangePlan> Dispatcher::plan_range(const Problem& problem,
                                                        const FieldRange& range,
                                                        const RunOptions& options) {
  State& state = *state_;
  if (!state.not_here.empty()) throw Error(ErrorCode::unsupported, state.not_here);
  runtime::LaunchOptions launch;
  launch.threads = options.launch.threads;
  launch.device = options.launch.device;
  const int threads = state.key_for(problem, options).threads;
  const auto key_for = [threads, device = launch.device, force = options.force](const Problem& at) {
    return MemoKey{at, threads, device, force};
  };
  const auto decide = [&state, key_for](const Problem& at) {
    const MemoKey key = key_for(at);
    const std::string no_compiler = state.no_compiler_for(key);
    Decision decision = state.decide(key, false);
    if (no_compiler.empty() || state.registry->is_ready(decision.spec)) return decision;
    warn_once("a plan over a range chooses among the kernels that are ready: " + no_compiler);
    return state.decide_among_ready(key, no_compiler);
  };
  const auto is_measured = [&state, key_for](const Problem& at) {
    return state.tuning.is_measured(key_for(at));
  };
  const auto worth = [&state](const Decision& decision, const Problem& computed) {
    return state.worth_threads_of(decision, computed);
  };
  const auto observed = [&state, key_for](const ReadyKernel& kernel, const Problem& at,
                                          const Operands& operands,
                                          const runtime::LaunchOptions& how) {
    if (recordings != 0) state.count(kernel, key_for(at));
    const CallerMemory workspace = {.data = how.workspace, .bytes = how.workspace_bytes};
    const Launch ready = checked_launch(kernel, at, operands, workspace);
    if (!state.sampler) return kernel.loaded->launch(ready, how);
    state.sampler->launch(kernel, at, operands, ready, how);
  };
  return make_range_plan({state.options, state.target, *state.registry, launch, threads, decide,
                          is_measured, worth, state.sampler != nullptr, observed},
                         problem, range);
}

}  // namespace tessera
