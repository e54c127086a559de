// Appending new keys and values to a cache, alone or before attention. Problems have their strides
// where nothing else is said.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/device/fmha_append.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/row_reference.h"

namespace tessera::fmha {

// append.cc
// Positions from here on are not written: they are behind the cache's room or the tables' rows.
std::int64_t end_of_positions(const FmhaProblem& problem);
device::FmhaAppendArguments append_arguments(const FmhaProblem& problem,
                                             const FmhaOperands& operands);
double append_flops(const FmhaProblem& problem);
double append_bytes(const FmhaProblem& problem);
// Whether there is a new token, and a place for it.
bool has_tokens(const FmhaProblem& problem);
// The predicted time of appending, alone or before attention, by so many units of the target.
Estimate append_estimate(const FmhaProblem& problem, const Target& target, int units);
// The fields of a kernel's Config, whose blocks have so many warps on a GPU, and the step that runs
// them there. `fp8` is the encoding of the target's numbers of 8 bits.
std::string append_config(const KernelSpec& spec, int warps, Fp8Encoding fp8 = Fp8Encoding::ocp);
Step append_step(const FmhaProblem& problem, const device::FmhaAppendArguments& arguments,
                 int warps);

// append_reference.cc

// How far the factor of a new token may be off, as a share.
inline constexpr double kFactorError = 0x1p-20;
Reference append_reference(const Problem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits);
// The rows of what appending writes, and what they should be: 0 is k, 1 is v, 2 are the turned
// queries, of which there are rows with rotate_q, 3 and 4 the factors of k and v, of which there
// are rows where tokens have factors. The problem appends, or extends, and has its
// strides; it and the operands outlive the rows.
struct WrittenRows {
  std::array<std::vector<std::int64_t>, 5> rows;
  tile::ComputeOutputRow compute;
};
WrittenRows written_rows(const FmhaProblem& problem, const FmhaOperands& operands,
                         const ReferenceLimits& limits);
// What a cache and queries hold when new tokens are appended, in the layout of the operands. The
// problem appends and has its strides.
struct AppendedCopies {
  std::vector<std::byte> q, k, v;  // q: as q_turned lies, with rotate_q
  // How far the heads of new tokens may be from these, because a kernel may round turned elements
  // otherwise: Euclidean norms. The keys' norms have the token's place in the cache, counted
  // through all sequences or pages, times heads_kv plus the head; others are exact. The queries'
  // norms, with rotate_q, are in the order of the rows of q: {batch, head, token}, packed {head,
  // token}.
  std::unordered_map<std::int64_t, double> key_errors;
  std::vector<double> query_errors;
  // With a cache of 8 bits the same of values: the largest distance of an element. And the factors
  // of tokens.
  std::unordered_map<std::int64_t, double> value_errors;
  std::vector<std::byte> k_factors, v_factors;
};
AppendedCopies appended_copies(const FmhaProblem& problem, const FmhaOperands& operands,
                               Fp8Encoding fp8);
Mismatch verify_append(const Problem& problem, const FmhaOperands& operands);

}  // namespace tessera::fmha
