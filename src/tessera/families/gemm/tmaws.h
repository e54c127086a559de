// The parts of the pipeline tmaws, whose row is kTmawsWay.
#pragma once

#include <string>
#include <vector>

#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {

// tmaws_algorithms.cc
void tmaws_variants(const Target& target, const Algorithm& shape, std::vector<Algorithm>& all);
// The sides of tiles that so many rows can be cut into with little left over at the edge; none for
// many rows.
std::vector<int> fitted_sides(std::int64_t rows);
// Adds the algorithms with these sides, with A and B swapped, and those of stream-K without, legal
// or not. Nothing for few rows or columns.
void add_fitted(const OwnQuery& query, std::vector<Algorithm>& all);

// tmaws_bind.cc
// The text of the Wgmma specialisation.
std::string wgmma_text(const KernelSpec& spec);
Source emit_tmaws(const KernelSpec& spec, const Target& target);
Launch bind_tmaws(const KernelSpec& spec, const GemmProblem& problem, const Target& target,
                  const device::GemmArguments& arguments);
std::int64_t tmaws_packed_bytes(const KernelSpec& spec, const GemmProblem& problem);
Launch pack_by_tmaws(const GemmProblem& problem, const void* b, void* packed, std::int64_t bytes);

}  // namespace tessera::gemm
