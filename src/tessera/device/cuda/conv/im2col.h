// The copy engine's instructions on images: a column of pixels, from a first one on, line by line
// and image by image, inside of the box that the map describes.
#pragma once

#include "tessera/device/cuda/tma.h"

namespace tessera::device {

// The first pixel, and how far each pixel is moved after it was found in the box. Innermost
// dimension first.
template <int kDims>
struct PixelColumn {
  const CudaTensorMap* map;
  int channel;
  int at[kDims];
  int image;
  int moved[kDims];  // at least 0
};

template <int kDims>
__device__ __forceinline__ void load_pixels(u32 to, u32 barrier, const PixelColumn<kDims>& from) {
  if constexpr (kDims == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5], {%6};" ::"r"(to),
        "l"(from.map), "r"(from.channel), "r"(from.at[0]), "r"(from.image), "r"(barrier),
        "h"(static_cast<u16>(from.moved[0]))
        : "memory");
  } else if constexpr (kDims == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(from.map), "r"(from.channel), "r"(from.at[0]), "r"(from.at[1]), "r"(from.image),
        "r"(barrier), "h"(static_cast<u16>(from.moved[0])), "h"(static_cast<u16>(from.moved[1]))
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(to),
        "l"(from.map), "r"(from.channel), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]),
        "r"(from.image), "r"(barrier), "h"(static_cast<u16>(from.moved[0])),
        "h"(static_cast<u16>(from.moved[1])), "h"(static_cast<u16>(from.moved[2]))
        : "memory");
  }
}

// The first pixel must exist; pixels behind the last image are not written.
template <int kDims>
__device__ __forceinline__ void store_pixels(const PixelColumn<kDims>& to, u32 from) {
  if constexpr (kDims == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%1, %2, %3}], [%4];" ::"l"(to.map),
        "r"(to.channel), "r"(to.at[0]), "r"(to.image), "r"(from)
        : "memory");
  } else if constexpr (kDims == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(to.map),
        "r"(to.channel), "r"(to.at[0]), "r"(to.at[1]), "r"(to.image), "r"(from)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(to.map),
        "r"(to.channel), "r"(to.at[0]), "r"(to.at[1]), "r"(to.at[2]), "r"(to.image), "r"(from)
        : "memory");
  }
}

}  // namespace tessera::device
