// Sizes of the kernels of latent attention that the device and the host both compute.
#pragma once

namespace tessera::device {

inline constexpr int kLatentMfmaHead = 576, kLatentMfmaHeadV = 512, kLatentMfmaKeys = 32;

constexpr int latent_tile_bytes() { return kLatentMfmaKeys * kLatentMfmaHead * 2; }
// Sums of scores that a wave leaves to others: 16 of each lane.
inline constexpr int kLatentSumBytes = 64 * 16 * 4;

// LDS of a workgroup. Copies go to a second buffer while the first one is read.
constexpr int latent_lds_bytes(int waves, bool copies) {
  return latent_tile_bytes() * (copies ? 2 : 1) + waves * kLatentSumBytes;
}

// Registers that a lane needs, roughly: scores and weights, queries, sums, keys under way, values
// and what they become, places in LDS, biases, and the rest.
constexpr int latent_registers(int waves, int teams, bool copies, int bias_bytes, bool bends) {
  const int queries = kLatentMfmaHead / 4 / teams, sums = kLatentMfmaHeadV / 2 / teams;
  const int under_way = copies ? 0 : latent_tile_bytes() / (4 * 64 * waves);
  const int values = 2 * kLatentMfmaHeadV / teams / 8;
  const int biases = bias_bytes > 0 ? 4 * bias_bytes + 12 : 0;
  return 24 + queries + sums + under_way + values + biases + (bends ? 12 : 0) + 60;
}

}  // namespace tessera::device
