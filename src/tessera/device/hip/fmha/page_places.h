// Where the keys of a tile lie in the pages of a cache. Each lane of a wave looks up one or two
// tokens of a tile, and tells the lanes that move them. Entries of the table are asked for a tile
// ahead.
//
// The places of a head's tokens are counted in bytes, in 32 bits; the host sees to it that they are
// below kMostPlace.
#pragma once

#include "tessera/device/hip/fmha/fmha_sizes.h"
#include "tessera/device/hip/fmha/head_rows.h"
#include "tessera/device/hip/fmha/mfma_arguments.h"
#include "tessera/device/hip/lanes.h"

namespace tessera::device {

// Places of a tile's tokens, of which lane l has token l of each 64.
template <int kKeys>
struct TokenPlaces {
  static constexpr int kWords = kKeys > kLanes ? kKeys / kLanes : 1;
  u32 of[kWords];

  // The place of the token that is `more` behind `token`. All lanes take part, and their tokens are
  // of the same 64. The crossbar counts lanes in 6 bits.
  __device__ __forceinline__ u32 place(int token, int more) const {
    u32 own = of[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) own = (token + more) / kLanes == i ? of[i] : own;
    return from_lane(own, token + more);
  }
};
// A head of keys and values in linear pages. A tile's entries are asked for, then its keys are, and
// then its values.
// Elements have kSize bytes.
template <int kKeys, int kSize>
class PagedHead {
  static constexpr int kWords = TokenPlaces<kKeys>::kWords;

 public:
  using Places = TokenPlaces<kKeys>;

  // Keys from `end` on are not read; there is a key before.
  __device__ __forceinline__ PagedHead(const FmhaArguments& g, const FmhaSequence& s, int end,
                                       int lane_index)
      : lane(lane_index) {
    table = g.page_table + s.first_key;
    last = end - 1;
    size = static_cast<u32>(g.page_size);
    last_page = static_cast<int>(g.num_pages) - 1;
    key_page = static_cast<u32>(g.k_stride[kTokenBatch] * kSize);
    key_token = static_cast<u32>(g.k_stride[kToken] * kSize);
    value_page = static_cast<u32>(g.v_stride[kTokenBatch] * kSize);
    value_token = static_cast<u32>(g.v_stride[kToken] * kSize);
  }

  // Asks for the entries of a tile.
  __device__ __forceinline__ void ask(int key) {
    first = key;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int own = key + i * kLanes + lane;
      const u32 token = static_cast<u32>(own < last ? own : last);
      const u32 entry = token / size;
      in_page[i] = token - entry * size;
      pages[i] = ((Global<int>)table)[entry];
    }
  }
  __device__ __forceinline__ Places keys(int) {
    Places of_keys;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int page = pages[i] < 0 ? 0 : pages[i] < last_page ? pages[i] : last_page;
      const bool exists = first + i * kLanes + lane <= last;
      const auto place = [&](u32 of_page, u32 of_token) {
        const u32 at = static_cast<u32>(page) * of_page + in_page[i] * of_token;
        return exists ? at : kMostPlace;
      };
      of_keys.of[i] = place(key_page, key_token);
      of_values.of[i] = place(value_page, value_token);
    }
    return of_keys;
  }
  __device__ __forceinline__ const Places& values(int) const { return of_values; }

 private:
  const int* table;
  int lane, last, first = 0;
  u32 size;
  int last_page;
  u32 key_page, key_token, value_page, value_token;  // distances in bytes
  int pages[kWords];
  u32 in_page[kWords];
  Places of_values;
};

// Keys and values that lie one behind the other: the place of a tile is the number of its first
// key. With kEnds there is nothing to read from `end` on.
template <bool kEnds>
class RowsInOrder {
 public:
  __device__ __forceinline__ RowsInOrder(int end_key) : end(end_key) {}
  __device__ __forceinline__ void ask(int) {}
  __device__ __forceinline__ int keys(int key) const {
    constexpr int kNoKey = 1 << 29;
    return !kEnds || key < end ? key : kNoKey;
  }
  __device__ __forceinline__ int values(int key) const { return keys(key); }

 private:
  int end;
};

// The buffer of all pages of a head, whose first element is at `address`.
__device__ __forceinline__ Chunk buffer_of_pages(u64 address) {
  return Chunk{static_cast<u32>(address), static_cast<u32>(address >> 32) & 0xffffU, kMostPlace,
               0x00027000U};
}

// Where an element of a token lies, so many bytes behind the token's first one; nowhere behind its
// last one.
__device__ __forceinline__ int place_in(const HeadRows& rows, u32 token, int bytes) {
  const u32 at = token + static_cast<u32>(bytes);
  return static_cast<int>(bytes < rows.bytes ? at : kMostPlace);
}

// TokenLoader of tokens in pages.
template <class Tile, int kTokens, int kChunks, int kThreads, bool kCopies>
class PagedTokenLoader {
 public:
  static constexpr int kLoads = kTokens * kChunks / kThreads;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  using Places = TokenPlaces<kTokens>;
  struct Staged {
    Chunk chunks[kLoads];
  };

  __device__ __forceinline__ PagedTokenLoader(const HeadRows& r, int thread_index)
      : rows(r), thread(thread_index) {}

  __device__ __forceinline__ void fetch(Staged& to, const Places& from) const {
    const Chunk buffer = buffer_of_pages(rows.address);
    const int token = not_ahead(thread / kChunks);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const u32 place = from.place(token, i * kRowsAtOnce);
      to.chunks[i] = raw_buffer_load_16(buffer, place_in(rows, place, thread % kChunks * 16), 0, 0);
    }
  }
  __device__ __forceinline__ void put(Shared* tile, const Staged& from) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = Tile::offset(thread / kChunks, thread % kChunks, i * kRowsAtOnce, 0);
      store_shared(tile + at, from.chunks[i]);
    }
  }
  __device__ __forceinline__ void copy(Shared* tile, const Places& from, int wave) const {
    const Chunk buffer = buffer_of_pages(rows.address);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = Tile::chunk_at(thread + i * kThreads);
      copy_to_shared(buffer, tile + (wave * 64 + i * kThreads) * 16,
                     place_in(rows, from.place(chunk / kChunks, 0), chunk % kChunks * 16));
    }
  }

 private:
  HeadRows rows;
  int thread;
};

}  // namespace tessera::device
