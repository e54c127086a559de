// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) for any size, stride and alignment: every
// thread copies its share of the tiles of A and B (cp.async) into a ring of stages and then has its
// warp multiply them. The Engine multiplies: mma_gemm.h, fma_gemm.h.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/cuda/tile_output.h"

namespace tessera::device {

// A thread's share of the copies of A's and B's tiles for one tile of the output.
template <class C, class CopyA, class CopyB>
struct OperandCopies {
  using A = typename C::A;
  using B = typename C::B;
  CopyA a;
  CopyB b;

  __device__ __forceinline__ OperandCopies(const GemmArguments& g, const TileCorner& corner,
                                           u32 thread)
      : a(source_a(g, corner), corner.row, g.m, thread),
        b(source_b(g, corner), corner.column, g.n, thread) {}

 private:
  static __device__ __forceinline__ Source source_a(const GemmArguments& g,
                                                    const TileCorner& corner) {
    const bool in_array = g.pointer_arrays != 0;
    const A* const data = matrix_of<A>(g.a, g.batch_stride_a, corner.batch, in_array);
    return source_of<A>(data, g.ld_a, {C::kAKContiguous ? g.m : g.k, C::kAKContiguous ? g.k : g.m});
  }
  static __device__ __forceinline__ Source source_b(const GemmArguments& g,
                                                    const TileCorner& corner) {
    const bool in_array = g.pointer_arrays != 0;
    const B* const data = matrix_of<B>(g.b, g.batch_stride_b, corner.batch, in_array);
    return source_of<B>(data, g.ld_b, {C::kBKContiguous ? g.n : g.k, C::kBKContiguous ? g.k : g.n});
  }
};

// An Engine has
//   kStageBytes                     of shared memory for a tile of A and one of B
//   kRegisters                      that a thread needs
//   accumulate(g, corner, shared, more...)   adds up the products of all tiles, through kStages
//                                   stages; `more` is what run() got besides
//   put(tile)                       writes the accumulators to shared memory
//   kStores                         whether it may store them by itself: then
//   store(g, corner)                does so, or returns false and leaves it to put()
// and, where kSlices > 1,
//   add_slices(arguments, tile, tiles, slice)   true if it then holds the sums over all slices
template <class C, template <class> class Engine>
struct CpasyncGemm {
  using Acc = typename C::Acc;
  using Math = Engine<C>;

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  using Output = TileOutput<C, kThreads>;

  static constexpr int kSharedBytes =
      cpasync_bytes(C::kStages, Math::kStageBytes, C::kTileM, C::kTileN);
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");
  static_assert(C::kStages >= 2, "a ring has at least 2 stages");

  // The blocks that fit on a unit by shared memory and registers, at most 3.
  static constexpr int kFitShared = kSharedPerUnit / (kSharedBytes + kSharedReserve);
  static constexpr int kFitRegisters = 65536 / (Math::kRegisters * kThreads);
  static constexpr int kMinBlocks = larger(1, smaller(3, smaller(kFitShared, kFitRegisters)));

  template <class... More>
  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments,
                                             const More&... more) {
    extern __shared__ __align__(1024) char shared[];
    const GemmArguments& g = arguments.gemm;
    const CornerOrder<C::kTileM, C::kTileN> order(g, arguments.raster_group);
#pragma unroll 1
    for (u64 index = blockIdx.x; index < order.total * C::kSlices; index += gridDim.x) {
      TileCorner corner = order.corner(index / C::kSlices);
      corner.slice = static_cast<int>(index % C::kSlices);
      Math math(threadIdx.x);
      math.accumulate(g, corner, shared_address(shared), more...);
      if constexpr (C::kSlices > 1) {
        if (!math.add_slices(arguments, index / C::kSlices, order.total, corner.slice)) continue;
      }
      if constexpr (Math::kStores) {
        if (math.store(g, corner)) continue;
      }
      Acc* tile = reinterpret_cast<Acc*>(shared);
      math.put(tile);
      __syncthreads();
      Output::store(g, corner, tile, threadIdx.x);
      __syncthreads();
    }
  }
};

}  // namespace tessera::device
