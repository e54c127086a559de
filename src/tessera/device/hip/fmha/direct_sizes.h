// The LDS of the general kernel of attention, for host and device.
#pragma once

namespace tessera::device {

inline constexpr int kHipDirectKeys = 64;  // tile_n: a lane of a wave has one key

// A row of a query, as floats: whole runs of four.
constexpr int hip_direct_row_bytes(int hdim) { return (hdim + 3) / 4 * 16; }
constexpr int hip_direct_lds_bytes(int tile_m, int hdim) {
  return tile_m * hip_direct_row_bytes(hdim);
}

}  // namespace tessera::device
