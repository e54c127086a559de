// The general kernel on operands with scales of blocks: each element takes its scale when it is
// loaded, as fp32. Config has also kScaleRowsA, kScaleA (elements along k, 0: A has no scales),
// kScaleRowsB, kScaleB and kScaleBytes (e8m0 instead of fp32).
#pragma once

#include "tessera/device/hip/gemm/general_gemm.h"
#include "tessera/device/hip/gemm/scaled_arguments.h"

namespace tessera::device {

// The scales of an operand's tile, which begins at `row` and `k`.
template <int kRows, int kAlongK, bool kBytes>
struct TileScales {
  using Element = typename If<kBytes, u8, u32>::Type;

  const ScaleView& v;
  Global<Element> data;
  i64 row, k;

  __device__ __forceinline__ TileScales(const ScaleView& view, i64 batch, i64 first_row,
                                        i64 first_k)
      : v(view),
        data((Global<Element>)view.data + batch * view.batch_stride),
        row(first_row),
        k(first_k) {}

  __device__ __forceinline__ float apply(float value, int tile_row, int depth) const {
    const i64 block = (k + depth) / kAlongK;
    const i64 along = v.quads != 0 ? block / 4 * v.stride_k + block % 4 : block * v.stride_k;
    const u32 word = data[(row + tile_row) / kRows * v.stride_rows + along];
    if constexpr (!kBytes) return value * bits<float>(word);
    const u32 power = word == 0 ? 0x00400000U : word == 255 ? 0x7fc00000U : word << 23;
    return value * bits<float>(power);
  }
};
template <int kRows, bool kBytes>
struct TileScales<kRows, 0, kBytes> {
  __device__ __forceinline__ TileScales(const ScaleView&, i64, i64, i64) {}
  __device__ __forceinline__ float apply(float value, int, int) const { return value; }
};

template <class C>
struct BlockScales {
  using Arguments = HipScaledArguments;
  using A = TileScales<C::kScaleRowsA, C::kScaleA, C::kScaleBytes>;
  using B = TileScales<C::kScaleRowsB, C::kScaleB, C::kScaleBytes>;
  static __device__ __forceinline__ const HipGemmArguments& base(const Arguments& x) {
    return x.base;
  }
  static __device__ __forceinline__ A a(const Arguments& x, i64 batch, i64 row, i64 k) {
    return A(x.a, batch, row, k);
  }
  static __device__ __forceinline__ B b(const Arguments& x, i64 batch, i64 column, i64 k) {
    return B(x.b, batch, column, k);
  }
};

template <class C>
using ScaledGemm = GeneralGemm<C, NoGroups, BlockScales<C>>;

}  // namespace tessera::device
