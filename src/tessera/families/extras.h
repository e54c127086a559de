// What only some families have, such as a builder of problems or operands that are packed ahead.
// The functions of Family with the same names ask for it, and say what its absence stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/families/facts.h"
#include "tessera/families/hipdnn.h"
#include "tessera/families/instances.h"
#include "tessera/families/launch.h"
#include "tessera/families/settings.h"
#include "tessera/families/tensor.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// How to pack an operand once for many launches of one kernel.
struct Prepack {
  std::string_view operand;  // the operand's name: "b"
  const void* from = nullptr;
  std::size_t bytes = 0;  // size of the packed operand
  Launch launch;          // packs the operand; without steps there is nothing to pack
  Operands operands;      // the operands of the launches: the packed one has replaced its original
};

using ValueCheck = void (*)(const Problem&, const Operands&);

// A null function stands for nothing, or for what its comment says.
struct Extras {
  // What frameworks ask of the operation.
  std::span<const Receipt> (*receipts)() = nullptr;
  // Problems of every signature that the receipt asks for, of the sizes that kernels are made for.
  // Throws Error{unsupported} when kernels of none of its kinds exist.
  std::vector<Problem> (*receipt_problems)(const Receipt&) = nullptr;
  // Where kernels are told apart by length.
  std::optional<TunedLength> (*tuned_length)(const KernelSpec&, const Problem&,
                                             const Target&) = nullptr;
  // What calls of the operation's builder describe. Throws Error{parse_error} for an
  // unknown setter or word, with the nearest one, and Error{invalid_argument} with the rule that is
  // broken.
  SettledProblem (*from_settings)(std::span<const Setting>) = nullptr;
  // The name of a kernel's source, where kernels of two operations have one; null: the kernel's.
  std::string (*source_name)(const KernelSpec&) = nullptr;
  // The libraries for whose templates the family can write instances; see instances.h.
  std::span<const InstanceSource> (*instances)() = nullptr;
  // What a step does that runs the entry with this suffix; null: what the suffix says, and
  // Family::verb for the entry without one.
  std::string (*stage)(const KernelSpec&, const Target&, std::string_view entry) = nullptr;
  // For kernels that read an operand in a packed form of their own: how to pack it into `packed`.
  // `packed` may be null when only the size is wanted. Empty for other kernels.
  std::optional<Prepack> (*prepack)(const KernelSpec&, const Problem&, const Target&,
                                    const Operands&, void* packed) = nullptr;
  // The same problem with every operand as the user has it: what the reference computes. The
  // problem itself unless an operand of it was packed by prepack().
  Problem (*unpacked)(const Problem&) = nullptr;
  // The same problem in other types that every algorithm multiplies as fast on this target, or of a
  // kind with the same algorithms, so that its models can be asked; the estimate accounts for the
  // other differences. Returns the problem itself when there is none.
  Problem (*twin)(const Problem&, const Target&) = nullptr;
  // Looks at operands whose values say what is computed, such as the ends of groups, where they lie
  // in the host's memory. Throws Error{invalid_argument} for those that do not fit. Null for a
  // problem without such operands.
  ValueCheck (*value_check)(const Problem&) = nullptr;
  // The bytes from the first to the last element of a batch of an array, where numbers among the
  // operands say how large each batch is. The numbers lie in the host's memory, and no other
  // operand is read. Throws Error{invalid_argument} for numbers that say nothing. Null: batches are
  // as large as the tensor says.
  std::size_t (*batch_bytes)(const Problem&, const Operands&, const Tensor&,
                             std::int64_t batch) = nullptr;
  // How graphs of AMD's hipDNN ask for the operation; null: kernels are refused.
  const hipdnn::Export* hipdnn = nullptr;
};

}  // namespace tessera
