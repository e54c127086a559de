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

  __device__ __forceinline__ SplitCopy(int hdim, i64 all_keys, int thread)
      : row(thread / kChunks),
        chunk(thread % kChunks * kPerChunk),
        keys(static_cast<int>(all_keys)),
        elements(static_cast<int>(clamped(hdim - chunk, 0, kPerChunk))),
        place(Shape::at(row, thread % kChunks)) {}

  // Fetches the block whose first key is `key` to address `to`. tokens.token(k) is the first
  // element of key k.
  template <class Tokens>
  __device__ __forceinline__ void fetch(u32 to, const Tokens& tokens, int key) const {
    if (!tokens.aligned()) return fetch_elements(to, tokens, key);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int token = key + row + i * kAtOnce;
      const int bytes = token < keys ? elements * 2 : 0;
      copy_async<16>(to + place_of(i), tokens.token(token) + chunk, bytes);
    }
  }

 private:
  static constexpr int kPerChunk = Shape::kPerChunk;
  static constexpr int kChunks = Shape::kChunks;
  static constexpr int kAtOnce = kThreads / kChunks;  // tokens
  static constexpr int kCopies = kKeys / kAtOnce;
  static_assert(kThreads % kChunks == 0 && kKeys % kAtOnce == 0, "threads share whole tokens");
  static_assert(sizeof(T) == 2, "tensor cores multiply types of 2 bytes");

  // Copy i goes to the line i * kAtOnce behind the thread's first, a number without common bits.
  __device__ __forceinline__ u32 place_of(int i) const {
    return (place ^ Shape::way(i * kAtOnce) * 16) + i * kAtOnce * Shape::kLineBytes;
  }

  template <class Tokens>
  __device__ __forceinline__ void fetch_elements(u32 to, const Tokens& tokens, int key) const {
#pragma unroll 1
    for (int i = 0; i < kCopies * kPerChunk; ++i) {
      const int token = key + row + i / kPerChunk * kAtOnce, element = i % kPerChunk;
      const bool exists = token < keys && element < elements;
      const u16 bits = exists ? tokens.token(token)[chunk + element].bits : u16{0};
      store_shared_half(to + place_of(i / kPerChunk) + 2 * element, bits);
    }
  }

  int row, chunk;  // of the block's first copy: its token and its element
  int keys;        // of the sequence
  int elements;    // of the chunk
  u32 place;
};

}  // namespace tessera::device
