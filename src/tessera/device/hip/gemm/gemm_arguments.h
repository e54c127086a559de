// The arguments of HIP GEMM kernels. Plain C layout; a change here raises the family's ABI number
// (kAbi in src/tessera/families/gemm/gemm.h).
#pragma once

#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// The counters at the start of a workspace, as in cuda/abi.h: all 0 before and after a launch. One
// for each tile of the output, so that there are at most a quarter as many tiles as bytes.
inline constexpr int kHipCounterBytes = 1 << 16;

// The one parameter of every HIP GEMM kernel; `_pack` entries take the packed B's address as their
// second one.
struct HipGemmArguments {
  GemmArguments gemm;
  void* workspace;    // slices: counters and partial sums; null for launches that need none
  i64 partial_sums;   // slices: offset of the partial sums in the workspace, in bytes
  i64 partial_bytes;  // slices: bytes of the partial sums
  int raster_group;   // how many tiles along m run together (negative: along n)
  int blocks;         // workgroups of the launch, at most 2^32 / threads - 1; each of them takes
                      // every `blocks`-th tile
};

}  // namespace tessera::device
