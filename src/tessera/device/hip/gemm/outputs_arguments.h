// The arguments of HIP GEMM kernels where out has a gate, rows by index or 8 bits. Plain C layout;
// a change here raises the family's ABI number.
#pragma once

#include "tessera/device/gemm/outputs.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"

namespace tessera::device {

inline constexpr int kHipOutputThreads = 256;  // of the entries _gather and _finish

// `product` is what the kernel without them takes. Its out, the sums, and where rows are gathered
// its A are bytes into the workspace in place of addresses.
template <class Product>
struct HipOutputs {
  Product product;
  OutputArguments outputs;
  void* workspace;
  i64 ld_copy;                  // of the gathered rows, in elements
  int line_blocks, row_blocks;  // workgroups of _gather and of _finish
};

}  // namespace tessera::device
