// The operands of the blocked GEMM: which of them are read in place, how panels are packed, and
// preshuffle, which packs every panel of B beforehand.
#pragma once

#include "tessera/device/cpu/gemm/packed_shape.h"

namespace tessera::device {

template <class T>
struct PackedOperands {
  using A = typename T::A;
  using B = typename T::B;
  using Math = typename T::Math;
  static constexpr int kPer = Math::kPerWord;

  const PackedShape<T>& s;

  i64 start() const { return panel_start<Math>(s.columns); }
  static i64 words_of(i64 depth) {
    constexpr int kWords = kWordsAtOnce<Math>;
    return (depth + kPer * kWords - 1) / (kPer * kWords) * kWords;
  }
  i64 panel_words(i64 depth) const { return start() + words_of(depth) * s.columns; }
  static i64 round_up(i64 size, i64 to) { return (size + to - 1) / to * to; }

  // How many rows of A are read in place: whole register blocks. When k ends within a word, the
  // whole word is read, so the bytes behind it must belong to later rows.
  i64 rows_in_place(const GemmArguments& g, Range m, i64 depth) const {
    if (s.packs_a) return 0;
    const i64 beyond = round_up(depth, kPer) - depth;
    i64 rows = (m.end - m.begin) / s.rows * s.rows;
    while (rows > 0 && (g.m - m.begin - rows) * g.ld_a < beyond) rows -= s.rows;
    return rows;
  }

  static const A* a_at(const GemmArguments& g, i64 m, i64 k) {
    const A* a = static_cast<const A*>(g.a);
    return T::kAKContiguous ? a + m * g.ld_a + k : a + k * g.ld_a + m;
  }
  static const B* b_at(const GemmArguments& g, i64 n, i64 k) {
    const B* b = static_cast<const B*>(g.b);
    return T::kBKContiguous ? b + n * g.ld_b + k : b + k * g.ld_b + n;
  }

  // Distances of operands in place: between rows of A and between words of A in bytes, between
  // words of B in words.
  static i64 a_row_bytes(const GemmArguments& g) {
    return T::kAKContiguous ? g.ld_a * i64{sizeof(A)} : 4;
  }
  static i64 a_word_bytes(const GemmArguments& g) { return T::kAKContiguous ? 4 : g.ld_a * 4; }
  static i64 b_word(const GemmArguments& g) { return g.ld_b; }

  void pack_a(const GemmArguments& g, Range m, Range k, u32* out) const {
    const i64 depth = k.end - k.begin;
    for (i64 i = m.begin; i < m.end; i += s.rows) {
      s.pack_a({a_at(g, i, k.begin), g.ld_a, m.end - i, depth}, out);
      out += words_of(depth) * s.rows;
    }
  }
  void pack_b_panel(const GemmArguments& g, i64 n, Range k, u32* out) const {
    s.pack_b({b_at(g, n, k.begin), g.ld_b, g.n - n, k.end - k.begin}, out);
  }

  // What the panel behind that of column n is packed of: the part that one of some register blocks
  // asks for, a line with each word of k. Parts overlap where there are enough blocks, because a
  // line that is asked for once does not always come. Blocks behind the first few ask for `hot`,
  // which is in L1: with more of them lines are there, and asking costs 4% of the time.
  Ahead next_panel(const GemmArguments& g, i64 n, Range k, i64 block, i64 blocks,
                   const void* hot) const {
    constexpr i64 kLine = 64, kColumns = 16, kMostBlocks = 8;
    if (block >= kMostBlocks) return {static_cast<const char*>(hot), 0, 0};
    const auto* at = reinterpret_cast<const char*>(b_at(g, n + s.columns, k.begin));
    const i64 distance = g.ld_b * i64{sizeof(B)};
    if (T::kBKContiguous) {  // a line of each of some columns in turn
      const i64 last = smaller(blocks, kMostBlocks) - 1;
      const i64 more = s.columns > kColumns && last > 0 ? s.columns - kColumns : 0;
      return {at + (more == 0 ? 0 : block * more / last) * distance, distance, kLine};
    }
    const i64 lines = blocks_of(s.columns * i64{sizeof(B)}, kLine);
    at += block % lines * kLine + block / lines % kPer * distance;
    return {at, kPer * distance, kColumns * kPer * distance};
  }

  // ---- preshuffle: every panel of B, k block by k block ----

  i64 packed_words(const GemmArguments& g) const {
    const i64 panels = blocks_of(g.n, s.columns);
    i64 words = 0;
    for (i64 k = 0; k < g.k; k += s.tile_k)
      words += panels * panel_words(smaller(s.tile_k, g.k - k));
    return words;
  }
  i64 packed_bytes(const GemmArguments& g) const {
    return packed_words(g) * 4 * (g.batch_stride_b == 0 ? 1 : g.batch);
  }
  void pack_all(GemmArguments g, u32* out) const {
    const B* b = static_cast<const B*>(g.b);
    for (i64 batch = 0; batch < (g.batch_stride_b == 0 ? 1 : g.batch); ++batch) {
      g.b = b + batch * g.batch_stride_b;
      for (i64 k = 0; k < g.k; k += s.tile_k) {
        const Range depth{k, smaller(k + s.tile_k, g.k)};
        for (i64 n = 0; n < g.n; n += s.columns) {
          pack_b_panel(g, n, depth, out);
          out += panel_words(depth.end - depth.begin);
        }
      }
    }
  }
  const u32* packed_panel(const GemmArguments& g, i64 n, Range k) const {
    const i64 panels = blocks_of(g.n, s.columns);
    return static_cast<const u32*>(g.b) + k.begin / s.tile_k * panels * panel_words(s.tile_k) +
           n / s.columns * panel_words(k.end - k.begin);
  }

  GemmArguments batch_of(const GemmArguments& all, i64 batch) const {
    GemmArguments g = one_batch(all, s.sizes, batch);
    if (s.sizes.preshuffled && g.batch_stride_b != 0) {
      g.b = static_cast<const u32*>(g.b) + batch * packed_words(g);
    }
    return g;
  }

  // B for a block of k; packs it if this kernel packs B.
  const u32* prepare_b(const GemmArguments& g, Range n, Range k, u32* b_space) const {
    if (s.sizes.preshuffled) return packed_panel(g, n.begin, k);
    if (s.packs_b) {
      u32* out = b_space;
      for (i64 j = n.begin; j < n.end; j += s.columns, out += panel_words(k.end - k.begin)) {
        pack_b_panel(g, j, k, out);
      }
    } else if ((n.end - n.begin) % s.columns != 0) {
      pack_b_panel(g, n.begin + (n.end - n.begin) / s.columns * s.columns, k, b_space);
    }
    return b_space;
  }
};

}  // namespace tessera::device
