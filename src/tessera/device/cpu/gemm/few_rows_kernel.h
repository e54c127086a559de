// Kernels on groups, and with outputs of another form, that stream B past products of few rows and
// pack it for others.
#pragma once

#include "tessera/device/cpu/gemm/few_rows_gemm.h"
#include "tessera/device/cpu/gemm/grouped_kernel.h"
#include "tessera/device/cpu/gemm/outputs_kernel.h"

namespace tessera::device {

template <class C>
struct FewRowsBlocks {
  using Types = typename AskingKernel<C>::Types;
  static constexpr FewRowsShape<Types> shape() {
    return {AskingKernel<C>::shape(),
            multiply_strip<typename C::B, typename C::Math, C::kBKContiguous>};
  }
};

template <class C>
using GroupedFewRowsKernel = GroupedOf<C, FewRowsBlocks>;
template <class C>
using OutputsFewRowsKernel = OutputsEntries<C, FewRowsBlocks>;

}  // namespace tessera::device
