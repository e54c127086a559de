#include "tessera/families/operations.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/families/family.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace {

const Family& family_of_operands(const Operands& operands) {
  return family_of(kVariantOps[operands.index()]);
}

// Empty for a problem of the kernel's operation.
std::string other_operation(const KernelSpec& spec, const Problem& problem) {
  if (op_of(spec) == op_of(problem)) return {};
  return fmt::format("the kernel is of {}, got a problem of {}", to_string(op_of(spec)),
                     to_string(op_of(problem)));
}

const Family& family_of_both(const KernelSpec& spec, const Problem& problem) {
  if (const std::string reason = other_operation(spec, problem); !reason.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name_of(spec), reason));
  }
  return family_of(spec);
}

}  // namespace

// ---- a problem ----

void validate(const Problem& problem) { family_of(problem).validate(problem); }

Tensors tensors_of(const Problem& problem) { return family_of(problem).tensors(problem); }

const void* pointer_of(const Operands& operands, const Tensor& tensor) {
  return family_of_operands(operands).pointer(operands, tensor.operand);
}

void set_pointer(Operands& operands, const Tensor& tensor, void* pointer) {
  family_of_operands(operands).set_pointer(operands, tensor.operand, pointer);
}

double flops_of(const Problem& problem) { return family_of(problem).flops(problem); }
double bytes_of(const Problem& problem) { return family_of(problem).bytes(problem); }
AnyBatch any_batch(const Problem& problem) { return family_of(problem).any_batch(problem); }

Mismatch verify(const Problem& problem, const Operands& operands) {
  const Family& family = family_of(problem);
  family.validate(problem);
  validate_operands(family, problem, operands);
  return family.verify(problem, operands);
}

SettledProblem settle(Op op, std::span<const Setting> settings) {
  return family_of(op).from_settings(settings);
}

// ---- the kernels of a target ----

std::vector<KernelSpec> enumerate(Op op, const Target& target, std::span<const Wish> wishes) {
  return family_of(op).enumerate(target, wishes);
}

std::vector<std::string> wish_fields(Op op) { return wish_fields(family_of(op)); }

std::vector<KernelSpec> preselected(Op op, std::string_view set, const Target& target) {
  return family_of(op).preselected(set, target);
}

std::vector<std::string> preselected_names(Op op) { return family_of(op).preselected_names(); }

std::vector<KernelSpec> candidates(const Problem& problem, const Target& target) {
  return family_of(problem).candidates(problem, target);
}

std::vector<KernelSpec> kernels_for(const Problem& problem, const Target& target) {
  const Family& family = family_of(problem);
  std::vector<KernelSpec> specs = family.legal_candidates(problem, target);
  std::erase_if(specs,
                [&](const KernelSpec& spec) { return !family.supports(spec, problem, target); });
  return specs;
}

KernelSpec general_kernel(const Problem& problem, const Target& target) {
  return family_of(problem).general(problem, target);
}

std::vector<Receipt> all_receipts() {
  std::vector<Receipt> all;
  for (const Family* family : all_families()) {
    const auto receipts = family->receipts();
    all.insert(all.end(), receipts.begin(), receipts.end());
  }
  return all;
}

std::vector<Signature> receipt_signatures(std::string_view name) {
  const FoundReceipt found = find_receipt(name);
  std::vector<Signature> all;
  for (const Problem& problem : found.family->receipt_problems(*found.receipt)) {
    const Signature signature = signature_of(problem);
    if (std::find(all.begin(), all.end(), signature) == all.end()) all.push_back(signature);
  }
  return all;
}

// ---- a kernel ----

Verdict is_legal(const KernelSpec& spec, const Target& target) {
  return family_of(spec).is_legal(spec, target);
}

Verdict is_deterministic(const KernelSpec& spec, const Target& target) {
  return family_of(spec).is_deterministic(spec, target);
}

Verdict is_batch_invariant(const KernelSpec& spec, const Target& target) {
  const Family& family = family_of(spec);
  Verdict verdict = family.is_deterministic(spec, target);
  return verdict ? family.is_batch_invariant(spec, target) : verdict;
}

Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target) {
  if (std::string reason = other_operation(spec, problem); !reason.empty()) return {reason};
  return family_of(spec).supports(spec, problem, target);
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  return family_of_both(spec, problem).estimate(spec, problem, target, threads);
}

Source emit_legal(const KernelSpec& spec, const Target& target) {
  const Family& family = family_of(spec);
  if (const Verdict verdict = family.is_legal(spec, target); !verdict) {
    throw Error(ErrorCode::illegal_spec, fmt::format("{}: {}", name_of(spec), verdict.reason));
  }
  return family.emit(spec, target);
}

// The last step is the one whose sums a kernel cuts.
std::vector<Stage> stages_of(const KernelSpec& spec, const Problem& problem, const Target& target) {
  const Family& family = family_of_both(spec, problem);
  const Launch launch = family.bind(spec, problem, target, no_operands(problem));
  const std::vector<std::string> entries = emit_legal(spec, target).entries;
  const std::string name = name_of(spec);
  std::vector<Stage> stages;
  for (const Step& step : launch.steps) {
    const std::string& entry = entries.at(step.entry);
    stages.push_back({family.stage(spec, target, entry), name + entry});
  }
  if (!stages.empty()) stages.back().parts = launch.parts;
  return stages;
}

}  // namespace tessera
