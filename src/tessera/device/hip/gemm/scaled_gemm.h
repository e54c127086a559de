// The general kernel on operands with scales of blocks: each element takes its scale when it is
// loaded, as fp32. Config has also kScaleRowsA, kScaleA (elements along k, 0: A has no scales),
// kScaleRowsB, kScaleB and kScaleBytes (e8m0 instead of fp32).
#pragma once

#include "tessera/device/hip/gemm/general_gemm.h"
#include "tessera/device/hip/gemm/grouped_gemm.h"
#include "tessera/device/hip/gemm/product_arguments.h"

namespace tessera::device {

// The row of an operand in memory that a row of the product is.
struct OwnRows {
  __device__ __forceinline__ i64 row(i64 of_product) const { return of_product; }
};
struct GatheredRows {
  const OutputArguments& o;
  __device__ __forceinline__ i64 row(i64 of_product) const { return named_row(o, of_product); }
};

// Where the first element of a tile lies in its operand, from where on blocks are counted.
struct ScaledPlace {
  i64 matrix, row, k;
};

// The scales of a tile's elements.
template <int kRows, int kAlongK, bool kBytes, class Rows>
struct TileScales {
  using Element = typename If<kBytes, u8, u32>::Type;

  const ScaleView& v;
  Global<Element> data;
  ScaledPlace from;
  Rows rows;

  __device__ __forceinline__ TileScales(const ScaleView& view, const ScaledPlace& place,
                                        const Rows& named)
      : v(view),
        data((Global<Element>)view.data + place.matrix * view.batch_stride),
        from(place),
        rows(named) {}

  // The scale of a row in memory, at a k of its product.
  __device__ __forceinline__ u32 word(i64 row, i64 k) const {
    const i64 block = (from.k + k) / kAlongK;
    const i64 along = v.quads != 0 ? block / 4 * v.stride_k + block % 4 : block * v.stride_k;
    return data[row / kRows * v.stride_rows + along];
  }
  // An element of a row of the tile. A row of no index has no scale.
  __device__ __forceinline__ float apply(float value, int tile_row, i64 k) const {
    const i64 row = rows.row(from.row + tile_row);
    if (row < 0) return value;
    const u32 word = this->word(row, k);
    if constexpr (!kBytes) return value * bits<float>(word);
    const u32 power = word == 0 ? 0x00400000U : word == 255 ? 0x7fc00000U : word << 23;
    return value * bits<float>(power);
  }
};
template <int kRows, bool kBytes, class Rows>
struct TileScales<kRows, 0, kBytes, Rows> {
  __device__ __forceinline__ TileScales(const ScaleView&, const ScaledPlace&, const Rows&) {}
  __device__ __forceinline__ float apply(float value, int, i64) const { return value; }
};

template <class C>
struct BlockScales {
  static constexpr bool kGathers = gathers_rows<C>();
  static constexpr Grouping kGrouping = grouping_of<C>();
  using Rows = typename If<kGathers, GatheredRows, OwnRows>::Type;
  using A = TileScales<C::kScaleRowsA, C::kScaleA, C::kScaleBytes, Rows>;
  using B = TileScales<C::kScaleRowsB, C::kScaleB, C::kScaleBytes, OwnRows>;

  template <class Part>
  static __device__ __forceinline__ A a(const Part& part, i64 batch, i64 row) {
    const auto& x = fresh_arguments<ScaledProduct<C>>();
    const ScaledPlace from = place(part, batch, row, true);
    if constexpr (kGathers) {
      return A(x.a, from, {fresh_arguments<HipOutputs<ScaledProduct<C>>>().outputs});
    } else {
      return A(x.a, from, {});
    }
  }
  template <class Part>
  static __device__ __forceinline__ B b(const Part& part, i64 batch, i64 column) {
    return B(fresh_arguments<ScaledProduct<C>>().b, place(part, batch, column, false), {});
  }

 private:
  // Groups begin anywhere along k, or among the rows of A.
  template <class Part>
  static __device__ __forceinline__ ScaledPlace place(const Part& part, i64 batch, i64 row,
                                                      bool is_a) {
    if constexpr (kGrouping == Grouping::none) {
      return {batch, row, 0};
    } else if constexpr (kGrouping == Grouping::along_k) {
      return {part.group, row, part.begin};
    } else {
      return {part.group, is_a ? part.begin + row : row, 0};
    }
  }
};

template <class C>
using ScalesOf = typename If<is_scaled<C>(), BlockScales<C>, NoScales>::Type;
template <class C>
using ScaledGemm =
    GeneralGemm<C, typename If<has_groups<C>(), HipGroups<C>, NoGroups>::Type, BlockScales<C>>;

}  // namespace tessera::device
