// The operands of the blocked GEMM: where they are read in place, how panels of them are packed,
// and preshuffle, which packs every panel of B ahead.
#pragma once

#include "tessera/device/cpu/pack.h"

namespace tessera::device {

template <class C>
struct PackedOperands {
  using A = typename C::A;
  using B = typename C::B;
  using Math = typename C::Math;

  static constexpr int kRows = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kPer = Math::kPerWord;
  static_assert(C::kPackA || sizeof(A) * kPer == 4, "A is read in place only as 32-bit words");
  static_assert(C::kPackA || kPer == 1 || C::kAKContiguous, "A's words are in place along k only");
  static_assert(C::kPackB || (sizeof(B) == 4 && !C::kBKContiguous),
                "B is read in place only as rows of 32-bit words");
  static_assert(C::kPackB || !C::kPreshuffled, "a preshuffled B is packed");

  static constexpr int kStart = Math::kBiased ? kColumns : 0;  // words of corrections in a panel
  static i64 words_of(i64 depth) { return (depth + kPer - 1) / kPer; }
  static i64 panel_words(i64 depth) { return kStart + words_of(depth) * kColumns; }
  static i64 round_up(i64 size, i64 to) { return (size + to - 1) / to * to; }

  // Rows of A that are read where they lie: whole register blocks. Where k ends within a word, that
  // word is read whole, so that what it holds beyond has to be part of rows that follow.
  static i64 rows_in_place(const GemmArguments& g, Range m, i64 depth) {
    if (C::kPackA) return 0;
    const i64 beyond = round_up(depth, kPer) - depth;
    i64 rows = (m.end - m.begin) / kRows * kRows;
    while (rows > 0 && (g.m - m.begin - rows) * g.ld_a < beyond) rows -= kRows;
    return rows;
  }

  static const A* a_at(const GemmArguments& g, i64 m, i64 k) {
    const A* a = static_cast<const A*>(g.a);
    return C::kAKContiguous ? a + m * g.ld_a + k : a + k * g.ld_a + m;
  }
  static const B* b_at(const GemmArguments& g, i64 n, i64 k) {
    const B* b = static_cast<const B*>(g.b);
    return C::kBKContiguous ? b + n * g.ld_b + k : b + k * g.ld_b + n;
  }

  static void pack_a(const GemmArguments& g, Range m, Range k, u32* out) {
    const i64 depth = k.end - k.begin;
    for (i64 i = m.begin; i < m.end; i += kRows) {
      pack_panel<A, Math, kRows, C::kPackA, C::kAKContiguous>(
          {a_at(g, i, k.begin), g.ld_a, m.end - i, depth}, out);
      out += words_of(depth) * kRows;
    }
  }

  static void pack_b_panel(const GemmArguments& g, i64 n, Range k, u32* out) {
    const i64 depth = k.end - k.begin;
    pack_panel<B, Math, kColumns, false, C::kBKContiguous>(
        {b_at(g, n, k.begin), g.ld_b, g.n - n, depth}, out + kStart);
    if constexpr (Math::kBiased) {
      column_corrections<Math, kColumns>(out + kStart, words_of(depth), out);
    }
  }

  // ---- preshuffle: every panel of B, k block by k block ----

  static i64 packed_words(const GemmArguments& g) {
    const i64 panels = blocks_of(g.n, kColumns);
    i64 words = 0;
    for (i64 k = 0; k < g.k; k += C::kTileK) {
      words += panels * panel_words(smaller(C::kTileK, g.k - k));
    }
    return words;
  }
  static i64 packed_bytes(const void* arguments) {
    const auto& g = *static_cast<const GemmArguments*>(arguments);
    return packed_words(g) * 4 * (g.batch_stride_b == 0 ? 1 : g.batch);
  }
  static void pack(const void* arguments, void* packed) {
    GemmArguments g = *static_cast<const GemmArguments*>(arguments);
    const B* b = static_cast<const B*>(g.b);
    u32* out = static_cast<u32*>(packed);
    for (i64 batch = 0; batch < (g.batch_stride_b == 0 ? 1 : g.batch); ++batch) {
      g.b = b + batch * g.batch_stride_b;
      for (i64 k = 0; k < g.k; k += C::kTileK) {
        const Range depth{k, smaller(k + C::kTileK, g.k)};
        for (i64 n = 0; n < g.n; n += kColumns) {
          pack_b_panel(g, n, depth, out);
          out += panel_words(depth.end - depth.begin);
        }
      }
    }
  }
  static const u32* packed_panel(const GemmArguments& g, i64 n, Range k) {
    const i64 panels = blocks_of(g.n, kColumns);
    return static_cast<const u32*>(g.b) + k.begin / C::kTileK * panels * panel_words(C::kTileK) +
           n / kColumns * panel_words(k.end - k.begin);
  }

  static GemmArguments batch_of(const GemmArguments& all, i64 batch) {
    GemmArguments g = one_batch<C>(all, batch);
    if (C::kPreshuffled && g.batch_stride_b != 0) {
      g.b = static_cast<const u32*>(g.b) + batch * packed_words(g);
    }
    return g;
  }

  // B for a block of k, packed where it is packed at all.
  static const u32* prepare_b(const GemmArguments& g, Range n, Range k, u32* b_space) {
    if constexpr (C::kPreshuffled) {
      return packed_panel(g, n.begin, k);
    } else if constexpr (C::kPackB) {
      u32* out = b_space;
      for (i64 j = n.begin; j < n.end; j += kColumns, out += panel_words(k.end - k.begin)) {
        pack_b_panel(g, j, k, out);
      }
    } else if ((n.end - n.begin) % kColumns != 0) {
      pack_b_panel(g, n.begin + (n.end - n.begin) / kColumns * kColumns, k, b_space);
    }
    return b_space;
  }
};

}  // namespace tessera::device
