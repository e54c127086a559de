// The parts of the pipeline tmaws, whose row is kTmawsWay.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// The most that tmaws counts along a side, and of tiles; it leaves room for a tile in 32 bits.
constexpr std::int64_t kMaxTmaSize = (std::int64_t{1} << 31) - 1024;

// tmaws_algorithms.cc
void tmaws_variants(const Target& target, const Algorithm& shape, std::vector<Algorithm>& all);
// The sides of tiles that so many rows can be cut into with little left over at the edge; none for
// many rows.
std::vector<int> fitted_sides(std::int64_t rows);
// Adds the algorithms with these sides, with A and B swapped, and those of stream-K without, legal
// or not. Nothing for few rows or columns.
void add_fitted(const OwnQuery& query, std::vector<Algorithm>& all);

// tmaws_bind.cc
// A matrix as it lies in memory: `lines` runs of `line` contiguous elements.
struct TmaMatrix {
  std::string_view name;
  const void* data;
  DType dtype;
  std::int64_t line, lines, ld;
  std::int64_t batch, batch_stride;
  bool in_array = false;             // `data` is an array of pointers to the batches
  std::size_t workspace_offset = 0;  // the matrix's offset in the workspace; 0: it lies elsewhere
};

// Throws Error{invalid_argument} where the matrix does not begin at whole 16 bytes.
void refuse_misaligned(const TmaMatrix& matrix);

// Adds a window that the copy engine sees at `offset` of the arguments.
void add_window(Launch& launch, const TmaMatrix& matrix, std::size_t offset,
                std::array<std::uint32_t, 2> box, int swizzle_bytes);
void add_operand_window(Launch& launch, const TmaMatrix& matrix, std::size_t offset,
                        const TmawsOperand& operand, int tile_k);
// The step that runs the kernel itself.
Step tmaws_step(const GemmSignature& signature, const Algorithm& algorithm, std::int64_t clusters);
// The text of the Wgmma specialisation.
std::string wgmma_text(const KernelSpec& spec);
Source emit_tmaws(const KernelSpec& spec, const Target& target);
Launch bind_tmaws(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                  const device::GemmArguments& arguments);
std::int64_t tmaws_packed_bytes(const KernelSpec& spec, const GemmProblem& problem);
Launch pack_by_tmaws(const GemmProblem& problem, const void* b, void* packed, std::int64_t bytes);

}  // namespace tessera::gemm
