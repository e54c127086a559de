#include "tessera/families/tile/mfma.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::tile {

bool is_mfma(Pipeline pipeline) {
  return pipeline == Pipeline::compv3 || pipeline == Pipeline::compv4 ||
         pipeline == Pipeline::mem || pipeline == Pipeline::async;
}

MfmaTiles mfma_tiles(const Algorithm& a) {
  if (a.pipeline == Pipeline::compv4) return {2, 1};
  if (a.pipeline == Pipeline::mem) return {1, 2};
  if (a.pipeline == Pipeline::async) return {a.stages, 0};
  return {1, 1};
}

device::MfmaShape mfma_shape(const Algorithm& a, const MfmaOperands& o, int wave_lanes) {
  const MfmaTiles tiles = mfma_tiles(a);
  return {.tile_m = a.tile.m,
          .tile_n = a.tile.n,
          .tile_k = a.tile.k,
          .wave_m = a.wave.m,
          .wave_n = a.wave.n,
          .side = a.warp_tile.m,
          .size_a = o.size_a,
          .size_b = o.size_b,
          .buffers = tiles.buffers,
          .prefetch = tiles.prefetch,
          .transposes_a = o.transposes_a,
          .transposes_b = o.transposes_b,
          .lanes = wave_lanes};
}

std::int64_t mfma_stage_bytes(const Algorithm& a, int size_a, int size_b) {
  return (std::int64_t{a.tile.m} * size_a + std::int64_t{a.tile.n} * size_b) * a.tile.k;
}

int mfma_depth(int side, int size, int wave_lanes) {
  return wave_lanes / side * (kLaneBytes / size);
}

int lane_registers_left(const Algorithm& a, const Target& target) {
  return std::min(target.registers_per_thread, target.registers_per_unit / block_lanes(a, target));
}

bool mfma_split_fits(const Algorithm& a) {
  return (a.slices != 1 || a.streamk) == (a.split_k != SplitK::none);
}
std::string mfma_split_does_not_fit(const Algorithm& a) {
  return fmt::format("split_k must be {} for slices={} on AMD GPUs, got {}",
                     a.slices != 1 ? "ordered or atomic" : "none", a.slices, to_string(a.split_k));
}

bool mfma_waves_fit(const Algorithm& a) {
  const Shape3& w = a.wave;
  return w.k == 1 && w.m >= 1 && w.n >= 1 && w.m <= kMfmaWaveSide && w.n <= kMfmaWaveSide &&
         (w.m * w.n == 4 || w.m * w.n == 8);
}
std::string mfma_waves_do_not_fit(const Algorithm& a) {
  return fmt::format(
      "a block has 4 or 8 waves, at most {} along m and along n and one along k, got {}",
      kMfmaWaveSide, to_string(a.wave));
}

bool mfma_cuts_tiles(const Algorithm& a) {
  return a.tile.m % (a.wave.m * a.warp_tile.m) == 0 && a.tile.n % (a.wave.n * a.warp_tile.n) == 0;
}
std::string mfma_cuts_no_tiles(const Algorithm& a) {
  return fmt::format("tile {}x{} does not divide over {}x{} waves of {}x{}", a.tile.m, a.tile.n,
                     a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n);
}

}  // namespace tessera::tile
