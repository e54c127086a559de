// The entry that a checked launch of attention on a CPU runs first.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

template <FmhaLengths kLengths, FmhaPages kPages, class Arguments>
struct PageCheck {
  static i64 workspace_bytes(const void*, int) { return 0; }
  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const Arguments*>(arguments);
    if (thread->index != 0) return;
    const auto sequence_at = [&g](i64 batch) { return sequence_of<kLengths, kPages>(g, batch); };
    report(first_bad_page(g, sequence_at), g.bad_page);
  }
};

}  // namespace tessera::device
