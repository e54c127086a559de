// A kernel on groups, which streams B past those of few rows.
#pragma once

#include "tessera/device/cpu/gemm/few_rows_shape.h"
#include "tessera/device/cpu/gemm/grouped_kernel.h"

namespace tessera::device {

template <class C>
using GroupedFewRowsKernel = GroupedOf<C, FewRowsKernel>;

}  // namespace tessera::device
