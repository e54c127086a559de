// A team's ring of blocks of keys and values in shared memory.
#pragma once

#include "tessera/device/cuda/cpasync_tile.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

// Tokens of one head of a sequence; their elements are neighbours. Tokens that are no multiple of
// 16 bytes apart are moved element by element.
template <class T>
struct SplitTokens {
  const T* first;
  i64 stride;
  int hdim;

  __device__ __forceinline__ bool aligned() const {
    return ((reinterpret_cast<u64>(first) | static_cast<u64>(stride * sizeof(T))) & 15) == 0;
  }
};

// One thread's share of the copies of blocks of kKeys tokens of up to kHdim elements. What lies
// behind the last token or behind the end of a head arrives as zeros.
template <class T, int kKeys, int kHdim, int kThreads>
class SplitCopy {
 public:
  using Shape = TileShape<T, kKeys, kHdim, true>;

  __device__ __forceinline__ SplitCopy(const SplitTokens<T>& tokens, i64 keys, int thread)
      : from(tokens.first + thread / kChunks * tokens.stride + thread % kChunks * kPerChunk),
        stride(tokens.stride),
        left(static_cast<int>(keys) - thread / kChunks),
        elements(
            static_cast<int>(clamped(tokens.hdim - thread % kChunks * kPerChunk, 0, kPerChunk))),
        place(Shape::at(thread / kChunks, thread % kChunks)),
        is_aligned(tokens.aligned()) {}

  // Fetches the block whose first key is `key` to address `to`.
  __device__ __forceinline__ void fetch(u32 to, int key) const {
    if (!is_aligned) return fetch_elements(to, key);
    const T* const first = from + key * stride;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int bytes = key + i * kAtOnce < left ? elements * 2 : 0;
      copy_async<16>(to + place_of(i), first + i * kAtOnce * stride, bytes);
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

  __device__ __forceinline__ void fetch_elements(u32 to, int key) const {
#pragma unroll 1
    for (int i = 0; i < kCopies * kPerChunk; ++i) {
      const int token = i / kPerChunk * kAtOnce, element = i % kPerChunk;
      const bool exists = key + token < left && element < elements;
      const T* const p = from + (i64{key} + token) * stride + element;
      store_shared_half(to + place_of(i / kPerChunk) + 2 * element, exists ? p->bits : u16{0});
    }
  }

  const T* from;  // this thread's chunk of the first block
  i64 stride;
  int left;      // tokens from that one on
  int elements;  // of the chunk
  u32 place;
  bool is_aligned;
};

}  // namespace tessera::device
