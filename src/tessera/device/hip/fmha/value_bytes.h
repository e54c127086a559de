// Tiles of values of 8 bits as the first operand of the second product: rows are elements of a
// value, and a chunk has 16 keys. A lane of group g multiplies chunks 2 b + g, whose words w are
// keys 32 b + 8 w + 4 g + 0..3: the keys of which the sums of the first product left the lane its
// weights.
#pragma once

#include "tessera/device/hip/fmha/page_places.h"
#include "tessera/device/hip/operand_rows.h"

namespace tessera::device {

// By registers: a thread loads 4 neighbouring elements of the 16 keys of a chunk, transposes them
// and writes 4 chunks. Small tiles leave threads without work.
template <int kKeys, int kElements, int kThreads>
class TransposedBytes {
 public:
  static constexpr int kChunks = kKeys / 16, kRows = 4;
  static constexpr int kQuads = kElements / kRows, kUnits = kQuads * kChunks;
  static constexpr int kEach = (kUnits + kThreads - 1) / kThreads;  // units of a thread
  static constexpr int kChunksAtOnce = kThreads / kQuads;
  static_assert(kThreads % kQuads == 0 && (kEach == 1 || kUnits % kThreads == 0));
  using Tile = LdsTile<kElements, kChunks, kRows>;
  static constexpr int kBytes = Tile::kBytes;
  struct Staged {
    u32 words[kEach][16];
  };

  __device__ __forceinline__ TransposedBytes(const HeadRows& r, int thread)
      : rows(r), row(thread % kQuads * kRows), chunk(thread / kQuads) {}

  __device__ __forceinline__ void fetch(Staged& to, int key) const {
    const Chunk buffer = rows.template from<kKeys>(key);
    const int pitch = rows.fresh_pitch();
#pragma unroll
    for (int unit = 0; unit < kEach; ++unit) {
      const int from = not_ahead(reads(unit) ? first_key(unit) * pitch + row : kNowhere);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        to.words[unit][i] = raw_buffer_load_4(buffer, further(from, more(i) * pitch), 0, 0);
      }
    }
  }
  // The same of values in pages. All lanes tell each other places.
  __device__ __forceinline__ void fetch(Staged& to, const TokenPlaces<kKeys>& from) const {
    const Chunk buffer = buffer_of_pages(rows.address);
#pragma unroll
    for (int unit = 0; unit < kEach; ++unit) {
      const int token = not_ahead(has(unit) ? first_key(unit) : 0);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const u32 place = from.place(token, more(i));
        const int at = has(unit) ? place_in(rows, place, row) : static_cast<int>(kMostPlace);
        to.words[unit][i] = raw_buffer_load_4(buffer, at, 0, 0);
        if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);
      }
    }
  }
  __device__ __forceinline__ void put(Shared* tile, const Staged& from) const {
#pragma unroll
    for (int unit = 0; unit < kEach; ++unit) {
      Chunk out[kRows];
      Transpose<kRows>::apply(from.words[unit], out);
      if (!has(unit)) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        store_shared(tile + Tile::place(row + r, chunk + unit * kChunksAtOnce) * 16, out[r]);
      }
    }
  }
  // The operand of 32 keys for elements block * 32 and on.
  __device__ __forceinline__ static Chunk read(const Shared* tile, int lane, int block, int keys) {
    return load_shared<Chunk>(tile + Tile::offset(lane % 32, lane / 32, block * 32, keys * 2));
  }

 private:
  // How far key i of a chunk is behind the chunk's first one.
  static constexpr int more(int i) { return i / 4 * 8 + i % 4; }
  __device__ __forceinline__ bool has(int unit) const {
    return kUnits % kThreads == 0 || chunk + unit * kChunksAtOnce < kChunks;
  }
  __device__ __forceinline__ bool reads(int unit) const { return has(unit) && row < rows.bytes; }
  __device__ __forceinline__ int first_key(int unit) const {
    const int own = chunk + unit * kChunksAtOnce;
    return own / 2 * 32 + own % 2 * 4;
  }

  HeadRows rows;
  int row, chunk;
};

#if defined(__gfx950__)
// Lines of values in LDS as they lie in memory. 32 lanes read 32 bytes each of 8 lines, 4
// neighbours and those 8 lines further, which lie in different banks.
template <int kLines, int kChunks>
struct ByteLines {
  static constexpr int kBytes = kLines * kChunks * 16;
  static constexpr int kTogether = kChunks < 16 ? 16 / kChunks : 1;  // lines of 64 banks
  static constexpr int kPeriod = 16;
  static_assert(kChunks >= 4 && (kChunks & (kChunks - 1)) == 0);

  __device__ __forceinline__ static int exchange(int line) {
    return ((line & 3) | (line >> 3 & 1) << 2) / kTogether * 2 & (kChunks - 1);
  }
  __device__ __forceinline__ static int place(int line, int chunk) {
    return line * kChunks + (chunk ^ exchange(line));
  }
  __device__ __forceinline__ static int chunk_at(int place) {
    return place ^ exchange(place / kChunks);
  }
};

// gfx950: reads transpose 8 keys x 16 elements.
template <int kKeys, int kElements, int kThreads, bool kPaged>
class CopiedBytes {
 public:
  static constexpr int kChunks = kElements / 16;
  using Tile = ByteLines<kKeys, kChunks>;
  using Loader = typename If<kPaged, PagedTokenLoader<Tile, kKeys, kChunks, kThreads, true>,
                             TokenLoader<Tile, kKeys, kChunks, kThreads, true>>::Type;
  static constexpr int kBytes = Tile::kBytes;

  __device__ __forceinline__ CopiedBytes(const HeadRows& r, int thread) : loader(r, thread) {}
  template <class Place>
  __device__ __forceinline__ void copy(Shared* tile, const Place& from, int wave) const {
    loader.copy(tile, from, wave);
  }
  __device__ __forceinline__ static Chunk read(const Shared* tile, int lane, int block, int keys) {
    const int element = lane / 16 % 2 * 16 + lane % 2 * 8;
    const int line = lane % 16 / 2, key = lane / 32 * 4 + line % 4 + line / 4 * 8;
    const int at = Tile::place(key, element / 16 + block * 2) * 16 + element % 16;
    const Shared* const from = tile + at + keys * 32 * kChunks * 16;
    const Vec<u32, 2> low = read_transposed<1>(from);
    const Vec<u32, 2> high = read_transposed<1>(from + 16 * kChunks * 16);
    return Chunk{low[0], low[1], high[0], high[1]};
  }

 private:
  Loader loader;
};
#endif

}  // namespace tessera::device
