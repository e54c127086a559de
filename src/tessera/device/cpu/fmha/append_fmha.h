// New keys and values into a cache on a CPU, turned by their positions. Every element is read once
// and written once, so that memory sets the time; threads take runs of rows in turn.
#pragma once

#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/cpu/fmha/page_check.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/fmha_append.h"

namespace tessera::device {

// Stores up to a vector of elements, converted.
template <class T>
[[gnu::always_inline]] inline void store_elements(T* p, i64 stride, f32v x, int count) {
  if (stride == 1) return store_float(p, x, count);
  T together[kLanes];
  store_float(together, x, kLanes);
  for (int i = 0; i < count; ++i) p[i * stride] = together[i];
}

template <int... I>
[[gnu::always_inline]] inline f32v neighbours_swapped(f32v x, Lanes<I...>) {
  return __builtin_shufflevector(x, x, (I ^ 1)...);
}
// Each of the first half's lanes twice.
template <int... I>
[[gnu::always_inline]] inline f32v doubled(f32v x, Lanes<I...>) {
  return __builtin_shufflevector(x, x, (I / 2)...);
}
// The second lane of each pair is minus the first one's number.
template <int... I>
[[gnu::always_inline]] inline f32v alternating(Lanes<I...>) {
  return f32v{(I % 2 == 0 ? -1.0F : 1.0F)...};
}

template <class C>
struct FmhaAppendKernel {
  using T = typename C::In;
  using Row = FmhaAppendRowOf<C>;
  static constexpr i64 kRowsTogether = 32;  // that a thread takes at a time

  static f32v load_at(const Row& row, i64 element, int count) {
    return load_elements(row.from + element * row.from_stride, row.from_stride, count);
  }
  static void store_at(const Row& row, i64 element, f32v x, int count) {
    if constexpr (Row::kTo == FmhaCacheLayout::linear) {
      return store_elements(row.to_element(element), row.to_stride, x, count);
    }
    T together[kLanes];
    store_float(together, x, kLanes);
    for (int i = 0; i < count; ++i) *row.to_element(element + i) = together[i];
  }

  // Pairs of elements half the turned ones apart. Both are read before one is written: `to` may be
  // `from`.
  static void turn_halves(const Row& row, const float* cos, const float* sin) {
    const i64 half = row.turned / 2;
    for (i64 i = 0; i < half; i += kLanes) {
      const int count = lanes_left(half - i);
      const auto both = turned(load_at(row, i, count), load_at(row, i + half, count),
                               load_lanes(cos + i, count), load_lanes(sin + i, count));
      store_at(row, i, both.x, count);
      store_at(row, i + half, both.y, count);
    }
  }

  // Pairs of neighbours: turned() of each lane and its neighbour, the angle's sign in sin.
  static void turn_neighbours(const Row& row, const float* cos, const float* sin) {
    constexpr AllLanes kAll{};
    for (i64 i = 0; i < row.turned; i += kLanes) {
      const int count = lanes_left(row.turned - i);
      const f32v x = load_at(row, i, count);
      const f32v c = doubled(load_lanes(cos + i / 2, count / 2), kAll);
      const f32v s = doubled(load_lanes(sin + i / 2, count / 2), kAll) * alternating(kAll);
      store_at(row, i, x * c + neighbours_swapped(x, kAll) * s, count);
    }
  }

  // The bits as they are: a conversion would change some NaN.
  static void copy_rest(const Row& row) {
    if (Row::kTo == FmhaCacheLayout::linear && row.from_stride == 1 && row.to_stride == 1) {
      constexpr int kSize = static_cast<int>(sizeof(T));
      constexpr i64 kWhole = kVectorBytes / kSize;
      i64 i = row.turned;
      for (; i + kWhole <= row.count; i += kWhole) store(row.to + i, load<u32v>(row.from + i));
      const int bytes = static_cast<int>(row.count - i) * kSize;
      if (bytes > 0) store_bytes(row.to + i, load_bytes(row.from + i, bytes), bytes);
      return;
    }
    for (i64 i = row.turned; i < row.count; ++i) {
      *row.to_element(i) = row.from[i * row.from_stride];
    }
  }

  static void move(const FmhaAppendArguments& g, const Row& row, i64 position) {
    if constexpr (C::kRotary != FmhaRotary::none) {
      if (row.turned > 0) {
        const i64 at = position * (g.rotary_dim / 2);
        if constexpr (C::kRotary == FmhaRotary::half) turn_halves(row, g.cos + at, g.sin + at);
        if constexpr (C::kRotary == FmhaRotary::interleaved) {
          turn_neighbours(row, g.cos + at, g.sin + at);
        }
      }
    }
    copy_rest(row);
  }

  // Rows [begin, end) of all rows of all tokens.
  static void move_rows(const FmhaAppendArguments& g, Range rows) {
    const i64 of_token = rows_of_token(g, C::kRotateQ);
    i64 row = rows.begin % of_token;
    i64 token = rows.begin / of_token % g.seqlen_q;
    i64 batch = rows.begin / of_token / g.seqlen_q;
    auto s = sequence_of<C::kLengths, C::kPages>(g, batch);
    for (i64 left = rows.end - rows.begin; left > 0; --left) {
      const i64 position = s.position + token;
      if (token < s.count && has_place(g, s, position)) {
        move(g, append_row<C>(g, s, batch, token, row), position);
      }
      if (++row < of_token) continue;
      row = 0;
      if (++token < g.seqlen_q || left == 1) continue;
      token = 0;
      s = sequence_of<C::kLengths, C::kPages>(g, ++batch);
    }
  }

  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const FmhaAppendArguments*>(arguments);
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const i64 rows = g.batch * g.seqlen_q * rows_of_token(g, C::kRotateQ);
    for (i64 begin = thread->index * kRowsTogether; begin < rows;
         begin += thread->count * kRowsTogether) {
      move_rows(g, {begin, smaller(begin + kRowsTogether, rows)});
    }
  }

  static i64 workspace_bytes(const void*, int) { return 0; }

  static constexpr CpuKernel kernel() {
    static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
    if constexpr (C::kPages == FmhaPages::none) {
      return {C::kAbiVersion, {{workspace_bytes, run}}};
    } else {
      using Check = PageCheck<C::kLengths, C::kPages, FmhaAppendArguments>;
      return {C::kAbiVersion, {{workspace_bytes, run}, {Check::workspace_bytes, Check::run}}};
    }
  }
};

}  // namespace tessera::device
