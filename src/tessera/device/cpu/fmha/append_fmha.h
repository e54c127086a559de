// New keys and values into a cache on a CPU, turned by their positions. Every element is read once
// and written once, so that memory sets the time; threads take runs of rows in turn.
#pragma once

#include "tessera/device/cpu/eight_bits.h"
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

// A head of a new token into a cache of 8 bits: turned, divided by its factor and rounded.
template <class C>
struct FmhaAppendBytes {
  using Kv = typename C::Kv;
  using Row = FmhaAppendRowOf<C>;
  const FmhaAppendArguments& g;
  const Row& row;
  i64 position;

  f32v load_at(i64 element, int count) const {
    return load_elements(row.from + element * row.from_stride, row.from_stride, count);
  }
  const float* angles(const float* table, i64 pair) const {
    return table + position * (g.rotary_dim / 2) + pair;
  }

  // Calls visit(element, count, x) for up to a vector of elements at a time, turned.
  template <class Visit>
  void for_each_vector(const Visit& visit) const {
    if constexpr (C::kRotary == FmhaRotary::half) turn_halves(visit);
    if constexpr (C::kRotary == FmhaRotary::interleaved) turn_neighbours(visit);
    for (i64 i = C::kRotary == FmhaRotary::none ? 0 : row.turned; i < row.count; i += kLanes) {
      const int count = lanes_left(row.count - i);
      visit(i, count, load_at(i, count));
    }
  }
  template <class Visit>
  void turn_halves(const Visit& visit) const {
    const i64 half = row.turned / 2;
    for (i64 i = 0; i < half; i += kLanes) {
      const int count = lanes_left(half - i);
      const auto both =
          turned(load_at(i, count), load_at(i + half, count), load_lanes(angles(g.cos, i), count),
                 load_lanes(angles(g.sin, i), count));
      visit(i, count, both.x);
      visit(i + half, count, both.y);
    }
  }
  template <class Visit>
  void turn_neighbours(const Visit& visit) const {
    constexpr AllLanes kAll{};
    for (i64 i = 0; i < row.turned; i += kLanes) {
      const int count = lanes_left(row.turned - i);
      const f32v x = load_at(i, count);
      const f32v c = doubled(load_lanes(angles(g.cos, i / 2), count / 2), kAll);
      const f32v s = doubled(load_lanes(angles(g.sin, i / 2), count / 2), kAll) * alternating(kAll);
      visit(i, count, x * c + neighbours_swapped(x, kAll) * s);
    }
  }

  // Lanes behind the last element are zero, or a turned zero.
  float most_of_row() const {
    float most = 0;
    for_each_vector([&](i64, int count, f32v x) {
      float together[kLanes];
      store(together, x);
      for (int i = 0; i < count; ++i) {
        const float size = together[i] < 0 ? -together[i] : together[i];
        if (size > most) most = size;
      }
    });
    return most;
  }

  void move(float* factor) const {
    float by = 1;
    if constexpr (C::kQscale == FmhaQscale::per_token) {
      *factor = most_of_row() / C::kLargest;
      by = inverse_of_factor(*factor);
    } else if constexpr (C::kQscale != FmhaQscale::none) {
      by = inverse_of_factor(*factor);
    }
    for_each_vector([&](i64 element, int count, f32v x) {
      Kv together[kLanes];
      store_rounded(together, x * by, kLanes);
      for (int i = 0; i < count; ++i) *row.to_element(element + i) = together[i];
    });
  }
};

template <class C>
struct FmhaAppendKernel {
  using T = typename C::In;
  using Row = FmhaQueryRowOf<C>;            // or of a cache of the same type
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

  template <class Sequence>
  static void move_row(const FmhaAppendArguments& g, const Sequence& s, i64 batch, i64 token,
                       i64 position, i64 row) {
    if (row >= 2 * g.heads_kv) {
      move(g, query_row<C>(g, s, batch, token, row - 2 * g.heads_kv), position);
    } else if constexpr (sizeof(typename C::Kv) == 1) {
      const auto its_row = append_row<C>(g, s, batch, token, row);
      FmhaAppendBytes<C>{g, its_row, position}.move(
          factor_of_row<C::kQscale, C::kPages>(g, s, batch, position, row));
    } else {
      move(g, append_row<C>(g, s, batch, token, row), position);
    }
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
        move_row(g, s, batch, token, position, row);
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
