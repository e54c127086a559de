// How the workgroups of a stream-K kernel share the tiles of an output, told by the arguments
// alone.
#pragma once

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/device/hip/slices.h"
#include "tessera/device/hip/tile_order.h"
#include "tessera/device/stream_work.h"

namespace tessera::device {

template <class C, class Operands>
struct StreamShares {
  static __device__ __forceinline__ StreamWork work(const HipGemmArguments& arguments) {
    const auto& sizes = Operands::sizes(arguments.gemm);
    const HipTileOrder<C> order(sizes, arguments.raster_group);
    const int steps = static_cast<int>((sizes.k + C::kTileK - 1) / C::kTileK);
    return stream_work(static_cast<int>(order.total), steps, arguments.blocks);
  }
  static __device__ __forceinline__ int block() {
    return static_cast<int>(__builtin_amdgcn_workgroup_id_x());
  }
  // What the workgroup does as its item of that index.
  static __device__ __forceinline__ StreamItem item(const HipGemmArguments& arguments,
                                                    const StreamWork& work, int index) {
    const StreamShare share = stream_share(work, block());
    return stream_item(work, share, block(), arguments.blocks, index);
  }
  // Adds up the parts of a tile, of which the workgroup has one.
  template <class Acc, int kSums, int kThreads>
  static __device__ __forceinline__ HipSliceSums<Acc, kSums, false, kThreads> sums(
      const HipGemmArguments& arguments, const StreamWork& work, int tile) {
    const StreamParts parts = stream_parts(work, tile);
    constexpr int kDistance = stream_place({0, 3}, 2) - stream_place({0, 3}, 1);
    constexpr int kFurther = stream_place({0, 3}, 1) - stream_place({0, 3}, 0) - kDistance;
    return {bits<u64>(arguments.workspace) + static_cast<u64>(arguments.partial_sums),
            static_cast<u32*>(arguments.workspace) + (tile - work.whole),
            stream_place(parts, 0),
            kDistance,
            kFurther,
            block() - parts.first,
            parts.count,
            fresh_thread<kThreads>()};
  }
};

}  // namespace tessera::device
