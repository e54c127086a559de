// What there is to ask about every operation, as functions of valid problems, kernels and targets.
// They are pure: none reads a device, a clock or the environment.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/families/settings.h"
#include "tessera/families/tensor.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
namespace tessera {

// ---- a problem ----

// Throws Error{invalid_argument} with the rule that the problem breaks.
void validate(const Problem& problem);
// The operands that the problem reads or writes, in the order of their pointers.
Tensors tensors_of(const Problem& problem);
// The pointer of a tensor, or its array of pointers. Operands of another operation than the
// tensor's have no such pointer.
const void* pointer_of(const Operands& operands, const Tensor& tensor);
void set_pointer(Operands& operands, const Tensor& tensor, void* pointer);
double flops_of(const Problem& problem);  // useful operations
double bytes_of(const Problem& problem);  // least traffic: every operand moves once
// The problem that a dispatcher with `batch_invariant` computes, and other batches of it.
AnyBatch any_batch(const Problem& problem);
// Computes the answer in fp64, slowly and simply, and compares the outputs with it. The operands
// that the kernel read must still be unchanged. Throws what Dispatcher::run() throws for operands.
Mismatch verify(const Problem& problem, const Operands& operands);
// What calls of the operation's builder describe. Throws Error{parse_error} for an unknown setter
// or word, with the nearest one, Error{invalid_argument} with the rule that is broken, and
// Error{unsupported} for an operation without a builder.
SettledProblem settle(Op op, std::span<const Setting> settings);

// ---- the kernels of a target ----

// Every legal kernel of the operation that passes the wishes, sorted by name. Throws
// Error{unsupported} when the target's row has no space for the operation, Error{parse_error} for
// an unknown field or word, with the nearest one, and Error{invalid_argument} for a pattern that no
// number matches.
std::vector<KernelSpec> enumerate(Op op, const Target& target, std::span<const Wish> wishes = {});
// The fields that wishes about the operation's kernels may name.
std::vector<std::string> wish_fields(Op op);
// The kernels of a named set such as "fp16_rcr_essential". Throws Error{not_found} with the nearest
// name.
std::vector<KernelSpec> preselected(Op op, std::string_view set, const Target& target);
std::vector<std::string> preselected_names(Op op);
// The kernels of the target's space with the problem's signature, legal or not, sorted by name.
std::vector<KernelSpec> candidates(const Problem& problem, const Target& target);
// The candidates that are legal and serve the problem: choose() chooses among them.
std::vector<KernelSpec> kernels_for(const Problem& problem, const Target& target);
// A legal kernel that serves every problem of this signature, whether the space holds it or not.
// Throws Error{unsupported} when there is none.
KernelSpec general_kernel(const Problem& problem, const Target& target);

// What frameworks ask of all operations, and the signatures of a receipt, by its name or number,
// each once. Throws Error{not_found} with the nearest name, and Error{unsupported} when there are
// no kernels for any of them.
std::vector<Receipt> all_receipts();
std::vector<Signature> receipt_signatures(std::string_view name);

// ---- a kernel ----

// Whether the target can run the kernel.
Verdict is_legal(const KernelSpec& spec, const Target& target);
// Whether equal operands give equal bits, however many threads run.
Verdict is_deterministic(const KernelSpec& spec, const Target& target);
// Whether a row (GEMM, normalisations), an image (convolutions) or a sequence (attention) gives the
// same bits whatever else is in the batch, on problems as any_batch() has them.
Verdict is_batch_invariant(const KernelSpec& spec, const Target& target);
// Whether a legal kernel serves the problem.
Verdict supports(const KernelSpec& spec, const Problem& problem, const Target& target);
// The predicted time. `threads` limits the units of the target that may be used; 0 means all.
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads = 0);
// A legal kernel's source. Throws Error{illegal_spec} with its name and the rule that it breaks.
Source emit_legal(const KernelSpec& spec, const Target& target);
// The stages of a legal kernel on a problem that it supports, in the order of their steps; none
// where there is nothing to compute.
std::vector<Stage> stages_of(const KernelSpec& spec, const Problem& problem, const Target& target);

}  // namespace tessera
#pragma GCC visibility pop
