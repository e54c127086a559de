// The arguments of attention's general kernels for AMD GPUs. Plain C layout; a change here raises
// the family's ABI number (kAbi in src/tessera/families/fmha/fmha.h). Device code includes words.h
// before, which says that the shared headers are for the device, too.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// Workgroups along the sides of the grid.
struct HipGrid {
  unsigned side[3];
};

struct HipFmhaArguments {
  FmhaArguments attention;
  HipGrid grid;
};

}  // namespace tessera::device
