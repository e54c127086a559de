// The arguments of HIP GEMM kernels for groups of unequal sizes. Plain C layout; a change here
// raises the family's ABI number (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/gemm/groups.h"

namespace tessera::device {

inline constexpr int kHipCheckThreads = 256;  // of the entry `_check`

// The one parameter of such a kernel and of its entry `_check`.
struct HipGroupedArguments {
  GroupArguments groups;
  int blocks;  // workgroups of the launch; each of them takes every `blocks`-th tile
};

}  // namespace tessera::device
