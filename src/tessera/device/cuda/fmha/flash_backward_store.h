// dk and dv of a flash kernel of gradients: from a consumer's registers to device memory.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_block.h"

namespace tessera::device {

// Transposes words among the four lanes of a quad: lane q of it then has word q of each lane.
__device__ __forceinline__ void transpose_quad(u32 (&words)[4], int lane) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool is_upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const u32 sent = is_upper ? words[i] : words[i + distance];
      const u32 came = __shfl_xor_sync(~0U, sent, distance);
      words[i] = is_upper ? came : words[i];
      words[i + distance] = is_upper ? words[i + distance] : came;
    }
  }
}

// A consumer's thread.
template <class C>
struct FlashBackwardStore {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  static constexpr int kSums = C::kTileK / 2;
  static constexpr int kSlabs = C::kTileK / kFlashSlab;
  static constexpr int kSliceBytes = kFlashStoredRows * kLineBytes;

  const FlashBackwardArguments& a;
  const Block block;
  int group, warp, lane;
  FlashItem item;

  // Each warp stores its 16 keys by itself, through staging of its own.
  __device__ __forceinline__ void store(const CudaTensorMap* map, void* base,
                                        const i64 (&stride)[kTokenStrides], i64 hdim, float by,
                                        const float (&sums)[kSums]) const {
    const int key = item.key + group * kWgmmaRows + warp * kFlashStoredRows;
    const int keys = Block::keys_of(a, item);
    if (!Block::kEqual && key < keys && key + kFlashStoredRows > keys) {
      return store_part(base, stride, static_cast<int>(hdim), key, by, sums);
    }
    const int batch = C::kLengths == FmhaLengths::packed ? 0 : item.batch;
    const u32 staging = block.shared + Block::kSizes.out +
                        static_cast<u32>((group * 4 + warp) * kSlabs) * kSliceBytes;
    stores_wait_read<0>();  // only lane 0 has stores to wait for
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) stage_slab(staging + i * kSliceBytes, &sums[i * 32], by);
    copy_engine_fence();
    __syncwarp();
    if (lane != 0 || key >= keys) return;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) {
      tma_store(TmaBox<4>{map, {i * kFlashSlab, item.first_key + key, item.head, batch}},
                staging + i * kSliceBytes);
    }
    stores_commit();
  }

 private:
  // 16 keys of a sequence that ends among them: the copy engine would write what lies behind.
  __device__ __forceinline__ void store_part(void* base, const i64 (&stride)[kTokenStrides],
                                             int hdim, int key, float by,
                                             const float (&sums)[kSums]) const {
    const int row = key + lane / 4, left = item.keys - row;
    T* const to = static_cast<T*>(base) + item.batch * stride[kTokenBatch] +
                  item.head * stride[kTokenHead] + (i64{item.first_key} + row) * stride[kToken];
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int column = i / 4 * 8 + lane % 4 * 2, x = i / 2 % 2;
      if (column >= hdim || 8 * x >= left) continue;
      *reinterpret_cast<u32*>(to + 8 * x * stride[kToken] + column) =
          round_pair<T>(sums[i] * by, sums[i + 1] * by);
    }
  }
  // 16 keys of 64 elements, from 32 sums of each lane.
  __device__ __forceinline__ void stage_slab(u32 to, const float* from, float by) const {
    const int row = lane % 16;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float* const f = from + i * 4;
      const u32 words[4] = {
          round_pair<T>(f[0] * by, f[1] * by), round_pair<T>(f[2] * by, f[3] * by),
          round_pair<T>(f[4] * by, f[5] * by), round_pair<T>(f[6] * by, f[7] * by)};
      store_matrices<false>(to + row * kLineBytes + (((i + lane / 16) ^ (row & 7)) << 4), words);
    }
  }
};

}  // namespace tessera::device
