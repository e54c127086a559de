// What every family says of a spec before its own rules, and lists of signatures by algorithms.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/families/family.h"

namespace tessera::tile {

// Why the spec is none of this operation and target; empty when it is.
std::string foreign_reason(Op op, const KernelSpec& spec, const Target& target);

// That kernels, called `what`, are made for no such target.
std::string no_backend(std::string_view what, const KernelSpec& spec, const Target& target);

// Whether the target's space for the operation lists the pipeline.
bool has_pipeline(Op op, const Target& target, Pipeline pipeline);

// The first field in which the kernel's signature differs from the problem's; empty: they are
// equal.
std::string signature_mismatch(const KernelSpec& spec, const Problem& problem);
std::string signature_mismatch(const Signature& kernel, const Signature& problem);  // of one op

// Each signature with each algorithm, as far as the wishes let them pass, at most `most`, in their
// order.
std::vector<KernelSpec> product(const Family& family, const Target& target,
                                std::span<const Wish> wishes, std::span<const Signature> signatures,
                                std::span<const Algorithm> algorithms, std::size_t most);
// Whether algorithms stand in the order of their kernels' names. Making the names takes longer than
// everything else.
enum class ListOrder : std::uint8_t { any, by_name };
// Each algorithm with the problem's signature, sorted by name.
std::vector<KernelSpec> specs_for(const Problem& problem, const Target& target,
                                  std::span<const Algorithm> algorithms,
                                  ListOrder order = ListOrder::any);
// Those of specs_for() that are legal. What the thread found for its last few lists is remembered.
std::vector<KernelSpec> legal_specs_for(const Family& family, const Problem& problem,
                                        const Target& target, std::vector<Algorithm> algorithms,
                                        ListOrder order = ListOrder::any);
// Those that are legal, sorted by name.
std::vector<KernelSpec> legal_by_name(const Family& family, const Target& target,
                                      std::vector<KernelSpec> specs);

// The spec. Throws Error{unsupported} with the operation and the rule that it breaks.
KernelSpec legal_or_refused(const Family& family, KernelSpec spec, const Target& target);

}  // namespace tessera::tile
