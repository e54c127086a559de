// The smallest complete operation, the one to copy: out[r][c] = in[r][c] * scale[c]. See README.md.
#pragma once

#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/way.h"

namespace tessera::toy {

// The toy's table has the place and the name of norm's, which families.cc lists.
inline const Family& family() { return norm::kFamily; }

// See Family::abi. What it counts: device/toy.h, the entries.
inline constexpr int kAbi = 1;

// problem.cc
double bytes(const Problem& problem);
// Why no kernel has such a signature; empty where kernels do.
std::string signature_reason(const NormSignature& signature);

// ---- the ways; tile/way.h says what a way is ----

using Case = tile::SpecCase<NormSignature>;

struct Types : tile::UsualTypes<Op::norm, NormSignature, NormProblem, NormOperands> {
  struct Own {};
  static std::span<const tile::Way<Types>* const> ways();
  static std::span<const tile::Rule<Case>> common_rules();
  static std::string no_way(const KernelSpec& spec, const Target& target);
  static std::vector<tessera::Signature> signatures();
  static std::vector<Algorithm> algorithms_for(const tessera::Problem&, const Target& target) {
    return tile::algorithms_of<Types>(target);
  }
};
using Way = tile::Way<Types>;

extern const Way kRows;    // rows.cc
extern const Way kStream;  // stream.cc

// ---- what the ways share: ways.cc ----

// The algorithms of the target's space with the pipeline and a tile that fits.
std::vector<Algorithm> algorithms_with(const Target& target, Pipeline pipeline,
                                       bool (*fits)(const Shape3& tile));
// The text around a template of device/; `config` is a line of its Config.
Source source_of(const KernelSpec& spec, const Target& target, std::string_view header,
                 std::string_view name, const std::string& config);
Launch bind(const KernelSpec& spec, const NormProblem& problem, const Target& target,
            const NormOperands& operands);
// The time of threads that share out so many parts.
Estimate estimate_of(const NormProblem& problem, const Target& target, int threads,
                     std::int64_t parts);
KernelSpec general(const Problem& problem, const Target& target);

}  // namespace tessera::toy
