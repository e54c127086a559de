// Operands with scales of blocks, which the blocked GEMM packs: both, and B anew in each call.
// Where a word is one element, elements take their scales when they are packed, as fp32. Where it
// is a pair of bf16, panels hold the scales of runs of k, by which register blocks multiply
// (scaled_block.h).
#pragma once

#include "tessera/device/cpu/gemm/packed_operands.h"
#include "tessera/device/gemm/scales.h"

namespace tessera::device {

// The scales of `count` neighbouring rows from `row` on at one k; 1 past the last row, and where
// there are none.
inline void copy_scales(const ScaleView& v, i64 row, i64 rows, i64 k, i64 count, float* to) {
  i64 i = 0;
  if (has_scales(v)) {
    const i64 along_k = scale_offset(v, k), most = smaller(count, rows - row);
    float scale = 1;
    for (i64 last = -1; i < most; ++i) {
      const i64 r = v.first_row + row + i, block = v.block_rows == 1 ? r : r / v.block_rows;
      if (block != last) scale = scale_number(v, block * v.stride_rows + along_k);
      to[i] = scale;
      last = block;
    }
  }
  for (; i < count; ++i) to[i] = 1;
}

// Multiplies the floats of a packed panel of `width` rows, of which the first is `row`.
inline void scale_panel(const ScaleView& v, i64 row, i64 rows, Range k, i64 width, u32* panel) {
  for (i64 strip = 0; strip < width; strip += kLanes) {
    const int count = static_cast<int>(smaller(kLanes, width - strip));
    for (i64 begin = k.begin; begin < k.end;) {
      const i64 end = smaller(end_of_block(v, begin), k.end);
      alignas(kVectorBytes) float own[kLanes];
      copy_scales(v, row + strip, rows, begin, kLanes, own);
      const f32v scales = load<f32v>(own);
      u32* at = panel + (begin - k.begin) * width + strip;
      for (i64 i = begin; i < end; ++i, at += width) {
        store_first(at, load_first<f32v>(at, count) * scales, count);
      }
      begin = end;
    }
  }
}

template <class T, int kPer = T::Math::kPerWord>
struct ScaledOperands;

// What both kinds share.
template <class T, class Own>
struct PackedAnew : PackedOperands<T> {
  ScaleView a_scales, b_scales;

  const u32* prepare_b(const GemmArguments& g, Range n, Range k, u32* b_space) const {
    const auto& own = static_cast<const Own&>(*this);
    u32* out = b_space;
    for (i64 j = n.begin; j < n.end; j += this->s.columns, out += own.panel_words(k.end - k.begin))
      own.pack_b_panel(g, j, k, out);
    return b_space;
  }
};

template <class T>
struct ScaledOperands<T, 1> : PackedAnew<T, ScaledOperands<T, 1>> {
  using Plain = PackedOperands<T>;

  void pack_a(const GemmArguments& g, Range m, Range k, u32* out) const {
    Plain::pack_a(g, m, k, out);
    if (!has_scales(this->a_scales)) return;
    const i64 rows = this->s.rows;
    for (i64 i = m.begin; i < m.end; i += rows, out += (k.end - k.begin) * rows) {
      scale_panel(this->a_scales, i, g.m, k, rows, out);
    }
  }
  void pack_b_panel(const GemmArguments& g, i64 n, Range k, u32* out) const {
    Plain::pack_b_panel(g, n, k, out);
    if (has_scales(this->b_scales)) scale_panel(this->b_scales, n, g.n, k, this->s.columns, out);
  }
};

template <class T>
struct ScaledOperands<T, 2> : PackedAnew<T, ScaledOperands<T, 2>> {
  using Plain = PackedOperands<T>;

  i64 run_words() const { return this->s.scaled_k / 2; }
  // Where the operands begin within a run; blocks of k begin there, too.
  i64 begun() const { return this->a_scales.first_k % this->s.scaled_k; }
  // The rows of a panel of so much k: its runs, of which the first and the last may be shorter.
  i64 words_of(i64 depth) const {
    return blocks_of(depth + begun(), this->s.scaled_k) * (run_words() + 1);
  }
  i64 panel_words(i64 depth) const { return words_of(depth) * this->s.columns; }

  // pack(at, depth, out) packs the words of a part of k. The rest of a run is zeros, and so are
  // runs behind the last one.
  template <class Pack>
  void pack_runs(const ScaleView& v, i64 row, i64 rows, Range k, i64 width, u32* out,
                 const Pack& pack) const {
    u32* const end = out + words_of(k.end - k.begin) * width;
    const auto clear = [](u32* from, u32* to) {
      __builtin_memset(from, 0, static_cast<unsigned long>(to - from) * 4);
    };
    for (i64 at = k.begin; at < k.end;) {
      const i64 left = this->s.scaled_k - (begun() + at) % this->s.scaled_k;
      const i64 depth = smaller(left, k.end - at);
      copy_scales(v, row, rows, at, width, reinterpret_cast<float*>(out));
      out += width;
      pack(at, depth, out);
      clear(out + blocks_of(depth, 2) * width, out + run_words() * width);
      out += run_words() * width;
      at += depth;
    }
    clear(out, end);
  }

  void pack_a(const GemmArguments& g, Range m, Range k, u32* out) const {
    const i64 rows = this->s.rows;
    for (i64 i = m.begin; i < m.end; i += rows, out += words_of(k.end - k.begin) * rows) {
      pack_runs(this->a_scales, i, g.m, k, rows, out, [&](i64 at, i64 depth, u32* to) {
        this->s.pack_a({Plain::a_at(g, i, at), g.ld_a, m.end - i, depth}, to);
      });
    }
  }
  void pack_b_panel(const GemmArguments& g, i64 n, Range k, u32* out) const {
    pack_runs(this->b_scales, n, g.n, k, this->s.columns, out, [&](i64 at, i64 depth, u32* to) {
      this->s.pack_b({Plain::b_at(g, n, at), g.ld_b, g.n - n, depth}, to);
    });
  }
};

}  // namespace tessera::device
