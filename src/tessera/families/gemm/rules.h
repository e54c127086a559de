// Rules that several ways share.
#pragma once

#include <string>
#include <string_view>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/fields.h"

namespace tessera::gemm {

// The target's instruction of this name for the operand types and the accumulator, or null.
const Instruction* find_instruction_named(const Case& c, std::string_view name);
std::string no_instruction(const Case& c, std::string_view name);

// The matrix instructions of an AMD GPU: a wave of 32 lanes is RDNA's.
std::string_view matrix_name(const Case& c);
bool has_matrix(const Case& c);

// The limits that the target's row sets for the pipeline.
PipelineLimit limit_of(const Case& c);

// What the target lists for the kernel's source, or null when it lists nothing.
const AlgorithmSpace* find_space(const Case& c);

// Whether the target lists the warp tile for the operand type.
bool warp_tile_listed(const Case& c);
std::string warp_tile_not_listed(const Case& c);

bool stages_fit(const Case& c);
std::string stages_do_not_fit(const Case& c);
bool waves_fit(const Case& c);
std::string waves_do_not_fit(const Case& c);
bool takes_plain_b(const Case& c);
std::string takes_no_packed_b(const Case& c);

bool slices_fit(const Case& c);
std::string slices_do_not_fit(const Case& c);

// Of CPUs: the numbers of threads along each dimension, and the bytes of packed blocks.
bool threads_fit(const Case& c);
std::string threads_do_not_fit(const Case& c);
bool packed_bytes_fit(const Case& c, int words_of_step);
std::string packed_bytes_do_not_fit(const Case& c, int words_of_step);

// The end of a sentence about what only CK Tile has.
inline constexpr std::string_view kOnlyCktile = "; CK Tile has it (--source cktile)";

// Whether the problem has as many tiles of K as the kernel has parts, and counters for their sums.
// A tile has so many groups of threads that add up slices.
Verdict parts_fit(const Algorithm& algorithm, const GemmProblem& problem, int groups_of_tile = 1);

inline constexpr Rule kUnusedFieldsRule = tile::kRowOf<Case, tile::kUnusedFields>;
inline constexpr Rule kSlicesRule = {slices_fit, slices_do_not_fit};
inline constexpr Rule kThreadsRule = {threads_fit, threads_do_not_fit};
template <int kWordsOfStep>
inline constexpr Rule kPackedBytesRule = {
    [](const Case& c) { return packed_bytes_fit(c, kWordsOfStep); },
    [](const Case& c) { return packed_bytes_do_not_fit(c, kWordsOfStep); }};
inline constexpr Rule kStagesRule = {stages_fit, stages_do_not_fit};
inline constexpr Rule kWaveRule = {waves_fit, waves_do_not_fit};
inline constexpr Rule kWarpTileRule = {warp_tile_listed, warp_tile_not_listed};
inline constexpr Rule kNoPreshuffleRule = {takes_plain_b, takes_no_packed_b};

}  // namespace tessera::gemm
