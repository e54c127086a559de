// The arguments of HIP's direct convolutions. Plain C layout; a change here raises the family's ABI
// number (kAbi in src/tessera/families/conv/conv.h).
#pragma once

#include "tessera/device/conv.h"

namespace tessera::device {

struct HipDirectConvArguments {
  ConvArguments conv;
  i64 blocks;  // workgroups of the launch; each of them takes every `blocks`-th run of results
};

}  // namespace tessera::device
