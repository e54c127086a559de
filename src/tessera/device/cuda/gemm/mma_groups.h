// Groups of unequal sizes on tensor cores, see cpasync_groups.h.
#pragma once

#include "tessera/device/cuda/gemm/cpasync_groups.h"
#include "tessera/device/cuda/gemm/mma_gemm.h"

namespace tessera::device {

template <class C>
using MmaGroups = CpasyncGroups<C, MmaEngine>;

}  // namespace tessera::device
