// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) for any size, stride and alignment: every
// thread copies its share of the tiles of A and B (cp.async) into a ring of stages and then has its
// warp multiply them. How a warp multiplies is the Engine's: mma_gemm.h, fma_gemm.h.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/tile_output.h"

namespace tessera::device {

// An Engine has
//   ShapeA, ShapeB            the TileShapes of its tiles
//   kRegisters                that a thread needs for accumulators and fragments
//   multiply(a, b)            adds the product of the tiles at these addresses
//   put(tile)                 writes the accumulators to shared memory
template <class C, template <class> class Engine>
struct CpasyncGemm {
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using Math = Engine<C>;
  using ShapeA = typename Math::ShapeA;
  using ShapeB = typename Math::ShapeB;

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  using CopyA = TileCopy<A, ShapeA, C::kTileM, C::kTileK, C::kAKContiguous, kThreads>;
  using CopyB = TileCopy<B, ShapeB, C::kTileN, C::kTileK, C::kBKContiguous, kThreads>;
  using Output = TileOutput<C, kThreads>;

  static constexpr int kStageBytes = ShapeA::kBytes + ShapeB::kBytes;
  static constexpr int kSharedBytes = larger(C::kStages * kStageBytes, Output::kBytes);
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");
  static_assert(C::kStages >= 2, "a ring has at least 2 stages");

  // As many blocks a unit as shared memory and registers allow, at most 3.
  static constexpr int kSharedPerUnit = 233472;
  // Beyond 8 copies of a thread their addresses are kept, not worked out anew.
  static constexpr int kOtherRegisters = 40 + 12 * larger(0, CopyA::kCopies + CopyB::kCopies - 8);
  static constexpr int kFitShared = kSharedPerUnit / (kSharedBytes + 1024);
  static constexpr int kFitRegisters = 65536 / ((Math::kRegisters + kOtherRegisters) * kThreads);
  static constexpr int kMinBlocks = larger(1, smaller(3, smaller(kFitShared, kFitRegisters)));

  static __device__ __forceinline__ void run(const CudaGemmArguments& arguments) {
    extern __shared__ __align__(1024) char shared[];
    const GemmArguments& g = arguments.gemm;
    const TileOrder<C::kTileM, C::kTileN> order(g, arguments.raster_group);
#pragma unroll 1
    for (u64 index = blockIdx.x; index < order.total; index += gridDim.x) {
      const TileCorner corner = order.corner(index);
      Math math(threadIdx.x);
      accumulate(g, corner, address_in_shared(shared), math);
      Acc* tile = reinterpret_cast<Acc*>(shared);
      math.put(tile);
      __syncthreads();
      Output::store(g, corner, tile, threadIdx.x);
      __syncthreads();
    }
  }

 private:
  // Stage i of the ring is filled kStages - 1 turns before it is multiplied. One loop serves the
  // turns that only fill, those that do both, and those that only multiply.
  static __device__ __forceinline__ void accumulate(const GemmArguments& g,
                                                    const TileCorner& corner, u32 shared,
                                                    Math& math) {
    constexpr int kAhead = C::kStages - 1;
    const u32 thread = threadIdx.x;
    const OperandSize size_a = {C::kAKContiguous ? g.m : g.k, C::kAKContiguous ? g.k : g.m};
    const OperandSize size_b = {C::kBKContiguous ? g.n : g.k, C::kBKContiguous ? g.k : g.n};
    const bool in_array = g.pointer_arrays != 0;
    const A* const data_a = matrix_of<A>(g.a, g.batch_stride_a, corner.batch, in_array);
    const B* const data_b = matrix_of<B>(g.b, g.batch_stride_b, corner.batch, in_array);
    const Source a = source_of<A>(data_a, g.ld_a, size_a);
    const Source b = source_of<B>(data_b, g.ld_b, size_b);
    CopyA copy_a(a, corner.row, g.m, thread);
    CopyB copy_b(b, corner.column, g.n, thread);
    i64 k_left = g.k;
    u32 fill = 0;
    u32 use = 0;
    const i64 turns = (g.k + C::kTileK - 1) / C::kTileK + kAhead;
#pragma unroll 1
    for (i64 turn = 0; turn < turns; ++turn) {
      if (turn >= kAhead) {
        copies_wait<kAhead - 1>();
        __syncthreads();
      }
      if (k_left > 0) {
        const u32 stage = shared + fill * kStageBytes;
        copy_a.fetch(stage, k_left);
        copy_b.fetch(stage + ShapeA::kBytes, k_left);
        k_left -= C::kTileK;
        fill = fill + 1 == C::kStages ? 0 : fill + 1;
      }
      copies_commit();
      if (turn >= kAhead) {
        const u32 stage = shared + use * kStageBytes;
        math.multiply(stage, stage + ShapeA::kBytes);
        use = use + 1 == C::kStages ? 0 : use + 1;
      }
    }
    copies_wait<0>();
    __syncthreads();
  }
};

}  // namespace tessera::device
