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

// A consumer's thread, and the consumer's keys of the item: from `own` on.
template <class C>
struct FlashBackwardStore {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  static constexpr int kSliceBytes = kFlashStoredRows * kLineBytes;
  static constexpr int kTogether = Block::kSizes.out_bytes / kSliceBytes;  // slabs

  const FlashBackwardArguments& a;
  const Block block;
  int own, staging_index, warp, lane;
  FlashItem item;

  // Each warp stores its 16 keys by itself, through staging of its own: slabs from `first` on.
  template <int kSums>
  __device__ __forceinline__ void store(const CudaTensorMap* map, void* base,
                                        const i64 (&stride)[kTokenStrides], i64 hdim, int first,
                                        float by, const float (&sums)[kSums]) const {
    constexpr int kSlabs = kSums / 32;
    const int key = item.key + own + warp * kFlashStoredRows;
    const int keys = Block::keys_of(a, item);
    if (!Block::kEqual && key < keys && key + kFlashStoredRows > keys) {
      return store_part(base, stride, static_cast<int>(hdim), first, key, by, sums);
    }
    const int batch = C::kLengths == FmhaLengths::packed ? 0 : item.batch;
    const u32 staging = block.shared + Block::kSizes.out +
                        static_cast<u32>(staging_index * 4 + warp) * Block::kSizes.out_bytes;
#pragma unroll
    for (int slab = 0; slab < kSlabs; slab += kTogether) {
      stores_wait_read<0>();  // only lane 0 has stores to wait for
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kTogether && slab + i < kSlabs; ++i) {
        stage_slab(staging + i * kSliceBytes, &sums[(slab + i) * 32], by);
      }
      copy_engine_fence();
      __syncwarp();
      if (lane != 0 || key >= keys) continue;
#pragma unroll
      for (int i = 0; i < kTogether && slab + i < kSlabs; ++i) {
        const int element = (first + slab + i) * kFlashSlab;
        tma_store(TmaBox<4>{map, {element, item.first_key + key, item.head, batch}},
                  staging + i * kSliceBytes);
      }
      stores_commit();
    }
  }

  // Keeps the sums of an item, one of several that have the same keys: parts from `part` on.
  template <int kSums>
  __device__ __forceinline__ void keep(int part, const float (&sums)[kSums]) const {
    float* const to =
        Block::slice_of(a, item.number - 1) + part * kFlashPartFloats + (warp * 32 + lane) * 4;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const float four[4] = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
      store_global(to + i * kGroupThreads, four);
    }
  }

 private:
  // 16 keys of a sequence that ends among them: the copy engine would write what lies behind.
  template <int kSums>
  __device__ __forceinline__ void store_part(void* base, const i64 (&stride)[kTokenStrides],
                                             int hdim, int first, int key, float by,
                                             const float (&sums)[kSums]) const {
    const int row = key + lane / 4, left = item.keys - row;
    T* const to = static_cast<T*>(base) + item.batch * stride[kTokenBatch] +
                  item.head * stride[kTokenHead] + (i64{item.first_key} + row) * stride[kToken];
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int column = first * kFlashSlab + i / 4 * 8 + lane % 4 * 2, x = i / 2 % 2;
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
