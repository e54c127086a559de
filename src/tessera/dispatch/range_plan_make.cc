// Making plans over a range: choosing, checking, building and loading for all values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/parallel.h"
#include "tessera/dispatch/range_state_internal.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

// What was decided while the parts of a range were looked for.
class RangeChoices {
 public:
  RangeChoices(const RangeSource& source, const RangedProblem& ranged)
      : source_(source), ranged_(ranged), family_(family_of(ranged.problem)) {
    if (source.options.batch_invariant) any_ = family_.any_batch(ranged.problem);
  }

  Problem at(std::int64_t value) const { return problem_at(ranged_.problem, ranged_.range, value); }
  // The name of the kernel that is chosen for a value.
  std::string ask(std::int64_t value) {
    Decision decision = source_.decide(at(value));
    decision.considered.clear();
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = decisions_.try_emplace(decision.name, decision);
    if (!is_new && known->second.source == ChoiceSource::tuned) known->second = decision;
    return (asked_[value] = std::move(decision)).name;
  }
  // Whether a part's kernel is right at a value that may not have been asked. What was measured for
  // a value decides there.
  bool serves(std::int64_t value, const std::string& kernel) const {
    const Problem problem = at(value);
    KernelSpec spec;
    {
      const std::lock_guard lock(mutex_);
      if (asked_.contains(value)) return true;
      spec = spec_of(kernel);
    }
    family_.validate(problem);
    if (source_.is_measured(problem)) return false;
    return serves(spec, problem);
  }
  // Whether a kernel that was chosen somewhere in the range may run at any of its values.
  bool serves_all(const std::string& kernel) const {
    const KernelSpec& spec = spec_of(kernel);
    const auto& [field, first, last] = ranged_.range;
    for (std::int64_t value = first; value <= last; ++value) {
      if (!serves(spec, at(value))) return false;
    }
    return true;
  }
  // The decision of a part: one that was not measured, where there is one, because what was
  // measured counts for its own value alone. A part between values that were measured may have none
  // of its own: its kernel was decided elsewhere.
  Decision decision_of(const RangePart& part) const {
    const Decision* found = nullptr;
    for (auto entry = asked_.lower_bound(part.first);
         entry != asked_.end() && entry->first <= part.last; ++entry) {
      const Decision& decision = entry->second;
      if (decision.name != part.kernel) continue;
      if (decision.source != ChoiceSource::tuned) return decision;
      if (found == nullptr) found = &decision;
    }
    if (found != nullptr) return *found;
    Decision elsewhere = decisions_.at(part.kernel);
    const Problem problem = computed_of(source_.options, at(part.first));
    elsewhere.predicted_seconds =
        family_.estimate(elsewhere.spec, problem, source_.target, source_.threads).seconds;
    return elsewhere;
  }
  std::vector<std::int64_t> tuned() const {
    std::vector<std::int64_t> values;
    for (const auto& [value, decision] : asked_) {
      if (decision.source == ChoiceSource::tuned) values.push_back(value);
    }
    return values;
  }
  const KernelSpec& spec_of(const std::string& kernel) const { return decisions_.at(kernel).spec; }
  // Forgets the decisions for other kernels, where one takes the whole range.
  void keep_one(const std::string& kernel) {
    std::erase_if(asked_, [&](const auto& entry) { return entry.second.name != kernel; });
  }

 private:
  bool serves(const KernelSpec& spec, const Problem& problem) const {
    const Problem computed = computed_of(source_.options, problem);
    if (!family_.supports(spec, computed, source_.target)) return false;
    return !source_.options.batch_invariant || adds_alike(spec, problem, computed);
  }
  // Whether the order of sums for any batch is the one that was chosen at the range's first value,
  // and the kernel has it here as there.
  bool adds_alike(const KernelSpec& spec, const Problem& problem, const Problem& computed) const {
    const AnyBatch here = family_.any_batch(problem);
    if (here.usual != any_.usual || here.unusual != any_.unusual) return false;
    return family_.order_of_sums(spec, computed, source_.target) ==
           family_.order_of_sums(spec, any_.own, source_.target);
  }

  const RangeSource& source_;
  const RangedProblem& ranged_;
  const Family& family_;
  AnyBatch any_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, Decision> asked_;
  // One for each name, not a measured one where there is another; they stay where they are.
  std::map<std::string, Decision> decisions_;
};

std::vector<RangePart> choose_parts(RangeChoices& choices, const FieldRange& range) {
  const KernelOf kernel_of = [&](std::int64_t value) { return choices.ask(value); };
  const Serves serves = [&](std::int64_t value, const std::string& kernel) {
    return choices.serves(value, kernel);
  };
  return with_served(parts_of(range, kernel_of, 0), serves, kernel_of, 0);
}

// ---- one packing ----

// The logarithm of a kernel's estimated times over those of the chosen ones, summed over the ends
// of the parts.
double loss_of(const RangeSource& source, const RangeChoices& choices, const std::string& kernel,
               const std::vector<RangePart>& parts) {
  double loss = 0;
  const auto seconds = [&](const std::string& name, const Problem& problem) {
    return family_of(problem)
        .estimate(choices.spec_of(name), problem, source.target, source.threads)
        .seconds;
  };
  for (const RangePart& part : parts) {
    for (const std::int64_t value : {part.first, part.last}) {
      const Problem problem = choices.at(value);
      loss += std::log(seconds(kernel, problem) / seconds(part.kernel, problem));
    }
  }
  return loss;
}

// Throws unless the kernel packs the same bytes in the same way for every value.
void check_one_packing(const RangeSource& source, const RangedProblem& ranged,
                       const KernelSpec& spec) {
  const Family& family = family_of(spec);
  const auto& [field, first, last] = ranged.range;
  const auto packing_at = [&](std::int64_t value) {
    const Problem problem = problem_at(ranged.problem, ranged.range, value);
    return *family.prepack(spec, problem, source.target, no_operands(problem), nullptr);
  };
  const Prepack wanted = packing_at(first);
  for (std::int64_t value = first + 1; value <= last; ++value) {
    const Prepack other = packing_at(value);
    if (other.bytes == wanted.bytes) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("range: one packing of {} must serve every value of {}, but it has {} "
                    "bytes at {}={} and {} bytes at {}={}; make a plan for each value",
                    wanted.operand, field, wanted.bytes, field, first, other.bytes, field, value));
  }
}

// An operand that is packed ahead lies as one kernel wants it. So the whole range gets one kernel:
// of those that were chosen for some value and serve all, the one that loses least by the estimate.
std::vector<RangePart> with_one_packing(const RangeSource& source, const RangedProblem& ranged,
                                        RangeChoices& choices, std::vector<RangePart> parts) {
  std::set<std::string> names;
  for (const RangePart& part : parts) names.insert(part.kernel);
  const std::string* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& name : names) {
    const double loss = loss_of(source, choices, name, parts);
    if (best != nullptr && loss >= least) continue;
    if (!choices.serves_all(name)) continue;
    best = &name, least = loss;
  }
  if (best == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("range: '{}' has an operand that is packed ahead for one kernel, but "
                            "none of the {} chosen kernels serves all values; make a plan for each "
                            "value, or leave preshuffle out",
                            to_string(ranged), names.size()));
  }
  check_one_packing(source, ranged, choices.spec_of(*best));
  choices.keep_one(*best);
  return {{ranged.range.first, ranged.range.last, *best}};
}

bool packs_ahead(const Problem& problem) { return family_of(problem).unpacked(problem) != problem; }

}  // namespace

// ---- the plan ----

namespace {

// Each kernel is built and loaded once, several at a time, and given to the device.
void load_kernels(RangePlan::State& state, const RangeChoices& choices,
                  const std::vector<RangePart>& parts) {
  std::map<std::string, std::shared_ptr<const runtime::LoadedKernel>> loaded;
  for (const RangePart& part : parts) loaded[part.kernel] = nullptr;
  std::vector<std::string> names;
  for (const auto& [name, none] : loaded) names.push_back(name);
  in_parallel(names.size(), 0, [&](std::size_t i) {
    auto& kernel = loaded.at(names[i]);
    kernel = state.source.registry.get(choices.spec_of(names[i]));
    kernel->place(state.source.launch);
  });
  for (const RangePart& part : parts) {
    Decision decision = choices.decision_of(part);
    state.parts.push_back(
        {part.first, part.last, part.kernel, decision.source, decision.predicted_seconds});
    state.kernels.push_back(std::make_shared<const RangeKernel>(
        RangeKernel{std::move(decision), loaded.at(part.kernel)}));
  }
}

bool are_alike(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.operand == y.operand && x.may_be_null == y.may_be_null;
  });
}

void check_operands_alike(const RangePlan::State& state, const Tensors& first, std::int64_t value) {
  const auto& [problem, range] = state.ranged;
  if (are_alike(first, state.family.tensors(problem_at(problem, range, value)))) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("range: '{}' has other operands at {}={} than at {}={}; make a plan for "
                          "each",
                          to_string(state.ranged), range.field, value, range.field, range.first));
}

// The most bytes of any launch of the plan. Every value is asked, with the threads that its launch
// is worth, because nothing says that the bytes grow with the value.
std::size_t most_workspace(const RangePlan::State& state) {
  const auto& [problem, range] = state.ranged;
  const Tensors tensors = state.family.tensors(problem);
  std::size_t most = 0;
  for (std::int64_t value = range.first; value <= range.last; ++value) {
    check_operands_alike(state, tensors, value);
    const Problem at = problem_at(problem, range, value);
    const ReadyKernel ready = state.ready_at(value);
    const Launch launch = launch_of(ready, at, no_operands(at));
    most = std::max(most, ready.loaded->workspace_bytes(launch, state.source.launch));
  }
  return most;
}

}  // namespace

std::shared_ptr<const RangePlan> make_range_plan(RangeSource source, const Problem& problem,
                                                 const FieldRange& range) {
  count_of(range);
  RangedProblem ranged{problem_at(problem, range, range.first), range};
  auto state = std::make_unique<RangePlan::State>(std::move(source), std::move(ranged));
  RangeChoices choices(state->source, state->ranged);
  std::vector<RangePart> parts = choose_parts(choices, range);
  if (packs_ahead(problem)) {
    parts = with_one_packing(state->source, state->ranged, choices, std::move(parts));
  }
  load_kernels(*state, choices, parts);
  state->tuned = choices.tuned();
  state->workspace_bytes = most_workspace(*state);
  return std::make_shared<const RangePlan>(std::move(state));
}

}  // namespace tessera
