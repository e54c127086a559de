// What the ways of attention on AMD GPUs share.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

inline constexpr int kHipLanes = 64;  // of a wave
inline constexpr int kHipDirectWaves = 4;

// A grid of so many blocks of so many threads, of which there are less than 2^32 along a side.
// Kernels walk on from there where a side would be too large.
std::array<unsigned, 3> hip_grid_of(const std::array<std::int64_t, 3>& blocks, int threads);

// The text of a kernel that attends by blocks of so many threads; kernels that extend append first.
Source attention_on_hip(const KernelSpec& spec, const Target& target, tile::Template attention,
                        int threads);
// Adds the steps before the one that attends, and the arguments: of the attention, whose grid they
// hold, and of the appending.
void begin_on_hip(const KernelSpec& spec, const FmhaProblem& problem, const FmhaOperands& operands,
                  const std::array<unsigned, 3>& grid, int threads, Launch& launch);

// How long a general kernel takes for so many products in fp32, of which `share` of the units have
// some; it moves so many bytes. `waste` is how many times as many products the padding makes of
// them.
struct HipDirectWork {
  double products, waste, share, bytes;
  double steps = 1;
};
Estimate hip_direct_time(const HipDirectWork& work, const Target& target);

// direct_hip.cc
extern const Rule kDirectHipRules[5];

}  // namespace tessera::fmha
