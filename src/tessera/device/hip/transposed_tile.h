// gfx950: tiles that lie in LDS as in memory, lines of neighbouring rows, and are transposed by the
// reads that bring them to a matrix instruction (ds_read_b64_tr_b16 and ds_read_b64_tr_b8).
// Elements have 16 or 8 bits.
//
// A read of a wave brings, for each group of 16 lanes, 16 rows of 4 lines (8 bits: 8 lines): lane i
// reads 4 (8) rows of line i / 4 (i / 2) and gets row i of all these lines. 32 lanes are served
// together: the same lines of 32 rows (kSide = 32), or lines of 16 rows, for which a lane's chunk
// along k begins 8 (16) lines further (kSide = 16). Chunks of a line are exchanged so that these
// lie in different banks.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

// An offset `more` bytes further. One that is kNowhere stays past the end of every buffer.
__device__ __forceinline__ int further(int offset, int more) {
  return static_cast<int>(static_cast<u32>(offset) + static_cast<u32>(more));
}

template <int kLines, int kChunks, int kSize = 2>
struct TransposedTile {
  static constexpr int kBytes = kLines * kChunks * 16;
  static constexpr int kTogether = kChunks < 16 ? 16 / kChunks : 1;  // lines of 64 banks
  // Chunks of a line are exchanged in parts: what the lanes that are served together read of it.
  static constexpr int kPart = kSize == 2 ? 4 : 2;  // chunks
  static constexpr int kParts = kChunks < 16 ? kChunks / kPart : 16 / kPart;
  static constexpr int kPeriod = kSize == 2 ? 16 : 32;
  static_assert(kChunks >= 4 && (kChunks & (kChunks - 1)) == 0);

  __device__ __forceinline__ static int exchange(int line) {
    constexpr int kGroupLines = kSize == 2 ? 8 : 16;  // of a lane's chunk along k
    return (line / kTogether & (kParts - 1)) * kPart ^ (line / kGroupLines & 1) * (kPart / 2);
  }
  // Where the chunk lies, counted in chunks.
  __device__ __forceinline__ static int place(int line, int chunk) {
    return line * kChunks + (chunk ^ exchange(line));
  }
  __device__ __forceinline__ static int chunk_at(int place) {
    return place ^ exchange(place / kChunks);
  }
};

#if defined(__gfx950__)
// With __restrict the compiler does not wait for all copies to LDS under way, of which it knows
// less than we do.
template <int kSize = 2>
__device__ __forceinline__ Vec<u32, 2> read_transposed(const Shared* __restrict from) {
  if constexpr (kSize == 2) {
    using Short4Shared = __attribute__((address_space(3))) Vec<short, 4>;
    return bits<Vec<u32, 2>>(
        __builtin_amdgcn_ds_read_tr16_b64_v4i16((Short4Shared*)(const_cast<Shared*>(from))));
  } else {
    using Int2Shared = __attribute__((address_space(3))) Vec<int, 2>;
    return bits<Vec<u32, 2>>(
        __builtin_amdgcn_ds_read_tr8_b64_v2i32((Int2Shared*)(const_cast<Shared*>(from))));
  }
}
#endif

// What the loaders of such tiles share: threads copy them, in the order of their places.
template <int kTileRows, int kTileK, int kThreads, int kSize = 2>
struct CopiedRows {
  static constexpr bool kTransposedRead = true;
  static constexpr int kElements = 16 / kSize;
  static constexpr int kChunks = kTileK / kElements;  // along k, as other loaders count them
  static constexpr int kRowChunks = kTileRows / kElements;
  using Tile = TransposedTile<kTileK, kRowChunks, kSize>;
  static constexpr int kLoads = kTileK * kRowChunks / kThreads;
  static constexpr int kInstructions = kLoads;
  static constexpr int kLinesAtOnce = kThreads / kRowChunks;
  static_assert(kLoads * kThreads == kTileK * kRowChunks, "threads copy whole tiles");

  // Where a thread's chunks have the same rows, of lines kLinesAtOnce apart: those of the first.
  static __device__ __forceinline__ int first_line(int thread) { return thread / kRowChunks; }
  static __device__ __forceinline__ int first_row(int thread) {
    static_assert(kLinesAtOnce % Tile::kPeriod == 0 || kLoads == 1,
                  "a thread has one chunk of rows");
    return Tile::chunk_at(thread) % kRowChunks * kElements;
  }
  static __device__ __forceinline__ Shared* to(Shared* tile, int wave, int load) {
    return tile + (wave * 64 + load * kThreads) * 16;
  }

#if defined(__gfx950__)
  // The chunk of k that LdsTile would give: of row `row` + lane % kSide, k `step` * 16 bytes and
  // on.
  template <int kSide>
  static __device__ __forceinline__ Chunk read(const Shared* tile, int row, int lane, int step) {
    constexpr int kEach = 8 / kSize,
                  kALine = 16 / kEach;  // rows that a lane reads, lanes of a line
    const int own = row + lane / 16 % (kSide / 16) * 16 + lane % kALine * kEach;
    const int line = lane / kSide * kElements + lane % 16 / kALine;
    // kEach lines further, and whole steps, chunks are exchanged alike.
    const Shared* const at =
        tile + Tile::place(line, own / kElements) * 16 + own % kElements * kSize;
    Vec<u32, 2> half[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int lines = step * (64 / kSide * kElements) + i * kEach;
      half[i] = read_transposed<kSize>(at + lines * kRowChunks * 16);
    }
    return Chunk{half[0][0], half[0][1], half[1][0], half[1][1]};
  }
#endif
};

// An operand whose rows are contiguous: line k begins k * pitch bytes after the first one. Rows and
// addresses are multiples of 8 elements.
template <class T, int kTileRows, int kTileK, int kThreads>
class CopiedRowLoader : public CopiedRows<kTileRows, kTileK, kThreads> {
 public:
  using Base = CopiedRows<kTileRows, kTileK, kThreads>;
  struct Staged {};
  __device__ __forceinline__ CopiedRowLoader(u64 address, i64 ld, int rows, int k_end, int row,
                                             int k_first, int thread)
      : pitch(ld * 2), base(address + static_cast<u64>(k_first * ld * 2 + i64{row} * 2)) {
    const int own = Base::first_row(thread);
    bytes = (i64{k_end} - 1 - k_first) * pitch + i64{rows - row} * 2;
    offset =
        row + own < rows ? Base::first_line(thread) * static_cast<int>(pitch) + own * 2 : kNowhere;
  }
  __device__ __forceinline__ void copy(Shared* tile, int wave) {
    const Chunk buffer = make_buffer(base, bytes);
#pragma unroll
    for (int i = 0; i < Base::kLoads; ++i) {
      copy_to_shared(buffer, Base::to(tile, wave, i),
                     further(offset, i * Base::kLinesAtOnce * static_cast<int>(pitch)));
    }
    base += static_cast<u64>(kTileK * pitch);
    bytes -= kTileK * pitch;
  }
  __device__ __forceinline__ void fetch(Staged&) {}
  __device__ __forceinline__ void put(Shared*, Staged&) const {}

 private:
  i64 pitch;
  u64 base;
  i64 bytes;
  int offset;
};

}  // namespace tessera::device
