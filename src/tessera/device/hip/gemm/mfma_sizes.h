// The sizes of a kernel by matrix instructions, of its configuration (mfma_gemm.h).
#pragma once

#include "tessera/device/hip/tile_sizes.h"
#include "tessera/device/hip/types.h"

namespace tessera::device {

// The k of the blocks whose sums are added by themselves, of a configuration with scales.
template <class C>
constexpr int scaled_depth() {
  if (C::kScaleA == 0) return C::kScaleB;
  return C::kScaleB == 0 || C::kScaleA < C::kScaleB ? C::kScaleA : C::kScaleB;
}

template <class C, class Operands>
struct MfmaSizes {
  static constexpr MfmaShape kPlain = {C::kTileM,
                                       C::kTileN,
                                       C::kTileK,
                                       C::kWaveM,
                                       C::kWaveN,
                                       C::kWarpTileM,
                                       static_cast<int>(sizeof(typename C::A)),
                                       static_cast<int>(sizeof(typename C::B)),
                                       C::kBuffers,
                                       C::kPrefetch,
                                       Operands::kTransposesA,
                                       Operands::kTransposesB,
                                       kLanes};
  static constexpr MfmaShape shape() {
    MfmaShape s = kPlain;
    if constexpr (requires { C::kScaleA; }) {
      const bool by_column = C::kScaleB != 0 && C::kScaleRowsB == 1;
      s.scales = mfma_scale_registers(s, scaled_depth<C>(), by_column,
                                      C::kWarpTileK > kLanes / C::kWarpTileM * 16);
    }
    return s;
  }
  static constexpr MfmaShape kShape = shape();
  static constexpr int kThreads = mfma_threads(kShape);
  static constexpr int kLdsBytes = mfma_lds_bytes(kShape);
#if defined(__gfx950__)
  static constexpr int kLdsLimit = 160 * 1024;
#else
  static constexpr int kLdsLimit = 64 * 1024;
#endif
  static constexpr int kMinWaves = mfma_waves(kShape, kLdsLimit);
  static_assert(kLdsBytes <= kLdsLimit, "the tiles fit into LDS");
};

}  // namespace tessera::device
