// Tiles of values as the first operand of the second product: rows are elements of a value, and a
// chunk has 8 keys. A lane of group g multiplies chunks 2 j + g, whose keys are 16 j + 4 g + 0..3
// and 8 more: the keys of which the sums of the first product left the lane its weights.
#pragma once

#include "tessera/device/hip/fmha/page_places.h"

namespace tessera::device {

// gfx90a, gfx942: a thread loads kRows neighbouring elements of the 8 keys of a chunk, transposes
// them in registers and writes kRows chunks.
template <int kKeys, int kElements, int kThreads>
class TransposedValues {
 public:
  static constexpr int kChunks = kKeys / 8;
  static constexpr int kRows = kElements * kChunks / kThreads;
  static_assert(kRows == 2 || kRows == 4 || kRows == 8, "a thread loads 4, 8 or 16 bytes of a key");
  static constexpr int kWords = kRows / 2;
  using Tile = LdsTile<kElements, kChunks, kRows == 8 ? 4 : kRows>;
  static constexpr int kBytes = Tile::kBytes;
  struct Staged {
    Vec<u32, kWords> words[8];
  };

  __device__ __forceinline__ TransposedValues(const HeadRows& r, int thread) : rows(r) {
    row = thread % (kElements / kRows) * kRows;
    chunk = thread / (kElements / kRows);
    first =
        row * 2 < rows.bytes ? (chunk / 2 * 16 + chunk % 2 * 4) * rows.pitch + row * 2 : kNowhere;
  }
  __device__ __forceinline__ void fetch(Staged& to, int key) const {
    fetch(to, rows.template from<kKeys>(key));
  }
  // The same of a buffer that begins at the tile's first key.
  __device__ __forceinline__ void fetch(Staged& to, const Chunk& buffer) const {
    const int from = not_ahead(first), pitch = rows.fresh_pitch();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int more = i % 4 + i / 4 * 8;
      to.words[i] = load_buffer<4 * kWords>(buffer, further(from, more * pitch));
    }
  }
  __device__ __forceinline__ void put(Shared* tile, const Staged& from) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Chunk out;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[i] = __builtin_amdgcn_perm(from.words[2 * i + 1][r / 2], from.words[2 * i][r / 2],
                                       r % 2 == 0 ? 0x05040100U : 0x07060302U);
      }
      store_shared(tile + Tile::place(row + r, chunk) * 16, out);
    }
  }
  // The operand of 16 keys for elements block * 32 and on.
  __device__ __forceinline__ static Chunk read(const Shared* tile, int lane, int block, int pair) {
    return load_shared<Chunk>(tile + Tile::offset(lane % 32, lane / 32, block * 32, pair * 2));
  }

 protected:
  HeadRows rows;
  int row, chunk;

 private:
  int first;
};

// The same of values in pages.
template <int kKeys, int kElements, int kThreads>
class PagedTransposedValues : public TransposedValues<kKeys, kElements, kThreads> {
 public:
  using Base = TransposedValues<kKeys, kElements, kThreads>;
  using Base::Base;

  __device__ __forceinline__ void fetch(typename Base::Staged& to,
                                        const TokenPlaces<kKeys>& from) const {
    const Chunk buffer = buffer_of_pages(this->rows.address);
    const int token = not_ahead(this->chunk / 2 * 16 + this->chunk % 2 * 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const u32 place = from.place(token, i % 4 + i / 4 * 8);
      to.words[i] =
          load_buffer<4 * Base::kWords>(buffer, place_in(this->rows, place, this->row * 2));
      // Places of all keys at once would take too many registers.
      if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);
    }
  }
};

#if defined(__gfx950__)
// gfx950: values lie in LDS as in memory, and reads transpose 4 keys x 16 elements.
template <int kKeys, int kElements, int kThreads, bool kPaged>
class CopiedValues {
 public:
  static constexpr int kChunks = kElements / 8;
  using Tile = TransposedTile<kKeys, kChunks>;
  using Loader = typename If<kPaged, PagedTokenLoader<Tile, kKeys, kChunks, kThreads, true>,
                             TokenLoader<Tile, kKeys, kChunks, kThreads, true>>::Type;
  static constexpr int kBytes = Tile::kBytes;

  __device__ __forceinline__ CopiedValues(const HeadRows& r, int thread) : loader(r, thread) {}
  template <class Place>
  __device__ __forceinline__ void copy(Shared* tile, const Place& from, int wave) const {
    loader.copy(tile, from, wave);
  }
  __device__ __forceinline__ void copy(Shared* tile, const Chunk& buffer, int wave) const {
    loader.copy(tile, buffer, wave);
  }
  __device__ __forceinline__ static Chunk read(const Shared* tile, int lane, int block, int pair) {
    const int element = lane / 16 % 2 * 16 + lane % 4 * 4;
    const int key = lane / 32 * 4 + lane % 16 / 4;
    // One sum for the tile, of which exchanges make the other places: a tile's begin has no bit
    // that they change.
    const u32 first =
        (u32)(tile) + static_cast<u32>(Tile::place(key, element / 8) * 16 + element % 8 * 2);
    const auto part = [&](int more) {
      const u32 exchanged = first ^ static_cast<u32>((Tile::exchange(more) ^ block * 4) * 16);
      return read_transposed((const Shared*)(exchanged) + (more + pair * 16) * kChunks * 16);
    };
    const Vec<u32, 2> low = part(0), high = part(8);
    return Chunk{low[0], low[1], high[0], high[1]};
  }

 private:
  Loader loader;
};
#endif

}  // namespace tessera::device
