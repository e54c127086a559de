// silu_mul, gelu_mul, gelu_tanh_mul and copy of rows on a CPU, in chunks of tile_n columns: a
// function of the gates times what they stand beside, or what was read.
#pragma once

#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/norm/eight_bit_rows.h"
#include "tessera/device/cpu/rows.h"

namespace tessera::device {

template <class C>
struct ElementwiseRows {
  using In = typename C::In;
  using Out = typename C::Out;
  using Eight = EightBitRows<C>;
  static constexpr int kChunk = C::kTileN;
  // Whether chunks of a row have nothing to do with each other.
  static constexpr bool kIsCut = C::kQuant != NormQuant::row;
  static constexpr i64 kCachedBytes = i64{4} << 20;

  // The columns of a row that are computed at a time, and where their elements of `in` begin.
  struct Place {
    const NormArguments& g;
    i64 row, begin;
    int count;
    const In* in;
    Out* out;
  };
  static Place place_of(const NormArguments& g, i64 row, i64 begin) {
    const i64 first = C::kInterleaved ? 2 * begin : begin;
    return {g,
            row,
            begin,
            static_cast<int>(smaller(g.columns - begin, kChunk)),
            static_cast<const In*>(g.in) + g.ld_in * row + first,
            static_cast<Out*>(g.out) + g.ld_out * row + begin};
  }

  [[gnu::always_inline]] static f32v activated(f32v gate) {
    if constexpr (C::kKind == NormKind::silu_mul) return silu(gate);
    if constexpr (C::kKind == NormKind::gelu_mul) return gelu(gate);
    return gelu_tanh(gate);
  }

  template <int... I>
  [[gnu::always_inline]] static f32v of_pairs(f32v a, f32v b, Lanes<I...>) {
    const f32v gates = __builtin_shufflevector(a, b, (2 * I)...);
    return activated(gates) * __builtin_shufflevector(a, b, (2 * I + 1)...);
  }

  // The results of some lanes from column i of the place on; 0 in the others.
  [[gnu::always_inline]] static f32v result(const Place& p, int i, int lanes) {
    if constexpr (!is_gated(C::kKind)) {
      return load_lanes(p.in + i, lanes);
    } else if constexpr (C::kInterleaved) {
      const In* const from = p.in + 2 * i;
      const int more = 2 * lanes - kLanes;
      const f32v a = load_lanes(from, more > 0 ? kLanes : 2 * lanes);
      return of_pairs(a, more > 0 ? load_lanes(from + kLanes, more) : f32v{}, AllLanes{});
    } else {
      return activated(load_lanes(p.in + i, lanes)) * load_lanes(p.in + p.g.columns + i, lanes);
    }
  }

  static void write_plain(const Place& p, bool past_cache) {
    const bool is_aligned = reinterpret_cast<unsigned long>(p.out) % kVectorBytes == 0;
    const bool past = past_cache && is_aligned;
    f32v last;
    const auto visit = [&](int i, int lanes, int number) __attribute__((always_inline)) {
      const f32v y = result(p, i, lanes);
      if (number % 2 == 1) return store_two(p.out + i - kLanes, last, y, past);
      if (number < 0) return store_float(p.out + i, y, lanes);
      last = y;
    };
    for_each_vector(p.count, visit);
  }

  static void write_over(const Place& p, float factor) {
    RoundedStores<Out> stores;
    for_each_vector(
        p.count, [&](int i, int lanes, int number) __attribute__((always_inline)) {
          stores.put(p.out + i, result(p, i, lanes) * factor, lanes, number);
        });
  }

  static void write_blocks(const Place& p) {
    alignas(kVectorBytes) float x[kChunk];
    Eight::write_blocks(
        Eight::scales_from(p.g, p.row, p.begin), p.g.block_of_scales, p.out, x,
        p.count, [&](int i, int lanes, int) __attribute__((always_inline)) {
          return result(p, i, lanes);
        });
  }

  // All of a row, which is computed twice where one chunk does not hold it.
  static void write_row(const NormArguments& g, i64 row) {
    alignas(kVectorBytes) float x[kChunk];
    Greatest greatest;
    for (i64 begin = 0; begin < g.columns; begin += kChunk) {
      const Place p = place_of(g, row, begin);
      for_each_vector(p.count, [&](int i, int lanes, int number) {
        Eight::keep(x + i, result(p, i, lanes), lanes, number, greatest);
      });
    }
    const float scale = g.out_scales[row * g.row_of_scales] = Eight::scale_of(greatest);
    if (g.columns <= kChunk) {
      const Place p = place_of(g, row, 0);
      return Eight::store_over(p.out, x, p.count, 1.0F / scale);
    }
    for (i64 begin = 0; begin < g.columns; begin += kChunk) {
      write_over(place_of(g, row, begin), 1.0F / scale);
    }
  }

  static void run(const NormArguments& g, const CpuThread& thread) {
    const i64 chunks = kIsCut ? (g.columns + kChunk - 1) / kChunk : 1;
    const bool past_cache = g.rows * g.columns * i64{sizeof(Out)} > kCachedBytes;
    const Range mine = part(g.rows * chunks, 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      if constexpr (C::kQuant == NormQuant::row) {
        write_row(g, i);
      } else {
        const Place p = place_of(g, i / chunks, i % chunks * kChunk);
        if constexpr (C::kQuant == NormQuant::none) write_plain(p, past_cache);
        if constexpr (C::kQuant == NormQuant::block) write_blocks(p);
        if constexpr (C::kQuant == NormQuant::tensor) write_over(p, 1.0F / *g.out_scale);
      }
    }
    if (past_cache) finish_stores();
  }
};

}  // namespace tessera::device
