// The operands of GEMM's main loop (mfma_gemm.h): where those of a tile lie and how they get to
// LDS.
#pragma once

#include "tessera/device/hip/gemm/mfma_pack.h"
#include "tessera/device/hip/operand_copied.h"
#include "tessera/device/hip/operand_lines.h"
#include "tessera/device/hip/operand_rows.h"
#include "tessera/device/hip/tile_order.h"

namespace tessera::device {

// A convolution has operands of its own.
template <class C>
struct GemmOperands {
  using A = typename C::A;
  using B = typename C::B;
  static constexpr int kThreads = kLanes * C::kWaveM * C::kWaveN;
  static constexpr int kTurns = C::kPrefetch == 2 ? 2 : 1;  // as MfmaGemm's
  // Whether lanes transpose the operand in registers.
  static constexpr bool kTransposesA = !C::kAKContiguous && !C::kDirectToLds;
  static constexpr bool kTransposesB = !C::kBKContiguous && !C::kPreshuffled && !C::kDirectToLds;
  template <class T, int kRows, bool kKContiguous>
  using Loader =
      typename If<kKContiguous, LineLoader<T, kRows, C::kTileK, kThreads, kTurns, C::kDirectToLds>,
                  typename If<C::kDirectToLds, AnyRowLoader<T, kRows, C::kTileK, kThreads>,
                              RowLoader<T, kRows, C::kTileK, kThreads, kTurns>>::Type>::Type;
  using LoadA = Loader<A, C::kTileM, C::kAKContiguous>;
  using LoadB =
      typename If<C::kPreshuffled, PackedLoader<B, C::kTileN, C::kTileK, kThreads, kTurns>,
                  Loader<B, C::kTileN, C::kBKContiguous>>::Type;

  static __device__ __forceinline__ HipOperand operand(const void* data, i64 ld, i64 rows, i64 k) {
    return {uniform(bits<u64>(data)), ld, static_cast<int>(rows), static_cast<int>(k)};
  }
  // The loaders of the tile from k_first on; k is where the slice ends.
  static __device__ __forceinline__ LoadA a(const GemmArguments& g, const HipTile& at, int k_first,
                                            int k, int thread) {
    const void* const data = matrix_of<A>(g.a, g.batch_stride_a, at.batch, g.pointer_arrays != 0);
    return LoadA(operand(data, g.ld_a, g.m, k), at.row, k_first, thread);
  }
  static __device__ __forceinline__ LoadB b(const GemmArguments& g, const HipTile& at, int k_first,
                                            int k, int thread) {
    const void* data;
    if constexpr (C::kPreshuffled) {
      data = HipPackedB<C>::of_batch(g, at.batch);
    } else {
      data = matrix_of<B>(g.b, g.batch_stride_b, at.batch, g.pointer_arrays != 0);
    }
    const i64 ld = C::kPreshuffled ? (g.k + C::kTileK - 1) / C::kTileK : g.ld_b;
    return LoadB(operand(data, ld, g.n, k), at.column, k_first, thread);
  }
  // m, n, k and batch of the product that the workgroup computes a tile of.
  static __device__ __forceinline__ const GemmArguments& sizes(const GemmArguments& g) { return g; }
  // The row of the output that a row of the product is.
  static __device__ __forceinline__ i64 result_row(i64 row) { return row; }
};

}  // namespace tessera::device
