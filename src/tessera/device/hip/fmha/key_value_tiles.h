// Tiles of keys and of values in LDS, and what brings them there. A head whose chunks are no power
// of two has two tiles of keys, one behind the other.
#pragma once

#include "tessera/device/hip/fmha/value_bytes.h"
#include "tessera/device/hip/fmha/value_tile.h"

namespace tessera::device {

// The largest power of two up to a number.
constexpr int power_up_to(int count) {
  int power = 1;
  while (2 * power <= count) power *= 2;
  return power;
}

// Config has Kv, kHeadSize, kKeys, kCopies and kPages.
template <class C, int kThreads>
class KeyTiles {
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr int kChunks = C::kHeadSize * static_cast<int>(sizeof(typename C::Kv)) / 16;
  static constexpr int kFirst = power_up_to(kChunks);
  static constexpr int kMore = kChunks - kFirst;
  static_assert(power_up_to(kMore > 0 ? kMore : 1) == (kMore > 0 ? kMore : 1));

 public:
  using First = LdsTile<C::kKeys, kFirst, 1>;
  using Second = LdsTile<C::kKeys, kMore == 0 ? kFirst : kMore, 1>;

 private:
  template <class Tile, int kCount>
  using Loader = typename If<kPaged, PagedTokenLoader<Tile, C::kKeys, kCount, kThreads, C::kCopies>,
                             TokenLoader<Tile, C::kKeys, kCount, kThreads, C::kCopies>>::Type;
  using LoadFirst = Loader<First, kFirst>;
  using LoadSecond = Loader<Second, kMore == 0 ? kFirst : kMore>;

  static __device__ __forceinline__ HeadRows behind(HeadRows rows) {
    rows.address += kFirst * 16;
    rows.bytes = rows.bytes > kFirst * 16 ? rows.bytes - kFirst * 16 : 0;
    return rows;
  }

 public:
  static constexpr int kBytes = C::kKeys * kChunks * 16;
  struct Staged {
    typename LoadFirst::Staged first;
    typename LoadSecond::Staged second;
  };

  __device__ __forceinline__ KeyTiles(const HeadRows& rows, int thread)
      : first(rows, thread), second(behind(rows), thread) {}

  template <class Place>
  __device__ __forceinline__ void fetch(Staged& to, const Place& from) const {
    first.fetch(to.first, from);
    if constexpr (kMore > 0) second.fetch(to.second, from);
  }
  __device__ __forceinline__ void put(Shared* tile, const Staged& from) const {
    first.put(tile, from.first);
    if constexpr (kMore > 0) second.put(tile + First::kBytes, from.second);
  }
  template <class Place>
  __device__ __forceinline__ void copy(Shared* tile, const Place& from, int wave) const {
    first.copy(tile, from, wave);
    if constexpr (kMore > 0) second.copy(tile + First::kBytes, from, wave);
  }
  // The chunk that a lane multiplies in a step, of 32 keys from block * 32 behind `from` on; `from`
  // is a multiple of 32.
  static __device__ __forceinline__ Chunk read(const Shared* tile, int lane, int from, int block,
                                               int step) {
    static_assert(32 % First::kPeriod == 0 && 32 % Second::kPeriod == 0);
    if (kMore == 0 || step * 2 < kFirst) {
      const Shared* const rows = tile + from * kFirst * 16;
      return load_shared<Chunk>(rows + First::offset(lane % 32, lane / 32, block * 32, step * 2));
    }
    const Shared* const rows = tile + First::kBytes + from * kMore * 16;
    return load_shared<Chunk>(rows +
                              Second::offset(lane % 32, lane / 32, block * 32, step * 2 - kFirst));
  }

 private:
  LoadFirst first;
  LoadSecond second;
};

// What brings values to LDS.
template <class C, int kThreads>
struct ValueTiles {
  static constexpr bool kPaged = C::kPages != FmhaPages::none;
  static constexpr bool kBytes = sizeof(typename C::Kv) == 1;
  template <class OfBytes, class Other>
  using BySize = typename If<kBytes, OfBytes, Other>::Type;
  using Halves = typename If<kPaged, PagedTransposedValues<C::kKeys, C::kHdimV, kThreads>,
                             TransposedValues<C::kKeys, C::kHdimV, kThreads>>::Type;
  using Transposed = BySize<TransposedBytes<C::kKeys, C::kHdimV, kThreads>, Halves>;
#if defined(__gfx950__)
  using Copied = BySize<CopiedBytes<C::kKeys, C::kHdimV, kThreads, kPaged>,
                        CopiedValues<C::kKeys, C::kHdimV, kThreads, kPaged>>;
  using Loader = typename If<C::kCopies, Copied, Transposed>::Type;
#else
  using Loader = Transposed;
#endif
};

}  // namespace tessera::device
