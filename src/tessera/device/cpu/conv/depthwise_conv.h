// Convolutions with one channel of x in each group: every sum has a few products, so that reading
// sets the time. Taps outside of the image are left out.
#pragma once

#include "tessera/device/cpu/conv/depthwise_driver.h"
#include "tessera/device/cpu/conv/depthwise_window.h"

namespace tessera::device {

// A kernel: the code that depends on its configuration.
template <class C>
struct DepthwiseConv {
  using Types =
      DepthwiseTypes<C::kDirection, C::kChannelsLast, typename C::X, typename C::W, typename C::Y>;
  using S = typename Types::Source;
  using F = typename Types::Factor;
  static constexpr int kVectors = C::kWarpTileN / kLanes;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kWarpTileN % kLanes == 0, "warp_tile_n must be a multiple of the lanes");

  template <int kOfVectors>
  static constexpr auto window() {
    return depthwise_window<S, F, Types::kKind, Types::kWeights, C::kTileM, C::kWarpTileM,
                            C::kWarpTileK, kOfVectors>;
  }
  static constexpr DepthwiseShape<Types> shape() {
    DepthwiseShape<Types> s{};
    s.rows = C::kWarpTileM, s.vectors = kVectors, s.taps = C::kWarpTileK;
    s.pixel_step = C::kTileM;
    s.sums_are_output = C::kNumSteps == 0 && __is_same(typename ConvTypes<C>::Out, float);
    s.any = depthwise_any<S, F, Types::kKind>;
    if constexpr (C::kChannelsLast && !Types::kForward) {
      s.apart = depthwise_any<S, F, Types::kApart>;
    }
    s.window = window<1>();
    s.windows = window<kVectors>();
    s.finish = finish_conv<C>;
    return s;
  }
  static constexpr DepthwiseShape<Types> kShape = shape();

  static i64 workspace_bytes(const void* arguments, int threads) {
    return depthwise_conv_workspace_bytes(kShape, arguments, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    depthwise_conv_run(kShape, arguments, *thread);
  }
  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
