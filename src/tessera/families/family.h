// The interface between operations and the machinery: one table of functions per family.
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

#include "tessera/base/processors.h"
#include "tessera/families/facts.h"
#include "tessera/families/features.h"
#include "tessera/families/headers.h"
#include "tessera/families/launch.h"
#include "tessera/families/reference.h"
#include "tessera/families/tensor.h"
#include "tessera/families/wishes.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// Yes, or no with the rule and both numbers.
struct Verdict {
  std::string reason;  // empty: yes
  explicit operator bool() const { return reason.empty(); }
};

// Text to compile: a pure function of (spec, target).
struct Source {
  std::string name;                        // of the kernel, and of the symbol to look up
  std::string extension;                   // ".cc", ".cu", ".cpp"
  std::string text;                        // complete in itself
  std::shared_ptr<const Headers> headers;  // what text and declarations include; null: nothing
  // Code that kernels share: each is compiled once, and linked into every kernel that lists it. The
  // kernel's text is then compiled behind `declarations`, which keep it from making the same code
  // again.
  std::vector<Source> objects = {};
  std::string declarations = {};
  bool is_object = false;
  // The number of the contract with the family's argument block: see Family::abi.
  int abi = 0;
  // What the binary exports besides the kernel's own symbol, as ends of its name: a step runs one
  // of them. On GPUs each is a kernel of its own, on CPUs a row of the kernel's table.
  std::vector<std::string> entries = {""};
};

// A predicted time and what it is made of, in seconds.
struct Estimate {
  double seconds = 0;
  double compute_seconds = 0;
  double memory_seconds = 0;
  double overhead_seconds = 0;
  double utilisation = 1;  // useful share of the operations issued
};

// The packing of an operand, once for many launches of one kernel.
struct Prepack {
  std::string_view operand;  // its name: "b"
  const void* from = nullptr;
  std::size_t bytes = 0;  // of the packed operand
  Launch launch;          // writes it; no steps: there is nothing to pack
  Operands operands;      // those of the problem, with the packed one in its place
};

// How many units of the target "threads" stands for in what follows: 0 is all of them. Never more
// than kMaxThreads, since an estimate tries every way to share them out.
inline int units_used(int threads, const Target& target) {
  return std::min(threads > 0 ? threads : target.units, kMaxThreads);
}

// A member that every family has: a table that leaves it out does not compile.
template <class T>
class Required {
 public:
  using Value = std::decay_t<T>;  // of a function: its address
  constexpr Required(Value value) : value_(value) {}
  constexpr Required(std::nullptr_t) = delete;
  constexpr operator Value() const { return value_; }

 private:
  Value value_;
};

struct Family {
  Required<Op> op;
  // The number of the contract between the family's kernels and what calls them: their argument
  // block, their entries, and what every backend's kernels export (device/*/abi.h). A change of it
  // raises the number; the kernels of other families stay as they are.
  Required<int> abi;

  // Throws Error{invalid_argument} with the rule that the problem breaks.
  Required<void(const Problem&)> validate;

  // The operands that a problem reads or writes, in the order of their pointers.
  Required<Tensors(const Problem&)> tensors;
  // The pointer of a tensor, or the array of pointers; `operand` is Tensor::operand.
  Required<const void*(const Operands&, std::size_t operand)> pointer;
  Required<void(Operands&, std::size_t operand, void*)> set_pointer;

  // Whether the target can run the spec: the only place that knows limits.
  Required<Verdict(const KernelSpec&, const Target&)> is_legal;
  // Whether equal operands give equal bits, however many threads run.
  Required<Verdict(const KernelSpec&, const Target&)> is_deterministic;
  // Whether a legal spec serves this problem.
  Required<Verdict(const KernelSpec&, const Problem&, const Target&)> supports;

  // Every legal spec of the target that passes the wishes, sorted by name. Throws what WishList
  // throws, and Error{unsupported} when the target's row has no space for the operation.
  Required<std::vector<KernelSpec>(const Target&, std::span<const Wish>)> enumerate;
  // The first `most` specs of the target's space that pass the wishes, legal or not: they tell why
  // none is legal.
  Required<std::vector<KernelSpec>(const Target&, std::span<const Wish>, std::size_t most)>
      combinations;
  // What wishes may name beside the fields of the family's signature and of the algorithm.
  Required<std::span<const DerivedField>()> derived;
  // The specs of the target's space with the problem's signature, legal or not, sorted by name.
  Required<std::vector<KernelSpec>(const Problem&, const Target&)> candidates;
  // A spec that runs any valid problem on this target.
  Required<KernelSpec(const Problem&, const Target&)> general;
  // Named sets such as "fp16_rcr_essential"; throws Error{not_found} with the nearest name.
  Required<std::vector<KernelSpec>(std::string_view set, const Target&)> preselected;
  Required<std::vector<std::string>()> preselected_names;
  // Whether the spec is in one of the target's essential sets, which are shipped ready-built.
  Required<bool(const KernelSpec&, const Target&)> is_essential;

  Required<Source(const KernelSpec&, const Target&)> emit;
  // threads: how many units of the target may be used, see units_used().
  Required<Estimate(const KernelSpec&, const Problem&, const Target&, int threads)> estimate;

  // What learned models see of a kernel on a problem, as a table of names, units and formulas.
  Required<std::span<const Feature>()> features;
  // Whether the features tell what matters of a problem. Models have no opinion on others and learn
  // nothing from them.
  Required<Verdict(const Problem&)> features_fit;
  // The features of every spec, one column after the other: feature f of specs[i] becomes
  // columns[f * specs.size() + i], a finite number for any valid problem. The specs have the
  // problem's signature. threads: as for estimate(). A spec gets the same bits whichever others are
  // beside it. `wanted` has one entry for each feature: what it leaves out stays unwritten, and
  // costs less; empty: everything. Throws Error{invalid_argument} unless there are features x
  // specs columns, and as many entries as features or none.
  Required<void(const Problem&, const Target&, int threads, std::span<const KernelSpec> specs,
                std::span<double> columns, std::span<const FeatureUse> wanted)>
      extract;

  // Operands that are null may lie anywhere: the launch then has the largest workspace that it can
  // need.
  Required<Launch(const KernelSpec&, const Problem&, const Operands&)> bind;
  // Of kernels that read an operand as they packed it themselves: how to pack it to `packed`, which
  // may be null as long as only the size is wanted. Empty for other kernels.
  Required<std::optional<Prepack>(const KernelSpec&, const Problem&, const Operands&, void* packed)>
      prepack;

  // The slow obvious answer in fp64, and the comparison of the outputs with it. What a kernel read
  // must be as it was.
  Required<Mismatch(const Problem&, const Operands&)> verify;
  // The two halves of it, for outputs of many kernels: the elements that a correct kernel writes,
  // from operands as they are before it runs, and the comparison of its outputs with them, which
  // reads the reference's runs only.
  Required<Reference(const Problem&, const Operands&, const ReferenceLimits&)> reference;
  Required<Mismatch(const Problem&, const Operands&, const Reference&)> compare;

  // The same without its epilogue and D tensors.
  Required<Problem(const Problem&)> plain;
  // The same in types that every algorithm multiplies as fast on this target, so that models of
  // them may be asked; the estimate knows what else differs. The problem itself where there are
  // none such.
  Required<Problem(const Problem&, const Target&)> twin;

  Required<double(const Problem&)> flops;  // useful operations
  Required<double(const Problem&)> bytes;  // least traffic: every operand once

  // What learned models are filed under besides operation and target: "bf16". Kernels of one key
  // are learned together, so that it names the types and whatever else changes times most.
  Required<std::string(const Signature&)> model_key;
  Required<Facts(const Problem&)> facts;
  // The target's instruction for the problem's types; null where its row has none.
  Required<const Instruction*(const Problem&, const Target&)> roof;

  // The same problem in other types. Throws Error{parse_error} for words that are none.
  Required<Problem(const Problem&, const TypeWords&)> retyped;
  // A problem from another program's row. Keys that it does not know are ignored. Throws
  // Error{parse_error} whose words continue a sentence that begins with the row.
  Required<Problem(const ProblemWords&)> from_words;

  // Names of lists of problems to learn from, the first one for general use.
  Required<std::span<const std::string_view>()> problem_sets;
  // A list's problems on one side of the split, without repetition and in an order in which every
  // prefix is a fair sample. Lists are frozen: they follow from the arguments alone. Throws
  // Error{not_found} with the nearest name, and what validate() throws.
  Required<std::vector<Problem>(std::string_view set, ProblemSide, const Target&, const TypeWords&)>
      draw;
  // Problems that exercise a kernel: whole tiles, edges, and nothing at all. It serves all of them;
  // none where the list has none that it serves.
  Required<std::vector<Problem>(const KernelSpec&, const Target&)> samples;
};

// The family of an operation; throws Error{unsupported} while it has none.
const Family& family_of(Op op);
const Family& family_of(const Problem& problem);
const Family& family_of(const KernelSpec& spec);
std::span<const Family* const> all_families();
// The family whose word begins the text, as in a kernel's name or a problem's line; else null.
const Family* find_family(std::string_view text);

// The source of a kernel that the target can run. Throws Error{illegal_spec} with the kernel's name
// and the rule when it cannot.
Source emit_legal(const KernelSpec& spec, const Target& target);

}  // namespace tessera
