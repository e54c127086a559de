// A thread takes whole rows, kTileM of them at a time.
#pragma once

#include "toy_operation/device/toy_kernel.h"

namespace tessera::device {

template <class C>
struct ToyRows {
  static void run(const ToyArguments& g, const CpuThread& thread) {
    const Range mine = part(g.rows, C::kTileM, thread.count, thread.index);
    for (i64 row = mine.begin; row < mine.end; ++row) scale_columns(g, row, {0, g.columns});
  }
  static constexpr CpuKernel kernel() { return one_entry<ToyRows>(C::kAbiVersion); }
};

}  // namespace tessera::device
