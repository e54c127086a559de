// The arguments of attention with split keys. Plain C layout; a change here raises the family's ABI
// number (kAbi in src/tessera/families/fmha/fmha.h).
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

struct SplitArguments {
  FmhaArguments fmha;
  void* workspace;  // a counter for each item, behind all counters the partial sums
  int tiles;        // of rows, of a key-value head of the longest sequence
  int parts;        // of the keys of a tile, at most
  int waits;        // whether all blocks run at once
};

}  // namespace tessera::device
