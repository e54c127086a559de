// The family of normalisations over rows, and of gates and copies: see README.md.
#pragma once

#include <fmt/format.h>

#include "tessera/families/family.h"
#include "tessera/families/tile/fields.h"
#include "tessera/families/tile/text.h"
#include "tessera/families/tile/way.h"

namespace tessera::device {
struct NormArguments;
}  // namespace tessera::device

namespace tessera::norm {

extern const Family kFamily;
inline const Family& family() { return kFamily; }

// See Family::abi. What it counts: device/norm.h, the entries.
inline constexpr int kAbi = 4;
inline constexpr int kWarp = 32;  // threads of an NVIDIA GPU that step together

// problem.cc: the table, and what it says of problems
Tensors tensors(const Problem& problem);
const void* pointer(const Operands& operands, std::size_t operand);
double elements(const NormProblem& problem);
double bytes(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const NormSignature& signature);

// Whether the tiles of a row have nothing to do with each other.
template <class Asked>
bool is_cut(const Asked& asked) {
  return is_elementwise(asked.kind) && asked.quant != NormQuant::row;
}

// ---- the ways; tile/way.h says what a way is ----

using Case = tile::SpecCase<NormSignature>;

struct Types : tile::UsualTypes<Op::norm, NormSignature, NormProblem, NormOperands> {
  struct Own {
    Algorithm general;    // serves every problem
    Algorithm quantised;  // the same, of those with quant
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
extern const Way kRowsCuda;  // rows_cuda.cc
extern const Way kRowsHip;   // rows_hip.cc

// Ways on which no blocks share a row.
inline constexpr tile::AlgorithmRule kClusterOfOne = {
    [](const Algorithm& a) { return a.cluster_n == 1; },
    [](const Algorithm& a) { return fmt::format("cluster must be 1x1, got 1x{}", a.cluster_n); }};

// ---- what they share: kernels.cc ----

// The rule about a tile: it has so many rows, and its columns are a multiple of `unit`.
bool tile_fits(const Shape3& tile, int rows, int unit);
std::string tile_does_not_fit(const Shape3& tile, int rows, int unit);
// The target's space, each shape with every number of slices that it takes; `rows` is tile_m.
std::vector<Algorithm> rows_algorithms(const Target& target, int (*rows)(const Algorithm&));
Verdict rows_serve(const KernelSpec& spec, const NormProblem& problem, const Target& target);
// Rows whose tiles have blocks of their own, and how many each row has.
Verdict cut_rows_serve(const Algorithm& algorithm, const NormProblem& problem);
unsigned tiles_of(const Algorithm& algorithm, const NormProblem& problem);
// The template of the text, and how many steps a launch has.
tile::Template rows_template(const KernelSpec& spec);
int steps_of(const Algorithm& algorithm);
// The arguments of every kernel, but for the workspace.
device::NormArguments rows_arguments(const NormProblem& problem, const NormOperands& operands);
// The workspace of a launch of two steps, whose arguments begin with NormArguments.
void reserve_statistics(const Algorithm& algorithm, const NormProblem& problem, Launch& launch);
Launch bind_rows(const KernelSpec& spec, const NormProblem& problem, const Target& target,
                 const NormOperands& operands);
// The bytes that are read once more, where a block does not hold its row.
double bytes_again(const Algorithm& algorithm, const NormProblem& problem);

// The functions of the family's table.
std::span<const DerivedField> derived();
KernelSpec general(const Problem& problem, const Target& target);
Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads);

// any_batch.cc
std::string order_of_sums(const KernelSpec& spec, const Problem& problem, const Target& target);
AnyBatch any_batch(const Problem& problem);

// reference.cc
Mismatch verify(const Problem& problem, const Operands& operands);
Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits);
Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference);

}  // namespace tessera::norm
