// The entry that a checked launch runs first.
#pragma once

#include "tessera/device/hip/fmha/words.h"

namespace tessera::device {

// One wave looks at the entries of one sequence after the other. It stops at the first bad page.
template <FmhaLengths kLengths, FmhaPages kPages, class Arguments>
__device__ __forceinline__ void check_pages(const Arguments& g) {
  if (wave_of_block() != 0) return;
  const int lane = lane_of_wave();
  FmhaBadPage bad = no_bad_page();
#pragma unroll 1
  for (i64 batch = 0; batch < g.batch && bad.found == 0; ++batch) {
    const auto s = sequence_of<kLengths, kPages>(g, batch);
    const i64 end = uniform(i64{entries_of(g, s)});
#pragma unroll 1
    for (i64 entry = uniform(i64{first_entry(g, s)}); entry < end; entry += kLanes) {
      const bool is_bad = entry + lane < end && is_bad_page(g, s, entry + lane);
      const u64 found = lanes_with(is_bad);
      if (found == 0) continue;
      bad = bad_page_at(g, s, batch, entry + __builtin_ctzll(found));
      break;
    }
  }
  if (lane == 0) report(bad, g.bad_page);
}

}  // namespace tessera::device
