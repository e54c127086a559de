// A team's ring of blocks of keys and values in shared memory.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// One thread's share of the copies of blocks of kKeys tokens of up to kHdim elements, which are
// neighbours. What lies behind the last token or behind the end of a head arrives as zeros. Tokens
// that do not begin at multiples of 16 bytes are moved element by element.
template <class T, int kKeys, int kHdim, int kThreads>
class SplitCopy {
 public:
  using Shape = TileShape<T, kKeys, kHdim, true>;
  static constexpr int kAtOnce = kThreads / Shape::kChunks;  // tokens
  static constexpr int kCopies = kKeys / kAtOnce;

  __device__ __forceinline__ SplitCopy(int hdim, i64 all_keys, int thread)
      : row(thread / kChunks),
        chunk(thread % kChunks * kPerChunk),
        keys(static_cast<int>(all_keys)),
        elements(static_cast<int>(clamped(hdim - chunk, 0, kPerChunk))),
        place(Shape::at(row, thread % kChunks)) {}

  // Fetches the block whose first key is `key` to address `to`. tokens.token(k) is the first
  // element of key k, and tokens have equal distances.
  template <class Tokens>
  __device__ __forceinline__ void fetch(u32 to, const Tokens& tokens, int key) const {
    if (!tokens.aligned()) return fetch_elements(to, tokens, key);
    const T* from = tokens.token(key + row) + chunk;
    const i64 step = tokens.token_stride * kAtOnce;
    const int left = keys - key - row;  // tokens from the first one on
    if (left > (kCopies - 1) * kAtOnce) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i, from += step) {
        copy_async<16>(to + place_of(i), from, elements * kSize);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i, from += step) {
      copy_async<16>(to + place_of(i), from, i * kAtOnce < left ? elements * kSize : 0);
    }
  }

  // Copy i of the block whose first key is `key`, of a token that begins at `token`, a multiple of
  // 16 bytes. It is the token number first_row() + i * kAtOnce of the block.
  __device__ __forceinline__ void fetch_token(u32 to, int i, int key, const T* token) const {
    const int bytes = key + row + i * kAtOnce < keys ? elements * kSize : 0;
    copy_async<16>(to + place_of(i), token + chunk, bytes);
  }
  __device__ __forceinline__ int first_row() const { return row; }

  template <class Tokens>
  __device__ __forceinline__ void fetch_elements(u32 to, const Tokens& tokens, int key) const {
#pragma unroll 1
    for (int i = 0; i < kCopies * kPerChunk; ++i) {
      const int token = key + row + i / kPerChunk * kAtOnce, element = i % kPerChunk;
      const bool exists = token < keys && element < elements;
      const u16 bits = exists ? u16{tokens.token(token)[chunk + element].bits} : u16{0};
      const u32 at = to + place_of(i / kPerChunk) + kSize * element;
      if constexpr (kSize == 1) {
        store_shared_byte(at, bits);
      } else {
        store_shared_half(at, bits);
      }
    }
  }

 private:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kPerChunk = Shape::kPerChunk;
  static constexpr int kChunks = Shape::kChunks;
  static_assert(kThreads % kChunks == 0 && kKeys % kAtOnce == 0, "threads share whole tokens");
  static_assert(kSize <= 2, "tensor cores multiply types of 2 bytes, or what is converted to them");

  // Copy i goes to the line i * kAtOnce behind the thread's first, a number without common bits.
  __device__ __forceinline__ u32 place_of(int i) const {
    return (place ^ Shape::way(i * kAtOnce) * 16) + i * kAtOnce * Shape::kLineBytes;
  }

  int row, chunk;  // of the block's first copy: its token and its element
  int keys;        // of the sequence
  int elements;    // of the chunk
  u32 place;
};

}  // namespace tessera::device
