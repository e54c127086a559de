// The family of routers of mixtures of experts: the best experts of each token, and the order of
// rows by experts. See README.md.
#pragma once

#include <fmt/format.h>

#include "tessera/families/family.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/way.h"

namespace tessera::device {
struct RouteArguments;
}  // namespace tessera::device

namespace tessera::route {

extern const Family kFamily;
inline const Family& family() { return kFamily; }

// See Family::abi. What it counts: device/route.h, the entries.
inline constexpr int kAbi = 1;

// problem.cc: the table, and what it says of problems
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
double bytes(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const RouteSignature& signature);
// Whether a step chooses experts.
template <class Asked>
bool chooses(const Asked& asked) {
  return asked.scoring != RouteScoring::given;
}

// ---- the ways; tile/way.h says what a way is ----

using Case = tile::SpecCase<RouteSignature>;

struct Types : tile::UsualTypes<Op::route, RouteSignature, RouteProblem, RouteOperands> {
  struct Own {
    Algorithm general;  // serves every problem
  };
  static std::span<const tile::Way<Types>* const> ways();
  static std::span<const tile::Rule<Case>> common_rules();
  static std::string no_way(const KernelSpec& spec, const Target& target);
  static std::vector<tessera::Signature> signatures();
  static std::vector<Algorithm> algorithms_for(const tessera::Problem& problem,
                                               const Target& target);
};
using Way = tile::Way<Types>;

extern const Way kRowsCpu;   // rows_cpu.cc
extern const Way kRowsCuda;  // rows_gpu.cc
extern const Way kRowsHip;   // rows_gpu.cc

// ---- what they share: kernels.cc ----

// The target's space.
std::vector<Algorithm> rows_algorithms(const Target& target);
tile::Template rows_template(const KernelSpec& spec);
device::RouteArguments rows_arguments(const RouteProblem& problem, const RouteOperands& operands);

// The functions of the family's table.
std::span<const DerivedField> derived();
KernelSpec general(const Problem& problem, const Target& target);

// reference.cc
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

}  // namespace tessera::route
