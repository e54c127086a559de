// Keys of a cache's pages in a flash kernel: where the boxes of a block lie, and where its keys do.
#pragma once

#include "tessera/device/cuda/fmha/flash_block.h"
#include "tessera/device/cuda/fmha/flash_box.h"
#include "tessera/device/cuda/fragments.h"

namespace tessera::device {

// What a lane knows of its box of a block: its entry of page_table, and the first of its tokens in
// the page; below 0 where there is no such box. The entry is clamped when it is needed, so that it
// may still be on its way.
struct FlashBox {
  int entry, token;
  __device__ __forceinline__ bool is_there() const { return token >= 0; }
};

// Lane i has box i of the block whose first key is `first`.
__device__ __forceinline__ FlashBox find_box(const FmhaArguments& g, const FlashTile& tile,
                                             int first, int tokens, int keys, int lane) {
  const int key = first + lane * tokens;
  FlashBox box = {0, -1};
  if (first >= 0 && lane * tokens < keys && key < tile.keys) {
    const FmhaSlot slot = slot_of(g, key);
    box.entry = g.page_table[tile.first_key + slot.entry];
    box.token = static_cast<int>(slot.token);
  }
  return box;
}

// The keys of a block, all of which the sequence has. Each lane knows where some of them are, and
// tells the others. Tokens begin at multiples of 16 bytes.
template <class T, int kKeys>
class FlashPagedKeys {
  static constexpr int kOwn = kKeys / 32;
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  const FmhaArguments& g;
  const int lane;
  u32 places[kOwn];  // of keys lane, lane + 32, ..., in pieces of 16 bytes

  // Where key `i` + lane / 4 begins; `i` is a multiple of 8.
  __device__ __forceinline__ const T* key(int i) const {
    const u32 place = __shfl_sync(~0U, places[i / 32], i % 32 + lane / 4);
    return static_cast<const T*>(g.k) + u64{place} * kPiece;
  }

 public:
  __device__ __forceinline__ FlashPagedKeys(const FmhaArguments& arguments, const FlashTile& tile,
                                            i64 head, int first, int this_lane)
      : g(arguments), lane(this_lane) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const FmhaSlot slot = slot_of(g, first + i * 32 + lane);
      const i64 place = key_token(g, page_of(g, tile, slot.entry), head, slot.token);
      places[i] = static_cast<u32>(place / kPiece);
    }
  }

  // What the functions of these names do with keys at equal distances.
  template <int kHdim, int kCount, class LoadFragment>
  __device__ __forceinline__ void multiply_bytes_again(LoadFragment fragment,
                                                       float (&scores)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) scores[i] = 0;
#pragma unroll 1
    for (int element = 0; element < kHdim; element += 32) {
      u32 words[4];
      fragment(element / 32, words);
      const Operand<T> upper(Fragment{{words[0], words[2]}});
      const Operand<T> lower(Fragment{{words[1], words[3]}});
      const int from = element + lane % 4 * 4;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        const T* const at = key(i * 2) + from;
        Fragment bytes = {{0, 0}};
        if (element < g.hdim) bytes.chunk[0] = *reinterpret_cast<const u32*>(at);
        if (element + 16 < g.hdim) bytes.chunk[1] = *reinterpret_cast<const u32*>(at + 16);
        const Operand<T> b(bytes);
        float sums[4] = {scores[i], scores[i + 1], scores[i + 2], scores[i + 3]};
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          mma<fp16>(sums, upper.words[part], lower.words[part], b.words[part]);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i + e] = sums[e];
      }
    }
  }
  template <int kHdim, int kCount, class LoadFragment>
  __device__ __forceinline__ void multiply_again(LoadFragment fragment,
                                                 float (&scores)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) scores[i] = 0;
#pragma unroll 1
    for (int element = 0; element < kHdim; element += 16) {
      u32 words[4];
      fragment(element / 16, words);
      const u32 a[2] = {words[0], words[2]};
      const u32 low[2] = {words[1], words[3]};
      const int from = element + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        const T* const at = key(i * 2) + from;
        u32 b[2] = {0, 0};
        if (element < g.hdim) b[0] = *reinterpret_cast<const u32*>(at);
        if (element + 8 < g.hdim) b[1] = *reinterpret_cast<const u32*>(at + 8);
        float sums[4] = {scores[i], scores[i + 1], scores[i + 2], scores[i + 3]};
        mma<T>(sums, a, low, b);
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i + e] = sums[e];
      }
    }
  }
};

}  // namespace tessera::device
