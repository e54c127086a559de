#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/registry/kernel_set_internal.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera {

// One entry of the declaration: exactly one of the five kinds. The first kind may take many
// entries, of which those after the first hold one wish each: copies of a builder share entries, so
// that none may change.
struct KernelSetBuilder::Group {
  SpecGroup wildcards;
  bool narrows = false;  // the wildcards of the entry before
  std::string kernel;
  std::string preselected;
  std::string receipt;
  std::optional<Problem> problem;
  int best = 1;
};

namespace {

void check_kernel(const std::string& set, const KernelSpec& spec, const Target& target) {
  const std::string name = name_of(spec);
  if (spec.target != target.name) {
    throw Error(ErrorCode::illegal_spec,
                fmt::format("kernel set '{}': {} is for target '{}', the set is for '{}'", set,
                            name, spec.target, target.name));
  }
  const Verdict verdict = family_of(spec).is_legal(spec, target);
  if (!verdict) {
    throw Error(ErrorCode::illegal_spec,
                fmt::format("kernel set '{}': {}: {}", set, name, verdict.reason));
  }
}

// The `best` fastest kernels by estimate. Kernels with equal estimates are ordered by name.
std::vector<KernelSpec> specs_for(const Problem& problem, int best, const Target& target) {
  const Family& family = family_of(problem);
  family.validate(problem);
  std::vector<std::pair<double, std::string>> order;
  std::map<std::string, KernelSpec> able;
  for (KernelSpec& spec : family.candidates(problem, target)) {
    if (!family.is_legal(spec, target) || !family.supports(spec, problem, target)) continue;
    std::string name = name_of(spec);
    order.emplace_back(family.estimate(spec, problem, target, target.units).seconds, name);
    able.emplace(std::move(name), std::move(spec));
  }
  if (order.empty()) return {family.general(problem, target)};
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<std::size_t>(best)));
  std::vector<KernelSpec> specs;
  for (const auto& [seconds, name] : order) specs.push_back(able.at(name));
  return specs;
}

// The best kernel for each problem of the receipt, and those that run any problem of its
// signatures.
std::vector<KernelSpec> receipt_specs(std::string_view name, const Target& target) {
  const FoundReceipt found = find_receipt(name);
  std::vector<KernelSpec> specs;
  for (const Problem& problem : found.family->receipt_problems(*found.receipt)) {
    specs.push_back(found.family->general(problem, target));
    for (KernelSpec& best : specs_for(problem, 1, target)) specs.push_back(std::move(best));
  }
  return specs;
}

}  // namespace

std::vector<KernelSpec> unique_by_name(std::vector<KernelSpec> specs) {
  std::map<std::string, KernelSpec> sorted;
  for (KernelSpec& spec : specs) sorted.emplace(name_of(spec), std::move(spec));
  std::vector<KernelSpec> unique;
  for (auto& [name, spec] : sorted) unique.push_back(std::move(spec));
  return unique;
}

KernelSetBuilder::KernelSetBuilder(std::string name, const Target& target)
    : name_(std::move(name)), target_(std::make_shared<const Target>(target)) {}

KernelSetBuilder::KernelSetBuilder(std::string name, std::string_view target_name)
    : KernelSetBuilder(std::move(name), load_target(target_name)) {}

KernelSetBuilder& KernelSetBuilder::op(Op op) {
  family_of(op);  // throws for an operation without a family
  groups_.push_back(std::make_shared<Group>());
  groups_.back()->wildcards.op = op;
  return *this;
}

KernelSetBuilder& KernelSetBuilder::narrow(std::string_view setter, std::string_view field,
                                           std::string_view pattern) {
  if (groups_.empty() || !groups_.back()->wildcards.op) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel set '{}': {}() narrows a group of kernels; call gemm() first",
                            name_, setter));
  }
  const Wish wish = {std::string(field), std::string(pattern)};
  const KernelFilter checked(family_of(*groups_.back()->wildcards.op), {&wish, 1});
  auto more = std::make_shared<Group>();
  more->wildcards = {groups_.back()->wildcards.op, {wish}};
  more->narrows = true;
  groups_.push_back(std::move(more));
  return *this;
}

KernelSetBuilder& KernelSetBuilder::where(std::string_view field, std::string_view pattern) {
  return narrow("where", field, pattern);
}

KernelSetBuilder& KernelSetBuilder::add(std::string_view kernel_name) {
  check_kernel(name_, parse_name(kernel_name), *target_);
  groups_.push_back(std::make_shared<Group>());
  groups_.back()->kernel = kernel_name;
  return *this;
}

KernelSetBuilder& KernelSetBuilder::preselected(std::string_view set_name) {
  family_of_set(set_name);  // throws for an unknown name
  groups_.push_back(std::make_shared<Group>());
  groups_.back()->preselected = set_name;
  return *this;
}

KernelSetBuilder& KernelSetBuilder::receipt(std::string_view name) {
  find_receipt(name);
  groups_.push_back(std::make_shared<Group>());
  groups_.back()->receipt = name;
  return *this;
}

KernelSetBuilder& KernelSetBuilder::for_problem(const Problem& problem, int best) {
  if (best < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel set '{}': for_problem() takes at least 1 kernel, got best={}",
                            name_, best));
  }
  groups_.push_back(std::make_shared<Group>());
  groups_.back()->problem = problem;
  groups_.back()->best = best;
  return *this;
}

KernelSet KernelSetBuilder::build() const {
  std::vector<KernelSpec> specs;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group* const group = groups_[i].get();
    std::vector<KernelSpec> more;
    if (group->wildcards.op) {
      SpecGroup all = group->wildcards;
      for (; i + 1 < groups_.size() && groups_[i + 1]->narrows; ++i) {
        all.wishes.push_back(groups_[i + 1]->wildcards.wishes.front());
      }
      more = expand(all, *target_, fmt::format("kernel set '{}'", name_));
    } else if (group->problem) {
      more = specs_for(*group->problem, group->best, *target_);
    } else if (!group->preselected.empty()) {
      more = family_of_set(group->preselected).preselected(group->preselected, *target_);
    } else if (!group->receipt.empty()) {
      more = receipt_specs(group->receipt, *target_);
    } else {
      more = {parse_name(group->kernel)};
    }
    std::move(more.begin(), more.end(), std::back_inserter(specs));
  }
  return {name_, unique_by_name(std::move(specs))};
}

}  // namespace tessera
