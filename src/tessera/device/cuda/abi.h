// The contract between emitted CUDA kernels and the program that launches them: every cubin exports
// `extern "C" __device__ const int <kernel name>_abi` with its family's ABI number (Family::abi).
// Plain C layout; a change here raises the number of every family that it concerns.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// A tensor map: 128 opaque bytes at a multiple of 64, which the driver encodes for the copy engine.
struct alignas(64) CudaTensorMap {
  unsigned long long words[16];
};

// The counters at the start of a workspace. They are all 0 when a launch starts. The block that
// counts a counter to its end sets it to 0 again, so that they are all 0 when the launch ends.
// Nothing else may lie there.
inline constexpr int kCounterBytes = 1 << 16;

}  // namespace tessera::device
