// Groups of unequal sizes: which operands have a matrix for each group, where groups lie, and what
// numbers say so. GemmGrouping (src/tessera/spec/problem.h) says what the kinds are.
#pragma once

#include "tessera/device/gemm/scales.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

inline bool has_groups(const GemmProblem& p) { return p.grouping != GemmGrouping::none; }
inline bool has_groups(const GemmSignature& s) { return s.grouping != GemmGrouping::none; }
inline bool has_groups(const KernelSpec& spec) {
  return has_groups(std::get<GemmSignature>(spec.signature));
}
inline bool is_list(const GemmProblem& p) { return p.grouping == GemmGrouping::lists; }

// Which operands have a matrix for each group; the others are shared or cut.
struct GroupMatrices {
  bool a, b, out;
  // `out` counts for C and for what is as long as rows of out; others have a vector for each group.
  bool d(DShape shape) const { return shape == DShape::along_n || out; }
};
GroupMatrices group_matrices(GemmGrouping grouping);

// How many matrices an operand has, given what group_matrices() says of it.
inline std::int64_t matrices(const GemmProblem& p, bool of_groups) {
  return !has_groups(p) ? p.batch : of_groups ? p.groups : 1;
}

// The operand that says where groups lie: its name, its length, its pointer, also where numbers
// have two words.
std::string_view numbers_name(GemmGrouping grouping);
std::int64_t numbers_count(const GemmProblem& p);
const std::int32_t* numbers_of(const GemmProblem& p, const GemmOperands& o);
// Adds its pointer to those of a launch; of lists those of all sizes and distances.
void list_numbers(const GemmProblem& p, const GemmOperands& o, Launch& launch);

// The sentence about a problem whose groups do not fit it; empty when they do.
std::string groups_reason(const GemmProblem& p);

// The arguments of a launch. The problem's strides must be filled in.
device::GroupArguments group_arguments(const GemmProblem& p, const GemmOperands& o);

// Throws Error{invalid_argument} about the first number that does not fit.
void refuse_bad_group(const Problem& problem, const Operands& operands);
// Extras::value_check.
void (*value_check(const Problem& problem))(const Problem&, const Operands&);

// The product of a part as a problem without groups: with its m and k, of lists with its n and
// distances of rows, too.
GemmProblem problem_of_part(const GemmProblem& p, const device::GemmArguments& part);
// Extras::batch_bytes.
std::size_t batch_bytes(const Problem& problem, const Operands& operands, const Tensor& tensor,
                        std::int64_t batch);

// Batches of equal sizes with as many operations as groups without gaps: for estimates.
GemmProblem as_batches(const GemmProblem& p);
// How much longer blocks compute than for such batches, where rows are shared out: the last tile of
// a group is half full on average.
double partly_filled(const Algorithm& a, const GemmProblem& p);

// reference.cc: of the product of a part, whose scales may lie anywhere in theirs.
Reference scaled_reference(const GemmProblem& p, const GemmOperands& o,
                           const device::ScaledArguments& scales, const ReferenceLimits& limits);

// grouped_reference.cc: the functions of gemm.h for problems with groups.
Reference grouped_reference(const GemmProblem& p, const GemmOperands& o,
                            const ReferenceLimits& limits);
Mismatch grouped_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference);

}  // namespace tessera::gemm
