// What tma_scaled_loop.h is told of the scales of a tile's rows and columns.
#pragma once

#include "tessera/device/cuda/gemm/scaled_arguments.h"
#include "tessera/device/cuda/tma_scaled_loop.h"

namespace tessera::device {

// `place` says the matrix, and from which k on.
template <class Loader>
__device__ __forceinline__ Loader scale_loader(const CudaScale& scale, const TilePlace& place,
                                               const typename Loader::Rows& rows) {
  const auto* const data = static_cast<const char*>(scale.data);
  const i64 first = place.batch * scale.batch_stride + place.k / kScaledDepth * scale.stride_k;
  return {data + first * 4, scale.stride_rows * 4, scale.stride_k * 4, rows};
}
// The same of rows in order: from that of `place` on, where there are so many.
template <class Loader>
__device__ __forceinline__ Loader scale_loader(const CudaScale& scale, const TilePlace& place,
                                               i64 rows) {
  return scale_loader<Loader>(scale, place, RowsInOrder{place.row, static_cast<int>(rows) - 1});
}

// `a` and `b` are the places of the tile in A and in B, in whose k a block of scales begins.
template <class C, class Loop>
__device__ __forceinline__ typename Loop::Scales tile_scales(const CudaScales& scales,
                                                             const GemmArguments& g,
                                                             const TilePlace& a,
                                                             const TilePlace& b) {
  using ScalesP = typename Loop::ScalesP;
  using ScalesQ = typename Loop::ScalesQ;
  if constexpr (C::kSwapAb) {
    return {scale_loader<ScalesP>(scales.b, b, g.n), scale_loader<ScalesQ>(scales.a, a, g.m)};
  } else {
    return {scale_loader<ScalesP>(scales.a, a, g.m), scale_loader<ScalesQ>(scales.b, b, g.n)};
  }
}

}  // namespace tessera::device
