// What the ways of attention on AMD GPUs share.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tessera/device/hip/fmha/append_arguments.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

inline constexpr int kHipLanes = 64;  // of a wave
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
                                                const FmhaOperands& operands);
void add_first_steps_on_hip(const KernelSpec& spec, const FmhaProblem& problem, int threads,
                            Launch& launch);
template <class Arguments>
void begin_on_hip(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                  const Arguments& attention, int threads, Launch& launch) {
  add_first_steps_on_hip(spec, p, threads, launch);
  if (!extends(spec)) return launch.arguments.set(attention);
  launch.arguments.set(
      device::HipExtendArguments<Arguments>{attention, append_hip_arguments(p, o)});
}

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
