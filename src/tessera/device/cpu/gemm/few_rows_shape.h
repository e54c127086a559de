// The shape of kernels that stream B past products of few rows, and pack it for others.
#pragma once

#include "tessera/device/cpu/gemm/few_rows_gemm.h"
#include "tessera/device/cpu/gemm/packed_kernel.h"

namespace tessera::device {

template <class C>
struct FewRowsKernel {
  using Types = typename AskingKernel<C>::Types;
  static constexpr FewRowsShape<Types> shape() {
    return {AskingKernel<C>::shape(),
            multiply_strip<typename C::B, typename C::Math, C::kBKContiguous>};
  }
};

}  // namespace tessera::device
