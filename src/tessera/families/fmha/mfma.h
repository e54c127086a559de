// What the ways of attention by matrix instructions on AMD GPUs share (mfma.cc), and what keys in
// parts (split_hip.cc) add.
#pragma once

#include <string>
#include <string_view>

#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/device/hip/fmha/mfma_arguments.h"
#include "tessera/families/fmha/hip.h"

namespace tessera::fmha {

device::MfmaFmhaShape mfma_shape(const FmhaSignature& signature, const Algorithm& algorithm);
std::int64_t mfma_lds_bytes(const FmhaSignature& signature, const Algorithm& algorithm);

// Rules of all: the first ones behind has_mfma, and those of room behind the ones of a way's tile.
bool has_mfma_types(const Case& c);
std::string mfma_types_sentence(const Case& c);
bool mfma_computes(const Case& c);
std::string mfma_computes_sentence(const Case& c);
bool has_mfma_warp_tile(const Case& c);
std::string mfma_warp_tile_sentence(const Case& c);
bool has_waves_over_rows(const Case& c);
std::string waves_over_rows_sentence(const Case& c);
bool lanes_move_tiles(const Case& c);
std::string lanes_sentence(const Case& c);
bool leaves_registers(const Case& c);
std::string registers_sentence(const Case& c);

// Why the kernel does not serve the problem; empty where it does. How many workgroups there may be
// is for the way to say.
std::string mfma_reason(const KernelSpec& spec, const FmhaProblem& problem, const Target& target);
// How many workgroups of the kernel's threads a grid has room for.
std::int64_t most_mfma_blocks(const device::MfmaFmhaShape& shape);

// `teams` waves share rows.
std::string mfma_config(const KernelSpec& spec, const Target& target, int teams);
// The arguments of attention, for kernels that read tokens of 16 bytes. Throws where an operand
// does not begin at a multiple of them.
device::MfmaFmhaArguments mfma_arguments(const Algorithm& algorithm, const FmhaProblem& problem,
                                         const FmhaOperands& operands);

// What an algorithm of these pipelines is like.
bool copies_mfma_tiles(const Algorithm& algorithm);
// latent_hip.cc: what cycles_of_tile() is of latent attention.
double cycles_of_latent_tile(const KernelSpec& spec, const FmhaProblem& problem,
                             const Target& target);

// Cycles in which a unit makes a tile, whose rows are `rows` where not all are there.
double cycles_of_tile(const KernelSpec& spec, const FmhaProblem& problem, const Target& target);
inline constexpr double kFirstKeyCycles = 4000;  // before the first product, after the last one

}  // namespace tessera::fmha
