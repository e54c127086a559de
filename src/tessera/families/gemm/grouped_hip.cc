// Groups of unequal sizes on AMD GPUs: what their kernels have besides dense ones, and the launch.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/device/hip/gemm/grouped_arguments.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/hip.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

using device::HipGroupedArguments;

constexpr double kMostGroupedThreads = std::numeric_limits<std::uint32_t>::max();  // of a grid

// Tiles of all groups at most, as numbers that only the kernel reads may have it. Where rows of
// tiles are shared out, each group has one too many.
double most_tiles(const GemmProblem& p, const Algorithm& a) {
  const double down = static_cast<double>(tiles(p.m, a.tile.m));
  const double across = static_cast<double>(tiles(p.n, a.tile.n));
  const double groups = static_cast<double>(p.groups);
  switch (p.grouping) {
    case GemmGrouping::contiguous:
      return (down + groups) * across;
    case GemmGrouping::indexed:
      return down * across;
    default:
      return groups * down * across;
  }
}

}  // namespace

// With numbers to report there is always something to write.
Launch bind_groups_on_hip(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                          const GemmOperands& o) {
  Launch launch;
  HipGroupedArguments arguments{};
  arguments.groups = group_arguments(p, o);
  const int lanes = tile::block_lanes(spec.algorithm, target);
  const double most_blocks = kMostGroupedThreads / lanes;
  arguments.blocks = static_cast<int>(std::min(most_tiles(p, spec.algorithm), most_blocks));
  launch.arguments.set(arguments);
  list_pointers(p, arguments.groups.gemm, launch);
  list_numbers(p, o, launch);
  if (p.check_groups) {
    launch.pointers.push(o.bad_group);
    launch.steps.push({.entry = hip_entry(std::get<GemmSignature>(spec.signature), "_check"),
                       .block = {unsigned{device::kHipCheckThreads}, 1, 1}});
  }
  if (arguments.blocks == 0) return launch;
  launch.blocks_offset = offsetof(HipGroupedArguments, blocks);
  launch.steps.push({.extent = Step::Extent::resident,
                     .grid = {static_cast<unsigned>(arguments.blocks), 1, 1},
                     .block = {static_cast<unsigned>(lanes), 1, 1}});
  return launch;
}

}  // namespace tessera::gemm
