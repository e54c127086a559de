// Preshuffle: B is copied once into the order in which a kernel reads it: tile after tile, each in
// the layout of shared memory, so that one bulk copy loads a stage's B.
#pragma once

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// The packed B: [batch][tile of n][tile of k], each tile is an OperandTile with k contiguous, for
// any layout of B. Elements past the edges of B are zero.
template <class C>
struct PackedB {
  using B = typename C::B;
  static constexpr int kTileRows = C::kSwapAb ? C::kTileM : C::kTileN;
  using Tile = OperandTile<B, kTileRows, C::kTileK, true>;
  static constexpr int kThreads = 256;  // threads of a block of the packing kernel
  static constexpr int kPiece = 16;     // bytes that one thread writes at a time
  static constexpr int kPerPiece = kPiece / static_cast<int>(sizeof(B));

  static __device__ __forceinline__ i64 row_tiles(const GemmArguments& g) {
    return (g.n + kTileRows - 1) / kTileRows;
  }
  static __device__ __forceinline__ i64 k_tiles(const GemmArguments& g) {
    return (g.k + C::kTileK - 1) / C::kTileK;
  }

  // The tiles of a row. Clusters at the edge also ask for rows of tiles past the last one; they get
  // the last one, and their results are not stored.
  static __device__ __forceinline__ const char* tiles_at(const GemmArguments& g, i64 row,
                                                         i64 batch) {
    const i64 last = row_tiles(g) - 1;
    const i64 tile = row / kTileRows;
    const i64 before = batch * (last + 1) + (tile < last ? tile : last);
    return static_cast<const char*>(g.b) + before * k_tiles(g) * Tile::kBytes;
  }

  // The packing kernel. It works with any grid.
  static __device__ __forceinline__ void pack(const CudaGemmArguments& arguments, void* packed) {
    const GemmArguments& g = arguments.gemm;
    const i64 batches = g.batch_stride_b == 0 ? 1 : g.batch;
    const i64 pieces = batches * row_tiles(g) * k_tiles(g) * (Tile::kBytes / kPiece);
    const i64 step = i64{gridDim.x} * blockDim.x;
    for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < pieces; i += step) {
      write_piece(g, i, static_cast<char*>(packed) + i * kPiece);
    }
  }

  static __device__ __forceinline__ void write_piece(const GemmArguments& g, i64 index, char* to) {
    constexpr int kPieces = Tile::kBytes / kPiece;
    const i64 tile = index / kPieces;
    const int within = static_cast<int>(index % kPieces) * kPiece;
    const int line = within % Tile::kSlabBytes / kLineBytes;
    const int column = within % kLineBytes / kPiece ^ line % 8;
    const i64 row = tile / k_tiles(g) % row_tiles(g) * kTileRows + line;
    const i64 k = tile % k_tiles(g) * C::kTileK + within / Tile::kSlabBytes * Tile::kPerLine +
                  column * kPerPiece;
    const B* b = static_cast<const B*>(g.b) + tile / k_tiles(g) / row_tiles(g) * g.batch_stride_b;
    B piece[kPerPiece] = {};
#pragma unroll
    for (int i = 0; i < kPerPiece; ++i) {
      if (row >= g.n || k + i >= g.k) continue;
      const i64 at = C::kBKContiguous ? row * g.ld_b + k + i : (k + i) * g.ld_b + row;
      piece[i] = as_multiplied(b[at]);
    }
#pragma unroll
    for (int i = 0; i < kPerPiece; ++i) reinterpret_cast<B*>(to)[i] = piece[i];
  }

  // wgmma drops the low bits of tf32, so they are rounded here, as the copy engine does.
  template <class T>
  static __device__ __forceinline__ T as_multiplied(T x) {
    return x;
  }
  static __device__ __forceinline__ tf32 as_multiplied(tf32 x) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x.bits) : "f"(__uint_as_float(x.bits)));
    return x;
  }
};

}  // namespace tessera::device
