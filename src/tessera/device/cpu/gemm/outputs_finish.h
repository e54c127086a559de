// Finishes the sums of a few rows where out has a gate, rows by index or 8 bits: the epilogue in
// place, the gate, and the store, each over a row that stays in L1.
#pragma once

#include "tessera/device/cpu/epilogue.h"
#include "tessera/device/cpu/norm/eight_bit_rows.h"
#include "tessera/device/gemm/outputs.h"

namespace tessera::device {

// Sums of rows of the product, of which each has a row in memory. Without a gate that takes halves
// there is one run of columns.
struct OutputRows {
  const OutputArguments* all;
  const GemmArguments* gemm;  // of the product
  u32* sums;
  i64 ld;  // from one row's sums to the next
  i64 rows;
  const i64* named;  // of each row: its row of out, C and D tensors; -1: none
  i64 column;        // of out: the first one
  i64 count;         // columns of out
  i64 half;          // from the sums of the first half to those of the second
  float* scales;     // of row 0 of out
};

template <class C>
struct OutputsFinish {
  using Out = typename C::Out;
  static constexpr bool kGated = C::kGate != Gate::none;
  static constexpr bool kIsExact = __is_same(Out, int);

  template <class Visit>
  [[gnu::always_inline]] static void for_each_vector(i64 count, const Visit& visit) {
    i64 i = 0;
    for (; i + kLanes <= count; i += kLanes) visit(i, kLanes);
    if (i < count) visit(i, static_cast<int>(count - i));
  }
  [[gnu::always_inline]] static f32v load_lanes(const float* x, int lanes) {
    return lanes == kLanes ? load<f32v>(x) : load_first<f32v>(x, lanes);
  }

  // The epilogue of columns that follow each other, in the place of their sums.
  static void finish_columns(const GemmArguments& g, u32* sums, i64 row, i64 column, i64 count) {
    using Acc = typename C::Math::Acc;
    for_each_vector(count, [&](i64 i, int lanes) {
      const Place at{row, column + i, lanes};
      const Acc acc = load_first<Acc>(sums + i, lanes);
      const Out* c = static_cast<const Out*>(g.c) + row * g.ld_c + at.column;
      if constexpr (kIsExact) {
        i32v x = acc * static_cast<int>(g.alpha);
        if (g.beta != 0) x += load_first<i32v>(c, lanes) * static_cast<int>(g.beta);
        store_first(sums + i, x, lanes);
      } else {
        f32v x;
        if constexpr (__is_same(Acc, i32v)) {
          x = __builtin_convertvector(acc, f32v) * g.alpha;
        } else {
          x = acc * g.alpha;
        }
        if constexpr (C::kQuant == NormQuant::none) {
          if (g.beta != 0) x += load_float<Out>(c, lanes) * g.beta;
        }
        store_first(sums + i, apply_steps<C, 0, 0>(g, x, at), lanes);
      }
    });
  }

  [[gnu::always_inline]] static f32v gated(f32v x, f32v y) {
    if constexpr (C::kGate == Gate::silu_mul) return silu(x) * y;
    if constexpr (C::kGate == Gate::gelu_mul) return gelu(x) * y;
    return gelu_tanh(x) * y;
  }
  template <int... I>
  [[gnu::always_inline]] static f32v every_second(f32v a, f32v b, Lanes<I...>) {
    return __builtin_shufflevector(a, b, (2 * I)...);
  }
  template <int... I>
  [[gnu::always_inline]] static f32v other_second(f32v a, f32v b, Lanes<I...>) {
    return __builtin_shufflevector(a, b, (2 * I + 1)...);
  }

  // In place: a vector is written behind where the next one is read.
  static void gate_row(float* x, i64 count, i64 half) {
    for_each_vector(count, [&](i64 i, int lanes) {
      if constexpr (!C::kGateInterleaved) {
        store_first(x + i, gated(load_lanes(x + i, lanes), load_lanes(x + half + i, lanes)), lanes);
      } else {
        const int first = 2 * lanes < kLanes ? 2 * lanes : kLanes, second = 2 * lanes - first;
        const f32v a = load_lanes(x + 2 * i, first);
        const f32v b = second > 0 ? load_lanes(x + 2 * i + first, second) : f32v{};
        const f32v even = every_second(a, b, AllLanes{}), odd = other_second(a, b, AllLanes{});
        store_first(x + i, gated(even, odd), lanes);
      }
    });
  }

  // ---- stores ----

  static void store_quantised(const OutputRows& t, Out* to, float* x, i64 row) {
    using Eight = EightBitRows<C>;
    const int count = static_cast<int>(t.count);
    const auto result = [x](int i, int lanes, int) __attribute__((always_inline)) {
      return load_lanes(x + i, lanes);
    };
    if constexpr (C::kQuant == NormQuant::tensor) {
      return Eight::store_over(to, x, count, 1.0F / *t.all->out_scale);
    }
    float* scales = t.scales + row * t.all->row_of_scales;
    if constexpr (C::kQuant == NormQuant::block) {
      const i64 step = t.all->block_of_scales;
      return Eight::write_blocks(scales + t.column / kQuantBlock * step, step, to, x, count,
                                 result);
    }
    Greatest greatest;
    device::for_each_vector(
        count, [&](int i, int lanes, int number) __attribute__((always_inline)) {
          greatest.add(result(i, lanes, number), number);
        });
    *scales = Eight::scale_of(greatest);
    Eight::store_over(to, x, count, 1.0F / *scales);
  }
  static void store_row(const OutputRows& t, u32* sums, i64 row) {
    Out* to = static_cast<Out*>(t.gemm->out) + row * t.gemm->ld_out + t.column;
    auto* x = reinterpret_cast<float*>(sums);
    if constexpr (kIsExact) {
      for_each_vector(t.count, [&](i64 i, int lanes) {
        store_first(to + i, load_first<i32v>(sums + i, lanes), lanes);
      });
    } else if constexpr (C::kQuant != NormQuant::none) {
      store_quantised(t, to, x, row);
    } else {
      for_each_vector(t.count, [&](i64 i, int lanes) {
        store_float<Out>(to + i, load_lanes(x + i, lanes), lanes);
      });
    }
  }

  static void finish_row(const OutputRows& t, const GemmArguments& g, u32* sums, i64 row) {
    if constexpr (!kGated) {
      finish_columns(g, sums, row, t.column, t.count);
    } else if constexpr (C::kGateInterleaved) {
      finish_columns(g, sums, row, 2 * t.column, 2 * t.count);
    } else {
      finish_columns(g, sums, row, t.column, t.count);
      finish_columns(g, sums + t.half, row, g.n / 2 + t.column, t.count);
    }
    if constexpr (kGated) gate_row(reinterpret_cast<float*>(sums), t.count, t.half);
    store_row(t, sums, row);
  }

  // The arguments are copied, because the compiler would otherwise assume that stores change them.
  [[gnu::noinline]] static void run(const OutputRows& rows) {
    const OutputRows t = rows;
    const GemmArguments g = *t.gemm;
    for (i64 i = 0; i < t.rows; ++i) {
      if (t.named[i] >= 0) finish_row(t, g, t.sums + i * t.ld, t.named[i]);
    }
  }
};

}  // namespace tessera::device
