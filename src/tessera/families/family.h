// The interface between operations and the machinery: one table of functions per family, with a
// place for what only some families have (extras.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/base/limits.h"
#include "tessera/families/answers.h"
#include "tessera/families/extras.h"
#include "tessera/families/facts.h"
#include "tessera/families/kernel_filter.h"
#include "tessera/families/launch.h"
#include "tessera/families/reference.h"
#include "tessera/families/tensor.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// A member of a table of functions that must not be left out: without it a table does not compile.
template <class T>
class Required {
 public:
  using Value = std::decay_t<T>;  // for a function, its address
  constexpr Required(Value value) : value_(value) {}
  constexpr Required(std::nullptr_t) = delete;
  constexpr operator Value() const { return value_; }

 private:
  Value value_;
};

// How many units of the target the argument `threads` of the functions below means; 0 means all of
// them. The result is at most kMaxThreads, because an estimate tries every way to share the threads
// out.
inline int units_used(int threads, const Target& target) {
  return std::min(threads > 0 ? threads : target.units, kMaxThreads);
}

// Addresses that are multiples of so many bytes are all alike to Family::bind().
inline constexpr std::size_t kAlikeBytes = 16;

struct Family {
  Required<Op> op;
  // The number of the contract between the family's kernels and their callers: the argument block,
  // the entries, and what the kernels of every backend export (device/*/abi.h). A change of the
  // contract raises the number. The kernels of other families are not affected.
  Required<int> abi;
  Required<const char*> verb;  // what a kernel does: "multiply"
  const Extras* extras = nullptr;

  // Throws Error{invalid_argument} with the rule that the problem breaks.
  Required<void(const Problem&)> validate;

  // The operands that a problem reads or writes, in the order of their pointers.
  Required<Tensors(const Problem&)> tensors;
  // The pointer of a tensor, or its array of pointers. `operand` is Tensor::operand.
  Required<const void*(const Operands&, std::size_t operand)> pointer;
  Required<void(Operands&, std::size_t operand, void*)> set_pointer;

  // Whether the target can run the spec: the only place that knows limits.
  Required<Verdict(const KernelSpec&, const Target&)> is_legal;
  // Whether equal operands give equal bits, however many threads run.
  Required<Verdict(const KernelSpec&, const Target&)> is_deterministic;
  // Whether a row (GEMM, normalisations), an image (convolutions) or a sequence (attention) gives
  // the same bits whatever else is in the batch, on problems as any_batch() has them.
  Required<Verdict(const KernelSpec&, const Target&)> is_batch_invariant;
  // What the bits follow of kernels for which that is so: kernels with equal words give equal bits
  // for equal rows, images or sequences. A kernel that is like no other has its name.
  Required<std::string(const KernelSpec&, const Problem&, const Target&)> order_of_sums;
  Required<AnyBatch(const Problem&)> any_batch;
  // Whether a legal spec serves this problem.
  Required<Verdict(const KernelSpec&, const Problem&, const Target&)> supports;

  // Every legal spec of the target that passes the wishes, sorted by name. Throws what KernelFilter
  // throws, and Error{unsupported} when the target's row has no space for the operation.
  Required<std::vector<KernelSpec>(const Target&, std::span<const Wish>)> enumerate;
  // The first `most` specs of the target's space that pass the wishes, legal or not: they explain
  // why no spec is legal.
  Required<std::vector<KernelSpec>(const Target&, std::span<const Wish>, std::size_t most)>
      combinations;
  // The fields that wishes may name besides the family's signature's and the algorithm's.
  Required<std::span<const DerivedField>()> derived;
  // The specs of the target's space with the problem's signature, legal or not, sorted by name.
  Required<std::vector<KernelSpec>(const Problem&, const Target&)> candidates;
  // The candidates that are legal, sorted by name. A thread remembers its last lists, so
  // that a further problem with a known signature asks for no kernel's legality or name.
  Required<std::vector<KernelSpec>(const Problem&, const Target&)> legal_candidates;
  // A spec that runs any valid problem on this target.
  Required<KernelSpec(const Problem&, const Target&)> general;

  Required<Source(const KernelSpec&, const Target&)> emit;
  // `threads` limits the units of the target that may be used, see units_used().
  Required<Estimate(const KernelSpec&, const Problem&, const Target&, int threads)> estimate;

  // What learned models know about a kernel on a problem: a table of names, units and formulas.
  Required<std::span<const Feature>()> features;
  // Whether the features describe all of the problem that matters for its time. On other problems
  // models have no opinion, and models do not learn from them.
  Required<Verdict(const Problem&)> features_fit;
  // Whether the features describe the kernel. Models know no others; see learn/ranker.h.
  Required<bool(const KernelSpec&)> is_described;
  // The features of every spec, one column after the other: feature f of specs[i] becomes columns[f
  // * specs.size() + i], a finite number for any valid problem. The specs have the problem's
  // signature. `threads` is as for estimate(). The result for a spec has the same bits whichever
  // other specs are in the list. `wanted` has one entry for each feature, or none at all, which
  // wants every feature; an unwanted feature costs less and its column stays unwritten. Throws
  // Error{invalid_argument} when `columns` does not have features x specs elements or `wanted` has
  // another length.
  Required<void(const Problem&, const Target&, int threads, std::span<const KernelSpec> specs,
                std::span<double> columns, std::span<const FeatureUse> wanted)>
      extract;

  // The launch of a kernel on a problem. A null operand stands for any address: the launch then has
  // the largest workspace that any address may need. Addresses at multiples of kAlikeBytes give the
  // same launch, apart from these addresses themselves and others at a fixed distance behind them.
  // Values beside the pointers matter only where a pointer is null.
  Required<Launch(const KernelSpec&, const Problem&, const Target&, const Operands&)> bind;

  // Computes the answer in fp64, slowly and simply, and compares the outputs with it. The operands
  // that the kernel read must still be unchanged.
  Required<Mismatch(const Problem&, const Operands&)> verify;
  // The two halves of verify(), for comparing the outputs of many kernels. reference() computes the
  // elements that a correct kernel writes, from the operands as they are before it runs. compare()
  // compares a kernel's outputs with them; it reads only the reference's runs.
  Required<Reference(const Problem&, const Operands&, const ReferenceLimits&)> reference;
  Required<Mismatch(const Problem&, const Operands&, const Reference&)> compare;

  // The same problem without its epilogue and what else costs every kernel about as much.
  Required<Problem(const Problem&)> plain;
  Required<double(const Problem&)> flops;  // useful operations
  Required<double(const Problem&)> bytes;  // least traffic: every operand moves once

  // The key under which models are stored, besides operation and target: "bf16". One model learns
  // all kernels of one key, so the key names the types and whatever else changes times most.
  Required<std::string(const Signature&)> model_key;
  Required<Facts(const Problem&)> facts;
  // The target's instruction for the problem's types; null when the target's row has none.
  Required<const Instruction*(const Problem&, const Target&)> roof;

  // The same problem in other types. Throws Error{parse_error} for an unknown type or layout.
  Required<Problem(const Problem&, const TypeWords&)> retyped;
  // Makes a problem from a row of another program's file. Unknown keys are ignored. Throws
  // Error{parse_error}; its text continues a sentence of the caller that begins with the row.
  Required<Problem(const ProblemWords&)> from_words;

  // The names of the lists of problems to learn from, the one for general use first.
  Required<std::span<const std::string_view>()> problem_sets;
  // The problems of a list on one side of the split. No problem repeats, and every prefix is a fair
  // sample. Lists are frozen: the result depends on the arguments alone. Throws Error{not_found}
  // with the nearest name, and what validate() throws.
  Required<std::vector<Problem>(std::string_view set, ProblemSide, const Target&, const TypeWords&)>
      draw;
  // Problems that exercise a kernel: whole tiles, edges and empty problems. The kernel supports
  // each of them; the result may be empty.
  Required<std::vector<Problem>(const KernelSpec&, const Target&)> samples;

  // ---- the same for every family ----

  // The kernels of a named set such as "fp16_rcr_essential". Throws Error{not_found} with the
  // nearest name.
  std::vector<KernelSpec> preselected(std::string_view set, const Target& target) const;
  std::vector<std::string> preselected_names() const;
  // Whether the spec is in one of the target's essential sets, which are shipped ready-built.
  bool is_essential(const KernelSpec& spec, const Target& target) const;

  // The extra of the same name, or what its absence stands for. from_settings() throws
  // Error{unsupported} for an operation without a builder.
  std::span<const Receipt> receipts() const;
  std::vector<Problem> receipt_problems(const Receipt& receipt) const;
  std::optional<TunedLength> tuned_length(const KernelSpec& spec, const Problem& problem,
                                          const Target& target) const;
  SettledProblem from_settings(std::span<const Setting> settings) const;
  std::string source_name(const KernelSpec& spec) const;
  std::span<const InstanceSource> instances() const;
  std::string stage(const KernelSpec& spec, const Target& target, std::string_view entry) const;
  std::optional<Prepack> prepack(const KernelSpec& spec, const Problem& problem,
                                 const Target& target, const Operands& operands,
                                 void* packed) const;
  std::size_t batch_bytes(const Problem& problem, const Operands& operands, const Tensor& tensor,
                          std::int64_t batch) const;
  Problem unpacked(const Problem& problem) const;
  Problem twin(const Problem& problem, const Target& target) const;
  // The kernel for hipDNN, or the sentence that refuses it. Its name begins the sentence.
  hipdnn::Kernel hipdnn_kernel(const KernelSpec& spec, const Target& target) const;
};

// The family of an operation. Throws Error{unsupported} for an operation without a family.
const Family& family_of(Op op);
const Family& family_of(const Problem& problem);
const Family& family_of(const KernelSpec& spec);
std::span<const Family* const> all_families();
// The family whose word begins a kernel's name or a problem's line; null when there is none.
const Family* find_family(std::string_view text);

// A receipt, and the family that has it.
struct FoundReceipt {
  const Family* family = nullptr;
  const Receipt* receipt = nullptr;
};
// By name or number, in whichever family has it. Throws Error{not_found} with the nearest name.
FoundReceipt find_receipt(std::string_view name);

}  // namespace tessera
