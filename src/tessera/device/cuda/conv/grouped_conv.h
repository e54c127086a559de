// Convolutions of groups with few channels, channels last, on tensor cores: nothing is repacked. A
// block reads the part of the image that its results meet once, and a tap is an offset into it. A
// product has the channels of one group, or of neighbouring groups that fill 8 channels together.
//
//   kTileM x kTileN x kTileK:  a block has room for so many results (backward_weight: places of y
//   at
//                              a time), columns of a product, and channels of the image in it
//   kWarpTileM x N x K:        a warp has so many results (backward_weight: taps times channels of
//                              x) and columns; a block has kWarpTileK products
//   kWaveM x kWaveN:           warps along results and columns; backward_weight: along the sums,
//                              and warps that share the places of y
//   kStages:                   more than 1: by wgmma, with so many tiles of the image in shared
//                              memory; each of kWaveM warpgroups has kWarpTileM places of a tile
//
// The launch says which box of results a tile is, and which taps there are. What is outside of an
// image, and what a filter of several groups lacks, is multiplied as zero. A sum that is not a
// number is therefore computed again, from the products that exist.
#pragma once

#include "tessera/device/cuda/conv/grouped_image.h"
#include "tessera/device/cuda/conv/grouped_weight.h"
#include "tessera/device/cuda/conv/grouped_wide.h"

namespace tessera::device {

template <class C>
struct GroupedConv
    : If<C::kDirection == ConvDirection::backward_weight, GroupedWeight<C>,
         typename If<(C::kStages > 1), GroupedWide<C>, GroupedImage<C>>::Type>::Type {};

}  // namespace tessera::device
