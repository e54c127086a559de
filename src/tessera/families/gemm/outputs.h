// Gates, rows by index and outputs of 8 bits: which signatures have them, arguments, row indices
// that do not fit, and the text of kernels.
#pragma once

#include "tessera/device/gemm/outputs.h"
#include "tessera/device/gemm/scales.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// Of a signature or of a problem.
template <class T>
bool has_outputs(const T& x) {
  return x.gate != GemmGate::none || x.indexing != GemmIndexing::none || x.quant != NormQuant::none;
}

// The arguments of a launch. The problem's strides must be filled in.
device::OutputArguments output_arguments(const GemmProblem& p, const GemmOperands& o);

// What GPUs keep in the workspace from byte `first` on: the gathered rows of A, one behind the
// other with ld_copy elements from one to the next, and sums of 32 bits, which have no gaps.
struct OutputPlaces {
  std::int64_t copy, ld_copy, sums, end;
};
inline constexpr std::int64_t kStoredSumBytes = 4;
OutputPlaces output_places(const GemmProblem& p, std::int64_t first);
// Adds the pointers of the operands that only such problems have.
void list_outputs(const GemmProblem& p, const GemmOperands& o, Launch& launch);
// What GPUs do not serve besides what rules say.
Verdict outputs_serve_on_gpus(const GemmProblem& p);

// The lines of a configuration about them.
std::string outputs_text(const GemmSignature& signature);

// Throws Error{invalid_argument} about the first number of row_index that does not fit.
void refuse_bad_index(const GemmProblem& problem, const GemmOperands& operands);

// How out_scales lies, in elements. The rows of groups may follow each other.
struct ScaleStrides {
  std::int64_t row, block, matrix;
};
ScaleStrides scale_strides(const GemmProblem& p);
// How many bytes the scales of a part of a group lie behind those of the first one.
std::int64_t scales_offset(const GemmProblem& p, const device::GroupPart& part);

// outputs_reference.cc: the functions of gemm.h for such problems without groups. A part of a group
// has the strides of the whole problem.
Reference outputs_reference(const GemmProblem& p, const GemmOperands& o,
                            const device::ScaledArguments& of_blocks, const ReferenceLimits& limits,
                            const ScaleStrides& scales);
Mismatch outputs_compare(const GemmProblem& p, const GemmOperands& o, const Reference& reference,
                         const ScaleStrides& scales);

// The place of the operand among a problem's tensors.
std::size_t place_of(const GemmProblem& problem, std::string_view tensor);

}  // namespace tessera::gemm
