// A register block of tiles: 32 rows by 32 columns of sums in four tiles, two tiles of A, two of B.
// Panels of A and B are whole tiles: [16 words of k][32 rows][16 words] of A, words by columns of
// B, as other kernels have them.
#pragma once

#include "tessera/device/cpu/block.h"
#include "tessera/device/cpu/pack.h"
#include "tessera/device/cpu/tiles.h"

namespace tessera::device {

// Fours of int8, summed into int32: exact. Both operands are signed.
struct MathTilesInt8 {
  using Acc = i32v;
  static constexpr int kPerWord = 4;
  static constexpr bool kBiased = false;
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static void add(Tiles& tiles) {
    tiles.add_int8<kSum, kA, kB>();
  }
};

// Pairs of bf16, summed into fp32; the instruction treats subnormals as zero.
struct MathTilesBf16 {
  using Acc = f32v;
  static constexpr int kPerWord = 2;
  static constexpr bool kBiased = false;
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] static void add(Tiles& tiles) {
    tiles.add_bf16<kSum, kA, kB>();
  }
};

// ---- panels ----

// Rows of A whose k is contiguous. Rows past the last one repeat it, because their results are
// never stored.
template <class T, class Math>
void pack_tile_rows(const PanelSource<T>& s, i64 steps, u32* out) {
  constexpr i64 kDepth = kTileWords * Math::kPerWord;
  for (i64 i = 0; i < kTileBlock; ++i) {
    const T* p = s.data + smaller(i, s.rows - 1) * s.ld;
    u32* to = out + i * kTileWords;
    for (i64 step = 0; step < steps; ++step, to += kTileBlock * kTileWords) {
      const i64 left = s.depth - step * kDepth;
      store(to, left >= kDepth ? load<u32v>(p + step * kDepth)
                               : load_bytes(p + step * kDepth, static_cast<int>(left * sizeof(T))));
    }
  }
}

// Columns of A whose rows are contiguous: squares of words, transposed in registers.
template <class T, class Math>
void pack_tile_columns(const PanelSource<T>& s, i64 steps, u32* out) {
  for (i64 step = 0; step < steps; ++step) {
    for (int half = 0; half < 2; ++half) {
      u32v square[kTileWords];
      for (int i = 0; i < kTileWords; ++i) {
        square[i] = column_words<T, Math>(s, half * kTileRows, step * kTileWords + i);
      }
      transpose(square);
      u32* to = out + (step * kTileBlock + half * kTileRows) * kTileWords;
      for (int i = 0; i < kTileRows; ++i) store(to + i * kTileWords, square[i]);
    }
  }
}

template <class T, class Math, bool kKContiguous>
void pack_a_tiles(const PanelSource<T>& s, u32* out) {
  static_assert(sizeof(T) * Math::kPerWord == 4, "tiles hold elements as they are");
  static_assert(kLanes == kTileWords, "a row of a tile is a vector");
  const i64 steps = blocks_of(s.depth, kTileWords * Math::kPerWord);
  if constexpr (kKContiguous) return pack_tile_rows<T, Math>(s, steps, out);
  pack_tile_columns<T, Math>(s, steps, out);
}

// A panel of B as other kernels have it, and zeros up to a whole tile: an infinity or NaN there
// would not vanish by the zeros of A.
template <class T, class Math, bool kKContiguous>
void pack_b_tiles(const PanelSource<T>& s, u32* out) {
  pack_panel<T, Math, kTileBlock, false, kKContiguous>(s, out);
  const i64 words = blocks_of(s.depth, Math::kPerWord);
  const i64 whole = blocks_of(words, kTileWords) * kTileWords;
  for (i64 i = words * kTileBlock; i < whole * kTileBlock; i += kLanes) store(out + i, u32v{});
}

// ---- the register block ----

// Tiles 0 to 3 are sums, row by row; 4 and 5 are of A, 6 and 7 of B.
template <int kSum>
[[gnu::always_inline]] inline void begin_sums(Tiles& tiles, const BlockTask& t) {
  if (t.before == nullptr) return tiles.zero<kSum>();
  const u32* from = t.before + kSum / 2 * kTileRows * t.ld_before + kSum % 2 * kTileWords;
  tiles.load_rows<kSum>(from, t.ld_before * 4);
}
// A tile whose rows straddle lines takes 16 times as long to store (95 cycles a row on an Emerald
// Rapids), so vectors store such rows from a copy of the tile.
template <int kSum>
[[gnu::always_inline]] inline void end_sums(Tiles& tiles, const BlockTask& t) {
  u32* to = static_cast<u32*>(t.out) + kSum / 2 * kTileRows * t.ld_out + kSum % 2 * kTileWords;
  constexpr i64 kRow = kTileWords * 4;
  if ((reinterpret_cast<i64>(to) | t.ld_out * 4) % kRow == 0) {
    return tiles.store_rows<kSum>(to, t.ld_out * 4);
  }
  alignas(kRow) u32 copy[kTileRows * kTileWords];
  tiles.store_rows<kSum>(copy, kRow);
  for (int i = 0; i < kTileRows; ++i) store(to + i * t.ld_out, load<u32v>(copy + i * kTileWords));
}

// kDown by kAcross tiles of sums.
template <class Math, int kDown, int kAcross>
[[gnu::noinline]] void multiply_tile_block(const BlockTask& t) {
  Tiles tiles;
  begin_sums<0>(tiles, t);
  if constexpr (kAcross > 1) begin_sums<1>(tiles, t);
  if constexpr (kDown > 1) begin_sums<2>(tiles, t);
  if constexpr (kDown > 1 && kAcross > 1) begin_sums<3>(tiles, t);
  constexpr i64 kRow = kTileWords * 4;
  const i64 b_row = t.b_word * 4;
  const u32* a = static_cast<const u32*>(t.a);
  const u32* b = t.b;
  for (i64 left = t.words; left > 0; left -= kTileWords) {
    tiles.load_rows<6>(b, b_row);
    tiles.load_rows<4>(a, kRow);
    Math::template add<0, 4, 6>(tiles);
    if constexpr (kAcross > 1) {
      tiles.load_rows<7>(b + kTileWords, b_row);
      Math::template add<1, 4, 7>(tiles);
    }
    if constexpr (kDown > 1) {
      tiles.load_rows<5>(a + kTileRows * kTileWords, kRow);
      Math::template add<2, 5, 6>(tiles);
      if constexpr (kAcross > 1) Math::template add<3, 5, 7>(tiles);
    }
    a += kTileBlock * kTileWords;
    b += kTileWords * b_row / 4;
  }
  end_sums<0>(tiles, t);
  if constexpr (kAcross > 1) end_sums<1>(tiles, t);
  if constexpr (kDown > 1) end_sums<2>(tiles, t);
  if constexpr (kDown > 1 && kAcross > 1) end_sums<3>(tiles, t);
}

// Multiplies a block of `rows` x `columns`, at most 32 x 32, by as few tiles as it takes. The
// output must have room for all rows and columns of these tiles.
template <class Math>
void multiply_tiles(const BlockTask& t, i64 rows, int columns) {
  const bool low = rows <= kTileRows;
  const bool narrow = columns <= kTileWords;
  if (low && narrow) return multiply_tile_block<Math, 1, 1>(t);
  if (low) return multiply_tile_block<Math, 1, 2>(t);
  if (narrow) return multiply_tile_block<Math, 2, 1>(t);
  multiply_tile_block<Math, 2, 2>(t);
}

}  // namespace tessera::device
