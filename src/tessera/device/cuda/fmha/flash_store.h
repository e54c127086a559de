// The results of a flash kernel: from a consumer's registers to device memory.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/fmha/flash_block.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// A consumer's thread.
template <class C>
struct FlashStore {
  using Block = FlashBlock<C>;
  using T = typename C::Out;
  using Weight = typename Block::Weight;
  static constexpr FlashSizes kSizes = Block::kSizes;
  static constexpr int kSums = C::kHdimV / 2;

  const FlashArguments& a;
  const Block block;
  int group, warp, lane;

  // Each warp stores its rows by itself, through staging of its own; results that do not have 16
  // bits are stored by threads. Sums of 8 bits are to be multiplied by `unit`.
  __device__ __forceinline__ void store(const FlashTile& done, const FlashRows& its,
                                        const float (&sums)[kSums], float unit) const {
    const float nats = Block::kBends ? 1.0F : Block::kConverts ? 0.69314718056F : a.fmha.scale;
    float factor[2], lse[2];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float total = sum_of_row(its.total[x]);
      factor[x] = total == 0 ? 0.0F : reciprocal(total);
      if constexpr (Block::kConverts) {
        factor[x] = scaled_result<Block::kQscale, T>(a.fmha, factor[x] * unit);
      }
      if constexpr (C::kDropout) factor[x] *= dropout_scale(a.fmha);
      lse[x] = total == 0 ? minus_infinity()
                          : its.reference[x] * nats +
                                (__log2f(total) + FlashRange<Weight>::kShift) * 0.69314718056F;
    }
    const int row = done.row + warp * 16;
    const int queries = Block::Seen::queries_of(a, done);
    const int token = row + (Block::kEqual ? 0 : done.first_query);
    const int sequence = C::kLengths == FmhaLengths::packed ? 0 : done.batch;
    if (C::kLse && lane % 4 == 0) store_lse(done, row + lane / 4, lse);
    if constexpr (sizeof(T) != 2) {
      store_part(done, row + lane / 4, factor, sums);
    } else {
      if (!Block::kEqual && row < queries && row + kFlashStoredRows > queries) {
        return store_part(done, row + lane / 4, factor, sums);
      }
      const u32 staging = block.shared + kSizes.out + static_cast<u32>(group) * kSizes.out_bytes +
                          static_cast<u32>(warp) * kSizes.out_slabs * kFlashStoredRows * kLineBytes;
#pragma unroll
      for (int slab = 0; slab < C::kHdimV / kFlashSlab; slab += kSizes.out_slabs) {
        stores_wait_read<0>();  // only lane 0 has stores to wait for
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kSizes.out_slabs; ++i) {
          stage_slab(staging + i * kFlashStoredRows * kLineBytes, &sums[(slab + i) * 32], factor);
        }
        copy_engine_fence();
        __syncwarp();
        if (lane != 0 || row >= queries) continue;
#pragma unroll
        for (int i = 0; i < kSizes.out_slabs; ++i) {
          tma_store(TmaBox<4>{&a.out_map, {(slab + i) * kFlashSlab, token, done.head, sequence}},
                    staging + i * kFlashStoredRows * kLineBytes);
        }
        stores_commit();
      }
    }
  }

 private:
  __device__ __forceinline__ void store_lse(const FlashTile& done, int row,
                                            const float (&lse)[2]) const {
    const FmhaArguments& g = a.fmha;
    const int queries = Block::Seen::queries_of(a, done);
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
    const int queries = Block::Seen::queries_of(a, done);
    T* const to = static_cast<T*>(const_cast<void*>(g.out)) +
                  done.batch * g.out_stride[kTokenBatch] + done.head * g.out_stride[kTokenHead] +
                  (i64{done.first_query} + row) * g.out_stride[kToken];
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int column = i / 4 * 8 + lane % 4 * 2, x = i / 2 % 2;
      if (column >= g.hdim_v || row + 8 * x >= queries) continue;
      *reinterpret_cast<PairBits<T>*>(to + 8 * x * g.out_stride[kToken] + column) =
          round_output<T>(sums[i] * factor[x], sums[i + 1] * factor[x]);
    }
  }
  // 16 rows of 64 elements, from 32 sums of each lane.
  __device__ __forceinline__ void stage_slab(u32 to, const float* from,
                                             const float (&factor)[2]) const {
    const int row = lane % 16;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float* const f = from + i * 4;
      const u32 words[4] = {round_pair<T>(f[0] * factor[0], f[1] * factor[0]),
                            round_pair<T>(f[2] * factor[1], f[3] * factor[1]),
                            round_pair<T>(f[4] * factor[0], f[5] * factor[0]),
                            round_pair<T>(f[6] * factor[1], f[7] * factor[1])};
      store_matrices<false>(to + row * kLineBytes + (((i + lane / 16) ^ (row & 7)) << 4), words);
    }
  }
};

}  // namespace tessera::device
