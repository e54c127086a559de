// One head of one sequence in memory: tokens that begin `pitch` bytes apart, each with `size`
// elements that exist. A buffer ends behind the last token, so tokens past it read zeros.
#pragma once

#include "tessera/device/hip/lds_tile.h"
#include "tessera/device/hip/transposed_tile.h"

namespace tessera::device {

struct HeadRows {
  u64 address;  // of token 0
  int pitch;    // bytes; a multiple of 16
  int tokens;
  int bytes;  // of a token that exist; a multiple of 16

  // The compiler would keep all multiples of the pitch in scalar registers.
  __device__ __forceinline__ int fresh_pitch() const {
    int fresh = pitch;
    asm volatile("" : "+s"(fresh));
    return fresh;
  }

  // The buffer of at most kTokens tokens from one on. They span less than 2^31 bytes.
  template <int kTokens>
  __device__ __forceinline__ Chunk from(int token) const {
    const int left = tokens - token;
    const int last = (left < kTokens ? left : kTokens) - 1;
    const int size = left > 0 ? last * pitch + bytes : 0;
    const u64 at = address + static_cast<u64>(i64{token} * pitch);
    return Chunk{static_cast<u32>(at), static_cast<u32>(at >> 32) & 0xffffU, static_cast<u32>(size),
                 kBufferWord};
  }
};

__device__ Vec<u32, 2> raw_buffer_load_8(Chunk buffer, int offset, int scalar,
                                         int flags) __asm("llvm.amdgcn.raw.buffer.load.v2i32");

template <int kBytes>
__device__ __forceinline__ Vec<u32, kBytes / 4> load_buffer(Chunk buffer, int offset) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) return raw_buffer_load_16(buffer, offset, 0, 0);
  if constexpr (kBytes == 8) return raw_buffer_load_8(buffer, offset, 0, 0);
  if constexpr (kBytes == 4) return Vec<u32, 1>(raw_buffer_load_4(buffer, offset, 0, 0));
}

// Brings tiles of tokens to LDS as they lie in memory, elements of a token together; Tile says
// where a chunk goes. With kCopies (gfx950) they are copied, 16 bytes a lane, otherwise they go by
// registers.
template <class Tile, int kTokens, int kChunks, int kThreads, bool kCopies>
class TokenLoader {
  static constexpr int kAll = kTokens * kChunks;

 public:
  static constexpr int kLoads = kAll / kThreads;
  static_assert(kAll % kThreads == 0, "threads move whole tiles");
  struct Staged {
    Chunk chunks[kLoads];
  };

  __device__ __forceinline__ TokenLoader(const HeadRows& r, int thread_index)
      : rows(r), thread(thread_index) {
    if constexpr (kCopies) {
#pragma unroll
      for (int i = 0; i < kKept; ++i) offset[i] = copied_offset(i);
      step = kKept * kRowsAtOnce * rows.pitch;
    } else {
      offset[0] = offset_of(thread / kChunks, thread % kChunks);
    }
  }

  // ---- by registers ----

  __device__ __forceinline__ void fetch(Staged& to, int token) const {
    fetch(to, rows.template from<kTokens>(token));
  }
  // The same of a buffer that begins at the tile's first token.
  __device__ __forceinline__ void fetch(Staged& to, const Chunk& buffer) const {
    static_assert(!kCopies && kThreads % kChunks == 0);
    const int further_down = kRowsAtOnce * rows.fresh_pitch();
    const int from = not_ahead(offset[0]);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      to.chunks[i] = raw_buffer_load_16(buffer, further(from, i * further_down), 0, 0);
    }
  }
  __device__ __forceinline__ void put(Shared* tile, const Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Tile::offset(thread / kChunks, thread % kChunks, i * kRowsAtOnce, 0);
      store_shared(tile + at, from.chunks[i]);
    }
  }

  // ---- by copies ----

  __device__ __forceinline__ void copy(Shared* tile, int token, int wave) const {
    copy(tile, rows.template from<kTokens>(token), wave);
  }
  __device__ __forceinline__ void copy(Shared* tile, const Chunk& buffer, int wave) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      copy_to_shared(buffer, tile + (wave * 64 + i * kThreads) * 16,
                     further(offset[i % kKept], i / kKept * step));
    }
  }

 private:
  // The offsets of so many copies stay in registers; the others are whole periods of the exchange
  // of chunks behind.
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kPeriods = Tile::kPeriod / (kRowsAtOnce > 0 ? kRowsAtOnce : 1);
  static constexpr int kKept = !kCopies ? 1 : kPeriods < kLoads && kPeriods > 0 ? kPeriods : kLoads;

  __device__ __forceinline__ int offset_of(int token, int chunk) const {
    return chunk * 16 < rows.bytes ? token * rows.pitch + chunk * 16 : kNowhere;
  }
  __device__ __forceinline__ int copied_offset(int i) const {
    const int chunk = Tile::chunk_at(thread + i * kThreads);
    return offset_of(chunk / kChunks, chunk % kChunks);
  }

  HeadRows rows;
  int thread;
  int step = 0;
  int offset[kKept];
};

}  // namespace tessera::device
