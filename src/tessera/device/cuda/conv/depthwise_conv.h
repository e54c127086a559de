// Convolutions with one channel of x in each group, channels last, on the ordinary cores.
//
//   kTileM x kTileN x kTileK:       a block has so many results (backward_weight: places of y) of
//   at
//                                   most kTileN channels; the stride along lines and columns
//   kWarpTileM x kWarpTileN x K:    a thread has so many lines and columns; taps of a line
//   kSlices:                        backward_weight: as many blocks share the places of y; the
//                                   entry _sum adds up their sums in their order
//
// Elements outside of the image are left out.
#pragma once

#include "tessera/device/cuda/conv/depthwise_image.h"
#include "tessera/device/cuda/conv/depthwise_weight.h"

namespace tessera::device {

template <class C>
struct DepthwiseConv : If<C::kDirection == ConvDirection::backward_weight, DepthwiseWeight<C>,
                          DepthwiseImage<C>>::Type {};

}  // namespace tessera::device
