// The arguments of HIP normalisations. Plain C layout; a change here raises the family's ABI number
// (kAbi in src/tessera/families/norm/norm.h).
#pragma once

#include "tessera/device/norm.h"

namespace tessera::device {

struct HipNormArguments {
  NormArguments norm;
  i64 blocks;      // workgroups along x; those of the layers along z have further rows
  i64 statistics;  // of the slices: their offset in the workspace, in bytes
};

}  // namespace tessera::device
