// What the ways of attention on AMD GPUs share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/device/hip/fmha/append_arguments.h"
#include "tessera/device/hip/fmha/backward_arguments.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

inline constexpr int kHipLanes = 64;  // of a wave of CDNA; a target's row has its own
inline constexpr int kHipDirectWaves = 4;
inline constexpr int kHipAppendWaves = 4;

// A grid of so many blocks of so many threads, of which there are less than 2^32 along a side.
// Kernels walk on from there where a side would be too large.
std::array<unsigned, 3> hip_grid_of(const std::array<std::int64_t, 3>& blocks, int threads);

// The text of a kernel that attends by blocks of so many threads, of which so many are to share a
// unit; kernels that extend append first. `more` are entries behind those of every kernel.
Source attention_on_hip(const KernelSpec& spec, const Target& target, tile::Template attention,
                        int threads, int at_once = 1, std::span<const tile::GpuEntry> more = {});
// The entry of the first of these.
std::uint8_t first_more_entry(const KernelSpec& spec);

// Adds the steps before the one that attends, and the arguments: of the attention, and of the
// appending.
device::HipAppendArguments append_hip_arguments(const FmhaProblem& problem,
                                                const FmhaOperands& operands, int lanes);
void add_first_steps_on_hip(const KernelSpec& spec, const FmhaProblem& problem, int threads,
                            Launch& launch, int lanes);
template <class Arguments>
void begin_on_hip(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                  const Arguments& attention, int threads, Launch& launch, int lanes = kHipLanes) {
  add_first_steps_on_hip(spec, p, threads, launch, lanes);
  if (!extends(spec)) return launch.arguments.set(attention);
  auto& both = launch.arguments.make<device::HipExtendArguments<Arguments>>();
  both.attention = attention;
  both.append = append_hip_arguments(p, o, lanes);
}

// How long a general kernel takes for so many products in fp32, of which `share` of the units have
// some; it moves so many bytes. `waste` is how many times as many products the padding makes of
// them.
struct HipDirectWork {
  double products, waste, share, bytes;
  double steps = 1;
};
Estimate hip_direct_time(const HipDirectWork& work, const Target& target);

// The steps of the general kernels of gradients, as kernels by MFMA have them, too, for tiles of so
// many queries: backward_hip.cc
struct BackwardHipSteps {
  std::array<std::int64_t, 3> queries, keys, biases;  // blocks along the sides of each grid
};
BackwardHipSteps backward_hip_steps(int rows, const FmhaProblem& problem, int lanes = kHipLanes);
// The arguments, with the grids of the steps, and the bytes of the workspace.
device::HipBackwardArguments backward_hip_arguments(const FmhaProblem& problem,
                                                    const FmhaOperands& operands,
                                                    const BackwardHipSteps& steps, int threads);
std::size_t backward_hip_workspace(const device::HipBackwardArguments& arguments,
                                   const FmhaProblem& problem);
// Adds a step whose blocks are in such a grid.
void add_backward_hip_step(std::uint8_t entry, const std::array<std::int64_t, 3>& blocks,
                           const device::HipGrid& grid, int threads, Launch& launch);
// What a gradient of a bias takes.
Estimate backward_hip_bias_time(const FmhaProblem& problem, const Target& target);

// direct_hip.cc
extern const Rule kDirectHipRules[5];

// ---- by matrix instructions: mfma_tokens.cc ----

inline constexpr Shape3 kMfmaWarpTile = {32, 32, 16};
inline constexpr int kPieceBytes = 16;  // that a lane moves at a time
constexpr int piece_elements(int size) { return kPieceBytes / size; }

// Whether the target multiplies such numbers.
bool has_mfma(const Case& c);
std::string no_mfma_sentence(const Case& c);

// Tokens of a tensor that lanes move by pieces, `rows` of them a tile.
struct MovedTokens {
  std::string_view name;
  const FmhaStrides& strides;
  std::int64_t sequences, heads, tokens, hdim;
  int rows;
  bool may_repeat = true;
  int size = 2;  // bytes of an element
};
// Why lanes cannot move the tensor's tokens; empty where they can.
std::string stride_reason(const MovedTokens& tokens, std::string_view pipeline);
// Why heads of elements of so many bytes or lengths are not such that tokens are moved; empty where
// they are.
std::string moved_size_reason(const FmhaProblem& problem, std::string_view pipeline, int size = 2);
// Throws where the tensor does not begin at a piece.
void refuse_pieces(std::string_view name, const void* base, Pipeline pipeline);

}  // namespace tessera::fmha
