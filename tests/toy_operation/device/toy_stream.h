// Threads share out parts of kTileN columns, so that a single row occupies them all.
#pragma once

#include "toy_operation/device/toy_kernel.h"

namespace tessera::device {

template <class C>
struct ToyStream {
  static void run(const ToyArguments& g, const CpuThread& thread) {
    const i64 parts = blocks_of(g.columns, C::kTileN);
    const Range mine = part(g.rows * parts, 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      const i64 begin = i % parts * C::kTileN;
      scale_columns(g, i / parts, {begin, smaller(begin + C::kTileN, g.columns)});
    }
  }
  static constexpr CpuKernel kernel() { return one_entry<ToyStream>(C::kAbiVersion); }
};

}  // namespace tessera::device
