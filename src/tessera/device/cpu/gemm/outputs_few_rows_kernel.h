// The kernel of outputs_kernel.h that streams B past few rows.
#pragma once

#include "tessera/device/cpu/gemm/few_rows_shape.h"
#include "tessera/device/cpu/gemm/outputs_kernel.h"

namespace tessera::device {

template <class C>
using OutputsFewRowsKernel = OutputsEntries<C, FewRowsKernel>;

}  // namespace tessera::device
