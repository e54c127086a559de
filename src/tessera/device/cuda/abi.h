// The contract between emitted CUDA kernels and the program that launches them: every cubin exports
// `extern "C" __device__ const int <kernel name>_abi` with its family's ABI number (Family::abi).
// Plain C layout; a change here raises the number of every family that it concerns.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// What the driver encodes for the copy engine: 128 opaque bytes, at a multiple of 64.
struct alignas(64) CudaTensorMap {
  unsigned long long words[16];
};

// The counters at the start of a workspace. They are all 0 when a launch starts. Whoever counts one
// up to its last leaves 0 behind, so that they are all 0 when it ends; nothing else may lie there.
inline constexpr int kCounterBytes = 1 << 16;

}  // namespace tessera::device
