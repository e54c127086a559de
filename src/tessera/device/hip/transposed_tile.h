// gfx950: tiles that lie in LDS as in memory, lines of neighbouring rows, and are transposed by the
// reads that bring them to a matrix instruction (ds_read_b64_tr_b16). Elements have 16 bits.
//
// A read of a wave brings, for each group of 16 lanes, 4 lines x 16 rows: lane i reads 4 rows of
// line i / 4 and gets row i of all 4 lines. 32 lanes are served together: 4 lines of 32 rows (kSide
// = 32), or lines 0-3 and 8-11 of 16 rows (kSide = 16). Chunks of a line are exchanged so that
// these lie in different banks.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

// An offset `more` bytes further. One that is kNowhere stays past the end of every buffer.
__device__ __forceinline__ int further(int offset, int more) {
  return static_cast<int>(static_cast<u32>(offset) + static_cast<u32>(more));
}

template <int kLines, int kChunks>
struct TransposedTile {
  static constexpr int kBytes = kLines * kChunks * 16;
  static constexpr int kTogether = kChunks < 16 ? 16 / kChunks : 1;  // lines of 64 banks
  static constexpr int kParts = kChunks < 16 ? kChunks / 4 : 4;      // of 64 bytes in a line
  static constexpr int kPeriod = 16;
  static_assert(kChunks >= 4);

  __device__ __forceinline__ static int exchange(int line) {
    return (line / kTogether & (kParts - 1)) * 4 ^ (line >> 3 & 1) * 2;
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
__device__ __forceinline__ Vec<u32, 2> read_transposed(const Shared* __restrict from) {
  using Short4Shared = __attribute__((address_space(3))) Vec<short, 4>;
  return bits<Vec<u32, 2>>(
      __builtin_amdgcn_ds_read_tr16_b64_v4i16((Short4Shared*)(const_cast<Shared*>(from))));
}
#endif

// What the loaders of such tiles share. A thread copies chunks of the same rows of lines
// kLinesAtOnce apart.
template <int kTileRows, int kTileK, int kThreads>
struct CopiedRows {
  static constexpr bool kTransposedRead = true;
  static constexpr int kElements = 8;
  static constexpr int kChunks = kTileK / kElements;  // along k, as other loaders count them
  static constexpr int kRowChunks = kTileRows / 8;
  using Tile = TransposedTile<kTileK, kRowChunks>;
  static constexpr int kLoads = kTileK * kRowChunks / kThreads;
  static constexpr int kInstructions = kLoads;
  static constexpr int kLinesAtOnce = kThreads / kRowChunks;
  static_assert(kLoads * kThreads == kTileK * kRowChunks, "threads copy whole tiles");
  static_assert(kLinesAtOnce % Tile::kPeriod == 0 || kLoads == 1, "a thread has one chunk of rows");

  static __device__ __forceinline__ int first_line(int thread) { return thread / kRowChunks; }
  static __device__ __forceinline__ int first_row(int thread) {
    return Tile::chunk_at(thread) % kRowChunks * 8;
  }
  static __device__ __forceinline__ Shared* to(Shared* tile, int wave, int load) {
    return tile + (wave * 64 + load * kThreads) * 16;
  }

#if defined(__gfx950__)
  // The chunk of k that LdsTile would give: of row `row` + lane % kSide, k `step` * 16 bytes and
  // on.
  template <int kSide>
  static __device__ __forceinline__ Chunk read(const Shared* tile, int row, int lane, int step) {
    const int own = row + lane / 16 % (kSide / 16) * 16 + lane % 4 * 4;
    const int line = lane / kSide * 8 + lane % 16 / 4;
    // 4 lines further, and whole steps, chunks are exchanged alike.
    const Shared* const at = tile + Tile::place(line, own / 8) * 16 + own % 8 * 2;
    Vec<u32, 2> half[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      half[i] = read_transposed(at + (step * (64 / kSide * 8) + i * 4) * kRowChunks * 16);
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
