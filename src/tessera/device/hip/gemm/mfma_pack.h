// Preshuffle: the entry that packs B once for many launches of an MFMA kernel.
#pragma once

#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/device/hip/operand_packed.h"

namespace tessera::device {

// The packed B: [batch][tile of n][tile of k], each tile as in LDS. One batch when all batches
// share B.
template <class C>
struct HipPackedB {
  using B = typename C::B;
  using Packing = OperandPacking<B, C::kTileN, C::kTileK, C::kBKContiguous>;
  static constexpr int kThreads = 256;  // threads of a workgroup of the packing kernel

  // The packing kernel. It works with any number of workgroups, which `blocks` tells.
  static __device__ __forceinline__ void pack(const HipGemmArguments& arguments, void* packed) {
    const GemmArguments& g = arguments.gemm;
    const i64 batches = g.batch_stride_b == 0 ? 1 : g.batch;
    const i64 first = i64{__builtin_amdgcn_workgroup_id_x()} * kThreads +
                      static_cast<int>(__builtin_amdgcn_workitem_id_x());
    Packing::pack({static_cast<const B*>(g.b), g.ld_b, g.batch_stride_b, g.n, g.k, batches}, packed,
                  first, i64{arguments.blocks} * kThreads);
  }

  // The tiles of a batch, for the loader.
  static __device__ __forceinline__ const void* of_batch(const GemmArguments& g, i64 batch) {
    const i64 tiles = Packing::row_tiles(g.n) * Packing::k_tiles(g.k);
    const i64 before = g.batch_stride_b == 0 ? 0 : batch * tiles;
    return static_cast<const char*>(g.b) + before * Packing::Tile::kBytes;
  }
};

}  // namespace tessera::device
