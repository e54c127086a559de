// Packing: copies an operand into panels of words, so that the innermost loop reads one stream.
//
// A panel holds Width rows (of A) or columns (of B) for a range of k as [word][Width]. Beyond the
// range of k the panel holds zeros. Rows past the operand's end hold any values.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/words.h"

namespace tessera::device {

// An operand seen from its packed dimension: element (r, k) is at data[r * ld + k] when k is
// contiguous, else at data[k * ld + r].
template <class T>
struct PanelSource {
  const T* data;  // element (0, 0) of the panel
  i64 ld;
  i64 rows;   // rows from here to the operand's end
  i64 depth;  // k
};

// Word w of kLanes neighbouring rows from r on; zeros past the rows and the depth.
template <class T, class Math>
[[gnu::always_inline]] inline u32v column_words(const PanelSource<T>& s, i64 r, i64 w) {
  constexpr int kPer = Math::kPerWord;
  const T* p = s.data + w * kPer * s.ld + r;
  const i64 rows = s.rows - r < kLanes ? s.rows - r : kLanes;
  const i64 depth = s.depth - w * kPer < kPer ? s.depth - w * kPer : kPer;
  if (rows == kLanes && depth == kPer) return load_words_across<T, Math>(p, s.ld);
  T padded[kPer * kLanes] = {};
  for (i64 u = 0; u < depth && rows > 0; ++u) {
    __builtin_memcpy(padded + u * kLanes, p + u * s.ld,
                     static_cast<unsigned long>(rows) * sizeof(T));
  }
  return load_words_across<T, Math>(padded, kLanes);
}

// Stores the part of a strip of kLanes words that lies inside a panel of this Width. A panel
// narrower than a vector is stored as a whole vector. The next word's store overwrites the surplus,
// and there is room for it behind the last panel (kPanelSlack).
inline constexpr int kPanelSlack = kLanes;

template <int Width>
[[gnu::always_inline]] inline void store_strip(u32* out, int strip, u32v words) {
  if (Width <= kLanes || Width - strip >= kLanes) return store(out, words);
  store_first(out, words, Width - strip);
}

// One square at the end of a K-contiguous operand. Rows past the last one repeat it, because their
// results are never stored. Elements past the depth are zero.
template <class T, int kSpan>
[[gnu::noinline]] void copy_square(const T* p, i64 ld, i64 rows, i64 depth, T* out) {
  __builtin_memset(out, 0, sizeof(T) * kLanes * kSpan);
  for (i64 i = 0; i < kLanes; ++i) {
    __builtin_memcpy(out + i * kSpan, p + smaller(i, rows - 1) * ld,
                     static_cast<unsigned long>(depth) * sizeof(T));
  }
}

// Rows of a K-contiguous operand: squares of words, transposed in registers.
template <class T, class Math, int Width, bool kBias>
[[gnu::noinline]] void pack_rows(PanelSource<T> s, u32* out) {
  constexpr int kPer = Math::kPerWord;
  constexpr int kSpan = kLanes * kPer;
  const i64 words = (s.depth + kPer - 1) / kPer;
  T padded[kLanes * kSpan];
  u32 tail[kLanes * kLanes];
  for (int strip = 0; strip < Width && strip < s.rows; strip += kLanes) {
    const i64 rows = smaller(s.rows - strip, kLanes);
    for (i64 w = 0; w < words; w += kLanes) {
      const T* p = s.data + strip * s.ld + w * kPer;
      i64 ld = s.ld;
      const i64 depth = smaller(s.depth - w * kPer, kSpan);
      if (rows < kLanes || depth < kSpan) {
        copy_square<T, kSpan>(p, ld, rows, depth, padded);
        p = padded;
        ld = kSpan;
      }
      u32v square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        square[i] = bias<Math, kBias>(load_words<T, Math>(p));
        p += ld;
        if (i % 4 == 3) asm("" : "+r"(p));  // otherwise each row's offset takes a register
      }
      transpose(square);
      u32* to = out + w * Width + strip;
      if (words - w >= kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store_strip<Width>(to + i * Width, strip, square[i]);
        continue;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(tail + i * kLanes, square[i]);
      for (i64 i = 0; i < words - w; ++i) {
        store_strip<Width>(to + i * Width, strip, load<u32v>(tail + i * kLanes));
      }
    }
  }
}

// Neighbouring rows of an operand whose k is strided: words come out in order.
template <class T, class Math, int Width, bool kBias>
[[gnu::noinline]] void pack_columns(PanelSource<T> s, u32* out) {
  constexpr int kPer = Math::kPerWord;
  constexpr int kStrips = (Width + kLanes - 1) / kLanes;
  constexpr i64 kAhead = 16;  // words between a load and its prefetch
  i64 w = 0;
  if (s.rows >= kStrips * kLanes) {
    for (; (w + 1) * kPer <= s.depth; ++w) {
      const T* p = s.data + w * kPer * s.ld;
#pragma GCC unroll 8
      for (int i = 0; i < kStrips; ++i) {
        __builtin_prefetch(p + kAhead * kPer * s.ld + i * kLanes);
        const u32v row = load_words_across<T, Math>(p + i * kLanes, s.ld);
        store_strip<Width>(out + w * Width + i * kLanes, i * kLanes, bias<Math, kBias>(row));
      }
    }
  }
  for (; w * kPer < s.depth; ++w) {
    for (int i = 0; i < kStrips; ++i) {
      const u32v row = column_words<T, Math>(s, i * kLanes, w);
      store_strip<Width>(out + w * Width + i * kLanes, i * kLanes, bias<Math, kBias>(row));
    }
  }
}

template <class T, class Math, int Width, bool kBias, bool kKContiguous>
[[gnu::always_inline]] inline void pack_panel(const PanelSource<T>& s, u32* out) {
  if constexpr (kKContiguous) return pack_rows<T, Math, Width, kBias>(s, out);
  pack_columns<T, Math, Width, kBias>(s, out);
}

// The initial values of each column's accumulators for a biased Math: -128 * the column's sum.
template <class Math, int Width>
inline void column_corrections(const u32* panel, i64 words, u32* out) {
  for (int j = 0; j < Width; j += kLanes) {
    typename Math::Acc sum{};
    for (i64 w = 0; w < words; ++w) {
      sum = Math::mac(sum, u32v{} + 0x80808080U, load<u32v>(panel + w * Width + j));
    }
    store(out + j, typename Math::Acc{} - sum);
  }
}

// The number of words in front of a panel of B: its corrections.
template <class Math>
constexpr i64 panel_start(i64 columns) {
  return Math::kBiased ? columns : 0;
}

// ---- what kernels share as compiled code ----

// A panel of A. kBias is false when register blocks also read A in place: they add the bias when
// they load, or B is biased.
template <class T, class Math, int Width, bool kBias, bool kKContiguous>
void pack_a_panel(const PanelSource<T>& s, u32* out) {
  pack_panel<T, Math, Width, kBias, kKContiguous>(s, out);
}

// A panel of B, biased, or preceded by its corrections where A is biased.
template <class T, class Math, int Width, bool kKContiguous>
void pack_b_panel(const PanelSource<T>& s, u32* out) {
  u32* panel = out + panel_start<Math>(Width);
  pack_panel<T, Math, Width, kBiasesB<Math>, kKContiguous>(s, panel);
  if constexpr (Math::kBiased) {
    column_corrections<Math, Width>(panel, blocks_of(s.depth, Math::kPerWord), out);
  }
}

}  // namespace tessera::device
