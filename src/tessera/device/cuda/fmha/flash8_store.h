// The results of a flash kernel with products of 8 bits: from a consumer's registers to device
// memory.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/fmha/flash8_block.h"
#include "tessera/device/cuda/fmha/flash8_rows.h"

namespace tessera::device {

// A consumer's thread. Lines of turned values have an order of their own (flash8_turn.h): of 16
// columns a thread has four neighbours in each of its two rows, its sums 0, 4, 1, 5 of eight, and
// 2, 6, 3, 7.
template <class C>
struct Flash8Store {
  using Block = Flash8Block<C>;
  using Seen = FlashSeen<C>;
  using T = typename C::Out;
  static constexpr Flash8Sizes kSizes = Block::kSizes;
  static constexpr int kSums = C::kHdimV / 2;
  static constexpr int kSlabBytes = kFlashStoredRows * kLineBytes;

  const FlashArguments& a;
  const Block block;
  int group, warp, lane;

  // Each warp stores its rows by itself, through staging of its own; results that do not have 16
  // bits are stored by threads. Sums are to be multiplied by `unit`.
  __device__ __forceinline__ void store(const FlashTile& done, const Flash8Rows& its,
                                        const float (&sums)[kSums], float unit) const {
    float factor[2], lse[2];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float total = sum_of_row(its.total[x]);
      factor[x] = total == 0 ? 0.0F : reciprocal(total);
      factor[x] = scaled_result<C::kQscale, T>(a.fmha, factor[x] * unit);
      lse[x] = total == 0 ? minus_infinity() : (its.reference[x] + __log2f(total)) * 0.69314718056F;
    }
    const int row = done.row + warp * 16;
    if (C::kLse && lane % 4 == 0) store_lse(done, row + lane / 4, lse);
    const int queries = Seen::queries_of(a, done);
    const bool ends = !Block::kEqual && row < queries && row + kFlashStoredRows > queries;
    if (sizeof(T) != 2 || ends) return store_part(done, row + lane / 4, factor, sums);
    if constexpr (sizeof(T) == 2) store_whole(done, row, factor, sums);
  }

 private:
  __device__ __forceinline__ void store_whole(const FlashTile& done, int row,
                                              const float (&factor)[2],
                                              const float (&sums)[kSums]) const {
    const int token = row + (Block::kEqual ? 0 : done.first_query);
    const int sequence = C::kLengths == FmhaLengths::packed ? 0 : done.batch;
    const u32 staging = block.sums(group, warp);
#pragma unroll
    for (int slab = 0; slab < C::kHdimV / kFlashSlab; slab += kSizes.out_slabs) {
      stores_wait_read<0>();  // only lane 0 has stores to wait for
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kSizes.out_slabs; ++i) {
        stage_slab(staging + i * kSlabBytes, &sums[(slab + i) * 32], factor);
      }
      copy_engine_fence();
      __syncwarp();
      if (lane != 0 || row >= Seen::queries_of(a, done)) continue;
#pragma unroll
      for (int i = 0; i < kSizes.out_slabs; ++i) {
        tma_store(TmaBox<4>{&a.out_map, {(slab + i) * kFlashSlab, token, done.head, sequence}},
                  staging + i * kSlabBytes);
      }
      stores_commit();
    }
  }
  // 16 rows of 64 elements, from 32 sums of each lane.
  __device__ __forceinline__ void stage_slab(u32 to, const float* from,
                                             const float (&factor)[2]) const {
    const int row = lane / 4, thread = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const f = from + i * 8;
      const u32 at = to + row * kLineBytes + ((i * 2 + thread / 2 ^ row) << 4) + (thread % 2 << 3);
      store_words(at, round_pair<T>(f[0] * factor[0], f[4] * factor[0]),
                  round_pair<T>(f[1] * factor[0], f[5] * factor[0]));
      store_words(at + 8 * kLineBytes, round_pair<T>(f[2] * factor[1], f[6] * factor[1]),
                  round_pair<T>(f[3] * factor[1], f[7] * factor[1]));
    }
  }

  __device__ __forceinline__ void store_lse(const FlashTile& done, int row,
                                            const float (&lse)[2]) const {
    const FmhaArguments& g = a.fmha;
    const int queries = Seen::queries_of(a, done);
    float* const to = g.lse + done.batch * g.lse_stride[0] + done.head * g.lse_stride[1] +
                      (Block::kEqual ? 0 : done.first_query) * g.lse_stride[2];
    if (row < queries) to[row * g.lse_stride[2]] = lse[0];
    if (row + 8 < queries) to[(row + 8) * g.lse_stride[2]] = lse[1];
  }
  // The rows `row` and `row` + 8 of a sequence that ends between them or before: the copy engine
  // would write what lies behind. Or all rows of a tile, where threads store them.
  __device__ __forceinline__ void store_part(const FlashTile& done, int row,
                                             const float (&factor)[2],
                                             const float (&sums)[kSums]) const {
    const FmhaArguments& g = a.fmha;
    const int queries = Seen::queries_of(a, done);
    T* const to = static_cast<T*>(const_cast<void*>(g.out)) +
                  done.batch * g.out_stride[kTokenBatch] + done.head * g.out_stride[kTokenHead] +
                  (i64{done.first_query} + row) * g.out_stride[kToken];
#pragma unroll
    for (int i = 0; i < kSums; i += 8) {
      const int column = i * 2 + lane % 4 * 4;
      if (column >= g.hdim_v) continue;
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        if (row + 8 * x >= queries) continue;
        const float* const f = &sums[i + 2 * x];
        struct alignas(4 * sizeof(T)) Four {
          PairBits<T> low, high;
        };
        *reinterpret_cast<Four*>(to + 8 * x * g.out_stride[kToken] + column) =
            Four{round_output<T>(f[0] * factor[x], f[4] * factor[x]),
                 round_output<T>(f[1] * factor[x], f[5] * factor[x])};
      }
    }
  }
};

}  // namespace tessera::device
