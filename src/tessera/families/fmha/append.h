// Appending new keys and values to a cache: the problem's tensors, its kernels, their text, launch
// and times. The family's functions call these where the kind is append. Problems have their
// strides where nothing else is said.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/device/fmha_append.h"
#include "tessera/families/draw.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/row_reference.h"

namespace tessera::fmha {

inline bool appends(const FmhaProblem& p) { return p.kind == FmhaKind::append; }
inline bool appends(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature).kind == FmhaKind::append;
}

// append_validate.cc; the problem is as it was given
void validate_append(const FmhaProblem& given);
// Throws where attention itself is asked for with a field that only append has.
void refuse_append_fields(const FmhaProblem& given);
// Throw where a kind that appends has wrong fields of the rotary embedding, or wrong sizes of what
// is appended. `p` is the problem with its strides.
void check_rotary(const FmhaProblem& given, const FmhaProblem& p);
void check_new_tokens(const FmhaProblem& given, const FmhaProblem& p);
// Why no kernel appends with such a signature, or attends with what only append has; empty: some
// do.
std::string append_signature_reason(const FmhaSignature& signature);

// append.cc
// Positions from here on are not written: they are behind the cache's room or the tables' rows.
std::int64_t end_of_positions(const FmhaProblem& problem);
device::FmhaAppendArguments append_arguments(const FmhaProblem& problem,
                                             const FmhaOperands& operands);
double append_flops(const FmhaProblem& problem);
double append_bytes(const FmhaProblem& problem);
std::vector<FmhaSignature> append_signatures();
std::vector<Algorithm> append_algorithms(const Target& target);
std::string append_illegal(const FmhaSignature& signature, const Algorithm& algorithm,
                           const Target& target);
// The fields of a kernel's Config, whose blocks have so many warps on a GPU, and the step that runs
// them there.
std::string append_config(const KernelSpec& spec, int warps);
Step append_step(const FmhaProblem& problem, const device::FmhaAppendArguments& arguments,
                 int warps);
Source emit_append(const KernelSpec& spec, const Target& target);
void bind_append(const KernelSpec& spec, const FmhaProblem& problem, const FmhaOperands& operands,
                 Launch& launch);
Estimate estimate_append(const KernelSpec& spec, const FmhaProblem& problem, const Target& target,
                         int threads);

// append_draw.cc
void draw_append(Draw& draw, FmhaProblem& problem);
std::vector<Problem> append_samples(const KernelSpec& spec);

// append_reference.cc
Reference append_reference(const Problem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits);
// The rows of what appending writes, and what they should be: 0 is k, 1 is v, and 2 are the turned
// queries, of which there are rows with rotate_q. The problem appends, or extends, and has its
// strides; it and the operands outlive the rows.
struct WrittenRows {
  std::array<std::vector<std::int64_t>, 3> rows;
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
};
AppendedCopies appended_copies(const FmhaProblem& problem, const FmhaOperands& operands);
Mismatch verify_append(const Problem& problem, const FmhaOperands& operands);

}  // namespace tessera::fmha
