// AMD's kernels (src/tessera/device/hip/) on the host: how many tiles they keep where.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/device/hip/tile_sizes.h"
#include "tessera/families/tile/rules.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera::tile {

inline constexpr int kWaveLanes = 64;  // of CDNA; a target's row has its own
inline constexpr int kLaneBytes = 16;  // that a lane reads from LDS at a time, along k

// Whether a pipeline multiplies by MFMA in one of our kernels.
bool is_mfma(Pipeline pipeline);

// How many tiles of K are in LDS, and how many are under way in registers.
struct MfmaTiles {
  int buffers = 1;
  int prefetch = 0;
};
MfmaTiles mfma_tiles(const Algorithm& algorithm);

// What the sizes depend on besides: bytes of an element, and whether a kernel transposes the
// operand because its k is not contiguous.
struct MfmaOperands {
  int size_a, size_b;
  bool transposes_a, transposes_b;
};
// The kernel as the device's own functions for sizes take it.
device::MfmaShape mfma_shape(const Algorithm& algorithm, const MfmaOperands& operands,
                             int wave_lanes = kWaveLanes);

inline int all_waves(const Algorithm& a) { return a.wave.m * a.wave.n * a.wave.k; }
inline int block_lanes(const Algorithm& a) { return all_waves(a) * kWaveLanes; }
inline int block_lanes(const Algorithm& a, const Target& t) { return all_waves(a) * t.warp_size; }

// Bytes of one tile of A and of B.
std::int64_t mfma_stage_bytes(const Algorithm& algorithm, int size_a, int size_b);

// The k of a warp tile: elements of a lane's 16 bytes, times the groups of lanes along k.
int mfma_depth(int side, int size, int wave_lanes = kWaveLanes);

// Registers that a lane of a block may have. A SIMD has the same ones for one wave as for two
// together.
int lane_registers_left(const Algorithm& algorithm, const Target& target);

// What GEMM's main loop asks of an algorithm, also where it multiplies for another family.
inline constexpr int kMfmaWaveSide = 4;
bool mfma_split_fits(const Algorithm& algorithm);
std::string mfma_split_does_not_fit(const Algorithm& algorithm);
bool mfma_waves_fit(const Algorithm& algorithm);
std::string mfma_waves_do_not_fit(const Algorithm& algorithm);
bool mfma_cuts_tiles(const Algorithm& algorithm);
std::string mfma_cuts_no_tiles(const Algorithm& algorithm);
inline constexpr AlgorithmRule kMfmaSplitK = {mfma_split_fits, mfma_split_does_not_fit};
inline constexpr AlgorithmRule kMfmaWaves = {mfma_waves_fit, mfma_waves_do_not_fit};
inline constexpr AlgorithmRule kMfmaCuts = {mfma_cuts_tiles, mfma_cuts_no_tiles};

}  // namespace tessera::tile
