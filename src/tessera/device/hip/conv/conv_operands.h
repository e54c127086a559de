// A convolution as the product that MfmaGemm makes (gemm/mfma_gemm.h): where its operands lie.
//   forward        rows: pixels of y, columns: its channels, depth: taps and channels of x
//   backward_data  rows: pixels of x, columns: its channels, depth: taps and channels of y
//   backward_weight  rows: channels of y, columns: taps and channels of x, depth: pixels of y
#pragma once

#include "tessera/device/conv.h"
#include "tessera/device/hip/conv/operand_filters.h"
#include "tessera/device/hip/conv/operand_pixels.h"
#include "tessera/device/hip/conv/operand_taps.h"
#include "tessera/device/hip/conv/repack_arguments.h"
#include "tessera/device/hip/gemm/mfma_gemm.h"

namespace tessera::device {

template <class C>
struct ConvOperands {
  using A = typename C::A;
  using B = typename C::B;
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr int kDims = C::kNdim == 3 ? 3 : 2;
  static constexpr int kThreads = 64 * C::kWaveM * C::kWaveN;
  static constexpr int kTurns = C::kPrefetch == 2 ? 2 : 1;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  // With kDirectToLds, which needs gfx950 here, all operands are copied to LDS.
  template <bool kFirst, class First, class Second>
  using Choose = typename If<kFirst, First, Second>::Type;
  static constexpr bool kCopies = C::kDirectToLds;
  static constexpr bool kTransposesA = !C::kAKContiguous, kTransposesB = !C::kBKContiguous;
  using LoadA =
      Choose<kWeight,
             Choose<kCopies, CopiedRowLoader<A, C::kTileM, C::kTileK, kThreads>,
                    RowLoader<A, C::kTileM, C::kTileK, kThreads, kTurns>>,
             PixelLoader<A, C::kTileM, C::kTileK, kThreads, kTurns, kCopies, C::kWholeTaps, kDims>>;
  using LoadB = Choose<
      kWeight,
      Choose<kCopies, CopiedTapLoader<B, C::kTileN, C::kTileK, kThreads, kDims>,
             TapLoader<B, C::kTileN, C::kTileK, kThreads, kTurns, C::kWholeTaps, kDims>>,
      Choose<kData,
             Choose<kCopies, CopiedFilterLoader<B, C::kTileN, C::kTileK, kThreads, kDims>,
                    FilterLoader<B, C::kTileN, C::kTileK, kThreads, kTurns, C::kWholeTaps, kDims>>,
             LineLoader<B, C::kTileN, C::kTileK, kThreads, kTurns, kCopies>>>;

  static constexpr int kMostParts = C::kRepack ? kHipRepackParts : kHipConvParts;
  static constexpr int kParts = kData ? kMostParts : 1;
  using Plain = HipConvArguments<kParts>;
  using Arguments = Choose<C::kRepack, HipRepackArguments<kParts>, Plain>;
  static __device__ __forceinline__ const HipGemmArguments& product(const Arguments& all) {
    if constexpr (C::kRepack) {
      return all.conv.product;
    } else {
      return all.product;
    }
  }
  static __device__ __forceinline__ const HipConvPart& part() {
    const Plain& all = fresh_arguments<Plain>();  // the first ones of all arguments
    if constexpr (kParts == 1) return all.parts[0];
    return all.parts[__builtin_amdgcn_workgroup_id_y()];
  }
  static __device__ __forceinline__ const HipConvPart& sizes(const GemmArguments&) {
    return part();
  }
  // Copied operands lie in the workspace, whose address the host does not know.
  template <int kOperand>
  static __device__ __forceinline__ u64 address_of(const void* data) {
    if constexpr (!C::kRepack) {
      return bits<u64>(data);
    } else {
      const Arguments& all = fresh_arguments<Arguments>();
      return bits<u64>(data) +
             (bits<u64>(all.conv.product.workspace) & static_cast<u64>(all.in_workspace[kOperand]));
    }
  }
  static __device__ __forceinline__ LoadA a(const GemmArguments& g, const HipTile& at, int k_first,
                                            int k, int thread) {
    const u64 image =
        uniform(address_of<0>(g.a) + static_cast<u64>(at.batch * g.batch_stride_a) * sizeof(A));
    if constexpr (kWeight && kCopies) {
      return LoadA(image, g.ld_a, static_cast<int>(g.m), k, at.row, k_first, thread);
    } else if constexpr (kWeight) {
      return LoadA({image, g.ld_a, static_cast<int>(g.m), k}, at.row, k_first, thread);
    } else {
      return LoadA(part(), image, part().m, at.row, k_first, k, thread);
    }
  }
  static __device__ __forceinline__ LoadB b(const GemmArguments& g, const HipTile& at, int k_first,
                                            int k, int thread) {
    const u64 filters =
        uniform(address_of<1>(g.b) + static_cast<u64>(at.batch * g.batch_stride_b) * sizeof(B));
    if constexpr (kData || kWeight) {
      return LoadB(part(), filters, static_cast<int>(g.n), at.column, k_first, k, thread);
    } else {
      return LoadB({filters, g.ld_b, static_cast<int>(g.n), k}, at.column, k_first, thread);
    }
  }
  // Pixels of a residue lie apart.
  static __device__ __forceinline__ i64 result_row(i64 row) {
    if constexpr (kData) {
      const HipConvPart& g = part();
      const GridPixel<kDims> pixel(g, static_cast<u32>(row));
      i64 at = g.result_first + pixel.image * g.result_image + i64{pixel.h} * g.result[kHeight] +
               i64{pixel.w} * g.result[kWidth];
      if constexpr (kDims == 3) at += i64{pixel.d} * g.result[kDepth];
      return at;
    } else {
      return row;
    }
  }

  // ---- results of any layout ----

  static constexpr bool kScattered = C::kRepack;
  // Where an element of the product lies; -1: nowhere.
  static __device__ __forceinline__ i64 result_place(i64 row, i64 column) {
    const HipConvResult& r = fresh_arguments<Arguments>().result;
    i64 place = 0;
    int row_group = -1, channel = static_cast<int>(column);
    if constexpr (kWeight) {
      const u32 number = static_cast<u32>(column) / static_cast<u32>(part().channels);
      const Tap<kDims> tap(part(), number);
      channel -= static_cast<int>(number) * part().channels;
      if (row >= r.rows) return -1;
      row_group = static_cast<int>(row) / r.rows_of_group;
      place = (row - row_group * r.rows_of_group) * r.row_stride + tap.z * r.place[kDepth] +
              tap.y * r.place[kHeight] + tap.x * r.place[kWidth];
    } else if constexpr (kData) {
      place = result_row(row);
    } else {
      const GridPixel<kDims> pixel(part(), static_cast<u32>(row));
      place = pixel.image * r.image + pixel.d * r.place[kDepth] + pixel.h * r.place[kHeight] +
              pixel.w * r.place[kWidth];
    }
    const int group = channel / r.of_group;
    if (channel >= r.channels || (kWeight && group != row_group)) return -1;
    return place + group * r.group_stride + (channel - group * r.of_group) * r.channel_stride;
  }
};

}  // namespace tessera::device
