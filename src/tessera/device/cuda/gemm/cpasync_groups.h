// The kernels of cpasync_gemm.h on groups of unequal sizes, of any type, layout, stride and number:
// out = epilogue(alpha * A x B + beta * C) for each group. Blocks walk along the slots of
// group_slots.h, for lists as list_walk.h says. The host never reads the groups' numbers.
#pragma once

#include "tessera/device/cuda/gemm/cpasync_gemm.h"
#include "tessera/device/cuda/gemm/group_check.h"
#include "tessera/device/cuda/gemm/group_slots.h"
#include "tessera/device/cuda/gemm/list_walk.h"

namespace tessera::device {

template <class C, template <class> class Engine>
struct CpasyncGroups {
  static_assert(C::kSlices == 1, "groups are not cut along k");
  using Dense = CpasyncGemm<C, Engine>;
  using Math = Engine<C>;
  using Acc = typename C::Acc;
  using Walk = ListWalk<C::kTileM, C::kTileN>;
  static constexpr int kThreads = Dense::kThreads;
  // The numbers of the walk find no room beside the sums of int8 (100 bytes were spilled).
  static constexpr int kOfWalk = kSame<typename C::A, int8> ? 16 : 0;
  static constexpr int kFitRegisters = 65536 / ((Math::kRegisters + kOfWalk) * kThreads);
  static constexpr int kMinBlocks = larger(1, smaller(Dense::kMinBlocks, kFitRegisters));
  static constexpr GroupElements kElements = {sizeof(typename C::A), sizeof(typename C::B),
                                              sizeof(typename C::D), sizeof(typename C::Out)};

  // `more` is what Engine::accumulate() gets besides, of the part of a group that is multiplied.
  template <class... More>
  static __device__ __forceinline__ void run(const CudaGroupArguments& arguments,
                                             const More&... more) {
    const GroupArguments& x = arguments.groups;
    if (found_bad_group(x)) return;
    if constexpr (C::kGrouping == Grouping::lists) {
      run_lists(x);
    } else {
      run_slots(x, more...);
    }
  }

 private:
  template <class... More>
  static __device__ __forceinline__ void run_slots(const GroupArguments& x, const More&... more) {
    const GroupSlots<C::kGrouping, C::kTileM> slots = {x};
    const u64 columns = static_cast<u64>((x.gemm.n + C::kTileN - 1) / C::kTileN);
#pragma unroll 1
    for (u64 index = blockIdx.x; index < slots.total() * columns; index += gridDim.x) {
      const i64 column = static_cast<i64>(index % columns) * C::kTileN;
      slots.for_each_tile(index / columns,
                          [&](const GroupTile& tile) { compute(x, tile, column, more...); });
    }
  }
  static __device__ __forceinline__ void run_lists(const GroupArguments& x) {
    Walk walk;
#pragma unroll 1
    while (walk.next(x)) compute_of_list(x, walk);
  }

  template <class... More>
  static __device__ __forceinline__ void compute(const GroupArguments& x, const GroupTile& tile,
                                                 i64 column, const More&... more) {
    extern __shared__ __align__(1024) char shared[];
    const GemmArguments g = product_of(x, tile.part, kElements);
    const TileCorner corner = {0, tile.row, column};
    Math math(threadIdx.x);
    math.accumulate(g, corner, shared_address(shared), more.of(tile.part)...);
    Acc* sums = reinterpret_cast<Acc*>(shared);
    math.put(sums);
    __syncthreads();
    Dense::Output::store(g, corner, sums, threadIdx.x);
    __syncthreads();
  }

  // What a group has of its own is read again for the output, because there are no registers to
  // keep it beside the sums.
  static __device__ __forceinline__ void compute_of_list(const GroupArguments& x,
                                                         const Walk& walk) {
    extern __shared__ __align__(1024) char shared[];
    Acc* sums = reinterpret_cast<Acc*>(shared);
    Math math(threadIdx.x);
    ListTile tile = walk.tile();
    math.accumulate(product_of_list(x, tile.group), {0, tile.row, tile.column},
                    shared_address(shared));
    math.put(sums);
    __syncthreads();
    tile = walk.tile();
    Dense::Output::store(product_of_list(x, tile.group), {0, tile.row, tile.column}, sums,
                         threadIdx.x);
    __syncthreads();
  }
};

}  // namespace tessera::device
