// The arguments of the kernels that append, alone or before attention. Plain C layout; a change
// here raises the family's ABI number, as in arguments.h.
#pragma once

#include "tessera/device/fmha_append.h"
#include "tessera/device/hip/fmha/arguments.h"

namespace tessera::device {

struct HipAppendArguments {
  FmhaAppendArguments append;
  HipGrid grid;
};

// Attention's come first, where its kernels look for them.
template <class Attention>
struct HipExtendArguments {
  Attention attention;
  HipAppendArguments append;
};

}  // namespace tessera::device
