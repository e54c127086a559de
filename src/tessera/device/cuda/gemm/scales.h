// Scales of blocks in device memory, as threads read them one by one.
#pragma once

#include "tessera/device/cuda/gemm/scaled_arguments.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// 2^(byte - 127); 255 is NaN.
__device__ __forceinline__ float scale_of_e8m0(u32 byte) {
  const u32 bits = byte == 0 ? 0x00400000U : byte == 255 ? 0x7fc00000U : byte << 23;
  return __uint_as_float(bits);
}

// The scales of a launch. Where rows of A are gathered, a row of the product has those of the row
// of A that `named` says, which is below `room`; what is no such number names no row.
struct LaunchScales {
  const CudaScales& scales;
  const int* named = nullptr;
  i64 room = 0;

  __device__ __forceinline__ i64 row_of_a(i64 row) const {
    if (named == nullptr) return row;
    const i64 found = named[row];
    return found >= 0 && found < room ? found : 0;
  }
};

// Where the scales of one product are: of a batch, or of a part of a group. Its first row of A and
// its first k have so many before them, from where blocks are counted.
struct ProductScales {
  LaunchScales all;
  i64 matrix, row, k;
};

// Those of the products of all groups.
template <Grouping kGrouping>
struct GroupScales {
  LaunchScales all;
  __device__ __forceinline__ ProductScales of(const GroupPart& part) const {
    constexpr bool kAlongK = kGrouping == Grouping::along_k;
    return {all, part.group, kAlongK ? 0 : part.begin, kAlongK ? part.begin : 0};
  }
};

// The scales of one batch of an operand whose blocks have kRows rows (0: it has no scales) by
// kDepth elements along k.
template <int kRows, int kDepth, bool kE8m0>
struct BlockScales {
  const CudaScale& scale;
  i64 offset;  // of the batch
  bool quads;

  __device__ __forceinline__ BlockScales(const CudaScale& of, i64 batch, bool in_quads)
      : scale(of), offset(batch * of.batch_stride), quads(in_quads) {}

  // The scale of the block that holds this row and k.
  __device__ __forceinline__ float at(i64 row, i64 k) const {
    if constexpr (kRows == 0) {
      return 1.0F;
    } else {
      const i64 block = k / kDepth;
      const i64 along_k = quads ? block / 4 * scale.stride_k + block % 4 : block * scale.stride_k;
      const i64 place = offset + row / kRows * scale.stride_rows + along_k;
      if constexpr (kE8m0) {
        return scale_of_e8m0(static_cast<const u8*>(scale.data)[place]);
      } else {
        return static_cast<const float*>(scale.data)[place];
      }
    }
  }
};

}  // namespace tessera::device
