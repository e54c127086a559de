// Convolutions on Hopper whose operands are copied first (repack.h): the main loop of tma_conv.h,
// and the steps before and behind it.
#pragma once

#include "tessera/device/cuda/conv/filter_sums.h"
#include "tessera/device/cuda/conv/pixel_store.h"
#include "tessera/device/cuda/conv/repack.h"
#include "tessera/device/cuda/conv/tma_conv.h"

namespace tessera::device {

// How the main loop stores a tile: sums of filters to the workspace, images whose rows lie at one
// distance by tma_store.h, other images pixel by pixel.
template <class Config>
struct RepackedResult {
  using Arguments = CudaRepackArguments;
  static constexpr bool kSums = Config::kDirection == ConvDirection::backward_weight;
  static constexpr bool kPixels =
      !kSums && (Config::kDirection == ConvDirection::backward_data || !Config::kChannelsLast);
  static constexpr bool kCells = !kSums && !kPixels;  // may be, instead of whole rows

  template <class C, int kBlocks, int kPass, int kAreaBytes>
  static __device__ __forceinline__ void store_pixels(
      const ResidueStore<C, kBlocks, kPass, kAreaBytes>& at, const CudaRepackArguments& g,
      const float (&sums)[kBlocks][C::kTileN / 2]) {
    if constexpr (C::kChannelsLast && ResidueStore<C, kBlocks, kPass, kAreaBytes>::kMayCopy) {
      if (g.by_copy != 0) return at.copy(sums);
    }
    PixelStore<C, kBlocks, kPass, kAreaBytes>::at(at, g).store(sums);
  }
};

template <class Config>
struct RepackConv {
  using Main = TmaConv<Config, RepackedResult<Config>>;
  static constexpr bool kWeight = Main::kWeight;

  static __device__ __forceinline__ void run(const CudaRepackArguments& g) { Main::run(g); }
  static __device__ __forceinline__ void run_prepare(const CudaRepackArguments& g) {
    using Copies = Repack<typename Main::Element>;
#pragma unroll 1
    for (int i = 0; i < (kWeight ? 2 : 1); ++i) {
      Copies::template image<!Config::kChannelsLast>(g, i);
    }
    if constexpr (!kWeight) Copies::template filter<Main::kForward>(g);
  }
  static __device__ __forceinline__ void run_sum(const CudaRepackArguments& g) {
    FilterSums<typename Main::C, Main::kThreads>::add(g);
  }
};

}  // namespace tessera::device
