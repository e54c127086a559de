// A kernel of the blocked GEMM whose register blocks are tiles of Intel AMX.
#pragma once

#include "tessera/device/cpu/gemm/packed_kernel.h"
#include "tessera/device/cpu/tile_block.h"

namespace tessera::device {

template <>
inline constexpr int kWordsAtOnce<MathTilesInt8> = kTileWords;
template <>
inline constexpr int kWordsAtOnce<MathTilesBf16> = kTileWords;
template <>
inline constexpr int kMostSums<MathTilesInt8> = kTileBlock* kTileBlock;
template <>
inline constexpr int kMostSums<MathTilesBf16> = kTileBlock* kTileBlock;

template <class C>
struct TileKernel : PackedEntries<C, TileKernel<C>> {
  using A = typename C::A;
  using B = typename C::B;
  using Math = typename C::Math;
  using Types = OperandTypes<A, B, Math, C::kAKContiguous, C::kBKContiguous>;

  static_assert(C::kWarpTileM == kTileBlock && C::kWarpTileN == kTileBlock,
                "a register block has two tiles down and two across");
  static_assert(C::kTileK % (kTileWords * Math::kPerWord) == 0,
                "tile_k must be a multiple of warp_tile_k");
  static_assert(C::kPackA && C::kPackB, "both operands are packed into tiles");

  static constexpr PackedShape<Types> shape() {
    PackedShape<Types> s = configured_shape<C, Types>();
    s.multiply = multiply_tiles<Math>;
    s.pack_a = pack_a_tiles<A, Math, C::kAKContiguous>;
    s.pack_b = pack_b_tiles<B, Math, C::kBKContiguous>;
    return s;
  }
  static constexpr PackedShape<Types> kShape = shape();

  static void run_shape(const void* arguments, const CpuThread& thread) {
    Tiles::configure();
    packed_run(kShape, arguments, thread);
    Tiles::release();
  }
};

}  // namespace tessera::device
