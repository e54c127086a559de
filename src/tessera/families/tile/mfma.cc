#include "tessera/families/tile/mfma.h"

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

device::MfmaShape mfma_shape(const Algorithm& a, const MfmaOperands& o) {
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
          .transposes_b = o.transposes_b};
}

std::int64_t mfma_stage_bytes(const Algorithm& a, int size_a, int size_b) {
  return (std::int64_t{a.tile.m} * size_a + std::int64_t{a.tile.n} * size_b) * a.tile.k;
}

int mfma_depth(int side, int size) { return kWaveLanes / side * (kLaneBytes / size); }

}  // namespace tessera::tile
