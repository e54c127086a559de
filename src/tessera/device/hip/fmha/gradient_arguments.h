// The arguments of attention's gradients by MFMA. Plain C layout; a change here raises the family's
// ABI number, as in arguments.h.
#pragma once

#include "tessera/device/hip/fmha/backward_arguments.h"

namespace tessera::device {

// The steps before the products and the one for dbias are those of the general kernels, whose
// arguments come first.
struct MfmaBackwardArguments {
  HipBackwardArguments general;
  int query_tiles, query_total;  // of the longest sequence; workgroups of dq
  int key_tiles, key_total;      // the same of dk and dv
};

// Floats behind the last query's in the workspace, which loads of four may read.
inline constexpr int kMfmaBackwardSpare = 4;

}  // namespace tessera::device
