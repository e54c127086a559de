// Groups of unequal sizes on the ordinary cores, see cpasync_groups.h.
#pragma once

#include "tessera/device/cuda/gemm/cpasync_groups.h"
#include "tessera/device/cuda/gemm/fma_gemm.h"

namespace tessera::device {

template <class C>
using FmaGroups = CpasyncGroups<C, FmaEngine>;

}  // namespace tessera::device
