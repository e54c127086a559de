// Launches of plans over a range; range_plan_make.cc makes the plans.
#include "tessera/dispatch/range_plan.h"

#include <algorithm>

#include "tessera/dispatch/range_state_internal.h"
#include "tessera/dispatch/recorder_internal.h"
#include "tessera/families/family.h"

namespace tessera {

RangePlan::State::State(RangeSource from, RangedProblem of)
    : source(std::move(from)),
      ranged(std::move(of)),
      family(family_of(ranged.problem)),
      bound(static_cast<std::size_t>(count_of(ranged.range))) {}

RangePlan::State::~State() {
  for (const auto& slot : bound) delete slot.load(std::memory_order_relaxed);
}

const RangeKernel& RangePlan::State::kernel_of(std::int64_t value) const {
  const auto part =
      std::upper_bound(parts.begin(), parts.end(), value,
                       [](std::int64_t v, const PlannedPart& p) { return v <= p.last; });
  return *kernels[static_cast<std::size_t>(part - parts.begin())];
}

// What a kernel measured on exactly this problem is worth was measured too.
int RangePlan::State::worth_threads(const RangeKernel& kernel, std::int64_t value,
                                    const Problem& computed) const {
  Decision decision = kernel.decision;
  if (std::binary_search(tuned.begin(), tuned.end(), value)) decision.source = ChoiceSource::tuned;
  return source.worth_threads(decision, computed);
}

ReadyKernel RangePlan::State::ready_at(std::int64_t value) const {
  const Problem problem = problem_at(ranged.problem, ranged.range, value);
  const Problem computed = computed_of(source.options, problem);
  const RangeKernel& kernel = kernel_of(value);
  ReadyKernel ready;
  ready.family = &family;
  ready.target = &source.target;
  ready.spec = kernel.decision.spec;
  ready.name = kernel.decision.name;
  ready.source = kernel.decision.source;
  ready.worth_threads = worth_threads(kernel, value, computed);
  ready.predicted_seconds = kernel.decision.predicted_seconds;
  ready.loaded = kernel.loaded;
  if (computed != problem) ready.own = std::make_shared<const Problem>(computed);
  return ready;
}

// Threads that meet here bind the same, and all but the first throw theirs away.
const BoundValue& RangePlan::State::bind(std::int64_t value) const {
  const Problem problem = problem_at(ranged.problem, ranged.range, value);
  const ReadyKernel ready = ready_at(value);
  std::unique_ptr<const BoundValue> made(new BoundValue{CallPlan(ready, problem), *ready.loaded});
  const BoundValue* expected = nullptr;
  std::atomic<const BoundValue*>& slot =
      bound[static_cast<std::size_t>(value - ranged.range.first)];
  if (!slot.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return *expected;
  }
  return *made.release();
}

RangePlan::RangePlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
RangePlan::~RangePlan() = default;

const RangedProblem& RangePlan::ranged() const { return state_->ranged; }
const std::vector<PlannedPart>& RangePlan::parts() const { return state_->parts; }
std::size_t RangePlan::workspace_bytes() const { return state_->workspace_bytes; }

ReadyKernel RangePlan::kernel_at(std::int64_t value) const {
  ReadyKernel ready = state_->ready_at(value);
  ready.plan = std::make_shared<const CallPlan>(
      ready, problem_at(state_->ranged.problem, state_->ranged.range, value));
  return ready;
}

// Calls that are not usual, or bring a workspace, are checked against the problem.
void RangePlan::launch(std::int64_t value, const Operands& operands,
                       const RangeLaunchOptions& given) const {
  check_value(state_->ranged.range, value);
  const BoundValue& bound = state_->bound_at(value);
  runtime::LaunchOptions options = state_->source.launch;
  options.stream = given.stream;
  options.workspace = given.workspace;
  options.workspace_bytes = given.workspace_bytes;
  if (state_->source.samples || recordings != 0) {
    return state_->launch_observed(value, bound, operands, options);
  }
  Addresses at;
  const CallPlan& plan = bound.plan;
  if (plan.launch && given.workspace_bytes == 0 && plan.value_check == nullptr &&
      plan.pointers.are_usual(operands, at) && plan.launch->serves(at)) {
    return bound.loaded.launch(plan.launch->launch_at(at), options);
  }
  const CallerMemory workspace = {.data = given.workspace, .bytes = given.workspace_bytes};
  const Launch launch = state_->unusual_launch(value, bound, operands, workspace);
  bound.loaded.launch(launch, options);
}

// The call plan, in which calls are counted, is the value's and lives as long as this object.
void RangePlan::State::launch_observed(std::int64_t value, const BoundValue& of,
                                       const Operands& operands,
                                       const runtime::LaunchOptions& options) const {
  ReadyKernel kernel = ready_at(value);
  kernel.plan = std::shared_ptr<const CallPlan>(std::shared_ptr<void>(), &of.plan);
  const Problem problem = problem_at(ranged.problem, ranged.range, value);
  source.launch_observed(kernel, problem, operands, options);
}

// The same as checked_launch(), for which the problem is made anew.
Launch RangePlan::State::unusual_launch(std::int64_t value, const BoundValue& of,
                                        const Operands& operands,
                                        const CallerMemory& workspace) const {
  const Problem problem = problem_at(ranged.problem, ranged.range, value);
  validate_operands(family, problem, operands, workspace);
  const CallPlan& plan = of.plan;
  if (plan.value_check != nullptr) plan.value_check(problem, operands);
  Addresses at;
  if (plan.launch && plan.pointers.are_usual(operands, at) && plan.launch->serves(at)) {
    return plan.launch->launch_at(at);
  }
  return launch_of(ready_at(value), problem, operands);
}

}  // namespace tessera
