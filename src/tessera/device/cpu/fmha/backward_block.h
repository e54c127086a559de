// The gradients of one block of keys and one of queries on a CPU: weights and the gradients of
// scores, a row for each key, from which all products follow.
#pragma once

#include "tessera/device/cpu/fmha/flash_block.h"
#include "tessera/device/cpu/fmha/flash_dropout.h"
#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/cpu/fmha/flash_tokens.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/sums.h"
#include "tessera/device/fmha_backward.h"

namespace tessera::device {

// Queries [first, first + count) of one head of a sequence, and keys of the head that it shares.
struct BackwardQueries {
  FmhaSequence sequence;
  i64 batch, head;
  i64 first, count;
  i64 token() const { return sequence.first_query + first; }
};

// A thread's part of the workspace.
struct BackwardBuffers {
  FloatRows keys, values;             // as rows of products
  float* key_panels;                  // keys, as columns of dq
  float *queries, *douts;             // as columns of scores
  float *query_panels, *dout_panels;  // as columns of dk and dv
  FloatRows weights, scores, turned;  // {key, query}, {key, query}, {query, key}
  FloatRows dk, dv;
  FloatRows dbias;
  float *lse, *log_sum, *delta;  // of the queries of a block
  int* far;                      // whether one of them has an lse that is far from zero
  QueryRows rows;                // of all queries, which threads share
  int *sink, *begin, *end;
  u8* kept;  // random bytes {key, query}
};

inline void clear_rows(const FloatRows& rows, i64 from, i64 to, i64 columns) {
  for (i64 r = from; r < to; ++r) {
    for (i64 i = 0; i < columns; i += kLanes) store(rows.row(r) + i, f32v{});
  }
}

// Stores a row of sums times a factor.
template <class T>
inline void store_gradient(const float* sums, float factor, i64 count, T* to, i64 stride) {
  for (i64 i = 0; i < count; i += kLanes) {
    const int lanes = lanes_left(count - i);
    const f32v x = load<f32v>(sums + i) * factor;
    if (stride == 1) {
      store_float(to + i, x, lanes);
      continue;
    }
    T together[kLanes];
    store_float(together, x, kLanes);
    for (int j = 0; j < lanes; ++j) to[(i + j) * stride] = together[j];
  }
}

template <class C>
struct BackwardBlock {
  using In = typename C::In;
  using Bias = typename C::Bias;
  using Math = FlashMath<In>;
  using Arguments = FmhaBackwardArguments;
  using Queries = BackwardQueries;
  using Buffers = BackwardBuffers;
  static constexpr int kPer = Math::kPerWord;
  static constexpr int kRows = C::kWarpM, kWidth = C::kWarpN;
  static constexpr int kVectors = kWidth / kLanes;
  static constexpr int kKeys = C::kTileM, kQueries = C::kTileN;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(kKeys % kRows == 0 && kQueries % kWidth == 0 && kWidth % kLanes == 0, "tiles");

  // ---- the workspace ----

  static i64 pitch(i64 hdim) { return rounded(hdim, kLanes); }
  static i64 panels(i64 hdim, i64 tokens) { return rounded(hdim, kWidth) * tokens; }
  static constexpr i64 kTurnedRows = kQueries + kRows, kTurnedPitch = (kKeys + 15) / 16 * 16;

  static i64 floats(const FmhaArguments& g) {
    const i64 rows = pitch(g.hdim) + pitch(g.hdim_v);
    const i64 wide = rounded(g.hdim, kWidth) + rounded(g.hdim_v, kWidth);
    i64 sum = kKeys * 2 * rows + panels(g.hdim, kKeys) + kQueries * (rows + wide);
    sum += kKeys * kQueries * (C::kDbias ? 3 : 2) + kTurnedRows * kTurnedPitch;
    sum += 6 * kQueries + kKeys * kQueries / 4 + 2 * kLanes;
    return rounded(sum, 1024) + 16;  // threads' parts begin in different sets of a cache
  }

  static i64 row_of(const FmhaArguments& g, const Queries& at) {
    return row_of_query(g, C::kLengths, at.batch, at.head, at.token());
  }
  static i64 shared_floats(const FmhaArguments& g) {
    return rounded(floats_of_rows(g, C::kLengths), kLanes);
  }

  // `shared` are the floats that threads share, `next` the thread's own floats.
  static Buffers buffers(const FmhaArguments& g, float* shared, float* next) {
    const auto take = [&next](i64 count) {
      float* const begin = next;
      next += count;
      return begin;
    };
    Buffers b{};
    b.keys = {take(kKeys * pitch(g.hdim)), pitch(g.hdim)};
    b.values = {take(kKeys * pitch(g.hdim_v)), pitch(g.hdim_v)};
    b.dk = {take(kKeys * pitch(g.hdim)), pitch(g.hdim)};
    b.dv = {take(kKeys * pitch(g.hdim_v)), pitch(g.hdim_v)};
    b.key_panels = take(panels(g.hdim, kKeys));
    b.queries = take(kQueries * pitch(g.hdim));
    b.douts = take(kQueries * pitch(g.hdim_v));
    b.query_panels = take(panels(g.hdim, kQueries));
    b.dout_panels = take(panels(g.hdim_v, kQueries));
    b.weights = {take(kKeys * kQueries), kQueries};
    b.scores = {take(kKeys * kQueries), kQueries};
    if (C::kDbias) b.dbias = {take(kKeys * kQueries), kQueries};
    b.turned = {take(kTurnedRows * kTurnedPitch), kTurnedPitch};
    b.lse = take(kQueries), b.log_sum = take(kQueries), b.delta = take(kQueries);
    b.far = reinterpret_cast<int*>(take(kLanes));
    b.sink = reinterpret_cast<int*>(take(kQueries));
    b.begin = reinterpret_cast<int*>(take(kQueries));
    b.end = reinterpret_cast<int*>(take(kQueries));
    b.kept = reinterpret_cast<u8*>(take(kKeys * kQueries / 4));
    b.rows = rows_in(shared, g, C::kLengths);
    return b;
  }

  // ---- what is read ----

  static void copy_rows(const In* data, const i64 (&stride)[kTokenStrides], i64 first, i64 count,
                        i64 hdim, const FloatRows& to) {
    for (i64 i = 0; i < count; ++i) {
      const In* const token = data + first + i * stride[kToken];
      copy_query<kPer>(token, stride[kTokenElement], hdim, false, 1.0F, to.row(i));
    }
    clear_rows(to, count, rounded(count, kRows), to.ld);
  }

  // Keys and values of a block as rows, zeros behind them.
  static void load_keys(const FmhaArguments& g, const FmhaSequence& s, i64 batch, i64 head_kv,
                        const FlashBlock& block, const Buffers& b) {
    const i64 token = s.first_key + block.first;
    copy_rows(static_cast<const In*>(g.k), g.k_stride,
              token_offset(g.k_stride, batch, head_kv, token), block.count, g.hdim, b.keys);
    copy_rows(static_cast<const In*>(g.v), g.v_stride,
              token_offset(g.v_stride, batch, head_kv, token), block.count, g.hdim_v, b.values);
  }

  static PlacedTokens<In> placed(const void* data, const i64 (&stride)[kTokenStrides], i64 first,
                                 i64 count, i64* places) {
    for (i64 i = 0; i < count; ++i) places[i] = first + i * stride[kToken];
    return {static_cast<const In*>(data), places, stride[kTokenElement]};
  }

  static void pack_key_panels(const FmhaArguments& g, const FmhaSequence& s, i64 batch, i64 head_kv,
                              const FlashBlock& block, const Buffers& b) {
    i64 places[kKeys];
    const i64 first = token_offset(g.k_stride, batch, head_kv, s.first_key + block.first);
    const PlacedTokens<In> keys = placed(g.k, g.k_stride, first, block.count, places);
    pack_values<kWidth, kPer>(keys, block.count, g.hdim, kKeys, b.key_panels);
  }

  // Queries as columns of scores and, where `as_rows`, as what is added up for keys.
  static void pack_queries(const FmhaArguments& g, const Queries& at, bool as_rows,
                           const Buffers& b) {
    i64 places[kQueries];
    const i64 q = token_offset(g.q_stride, at.batch, at.head, at.token());
    const PlacedTokens<In> queries = placed(g.q, g.q_stride, q, at.count, places);
    pack_keys<kWidth, kPer>(queries, at.count, g.hdim, b.queries);
    if (as_rows) pack_values<kWidth, kPer>(queries, at.count, g.hdim, kQueries, b.query_panels);
    if constexpr (C::kMasked) set_limits(g, at, b);
  }
  // And the gradients of outputs.
  static void load_queries(const Arguments& a, const Queries& at, bool as_rows, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    pack_queries(g, at, as_rows, b);
    i64 places[kQueries];
    const i64 dout = token_offset(a.dout_stride, at.batch, at.head, at.token());
    const PlacedTokens<In> douts = placed(a.dout, a.dout_stride, dout, at.count, places);
    pack_keys<kWidth, kPer>(douts, at.count, g.hdim_v, b.douts);
    if (as_rows) pack_values<kWidth, kPer>(douts, at.count, g.hdim_v, kQueries, b.dout_panels);
    load_rows(g, at, b);
  }

  // Lanes behind the last query have weights of zero.
  static void load_rows(const FmhaArguments& g, const Queries& at, const Buffers& b) {
    const i64 first = row_of(g, at);
    int far = 0;
    for (i64 i = 0; i < rounded(at.count, kLanes); ++i) {
      const bool is_there = i < at.count;
      b.lse[i] = is_there ? b.rows.lse[first + i] : __builtin_inff();
      b.log_sum[i] = is_there ? b.rows.log_sum[first + i] : 0;
      b.delta[i] = is_there ? b.rows.delta[first + i] : 0;
      far |= is_far(b.lse[i]) || b.log_sum[i] != 0 ? 1 : 0;
    }
    *b.far = far;
  }

  static void set_limits(const FmhaArguments& g, const Queries& at, const Buffers& b) {
    for (i64 i = 0; i < rounded(at.count, kLanes); ++i) {
      const FmhaKeys keys = keys_of<true>(g, at.sequence, at.first + smaller(i, at.count - 1));
      b.sink[i] = static_cast<int>(keys.sink);
      b.begin[i] = static_cast<int>(keys.begin), b.end[i] = static_cast<int>(keys.end);
    }
  }

  // How many of the block's first keys some of the queries see, with those in between.
  static i64 seen_keys(const FmhaArguments& g, const Queries& at, const FlashBlock& block) {
    if constexpr (!C::kMasked) return block.count;
    const FmhaKeys first = keys_of<true>(g, at.sequence, at.first);
    const FmhaKeys last = keys_of<true>(g, at.sequence, at.first + at.count - 1);
    if (block.first + block.count <= first.begin && block.first >= last.sink) return 0;
    return clamped(last.end - block.first, 0, block.count);
  }

  // ---- weights and the gradients of scores ----

  // What the bias, or ALiBi's slope, is multiplied with in the scores of a key and the queries from
  // i on.
  static f32v bias_factors(const Queries& at, i64 key, i64 i) {
    if constexpr (C::kBias != FmhaBias::alibi) return splat(1.0F);
    const FmhaSequence& s = at.sequence;
    const i64 first = at.first + i + s.keys - s.queries - key;
    const i32v distance = splat(static_cast<int>(first)) + lane_numbers(AllLanes{});
    return magnitude(__builtin_convertvector(distance, f32v)) * -1.0F;
  }

  // What is added to the scores of a key and the queries from i on.
  static f32v bias_of(const FmhaArguments& g, const Queries& at, i64 key, i64 i) {
    if constexpr (C::kBias == FmhaBias::alibi) {
      return bias_factors(at, key, i) * g.slopes[at.batch * g.slope_stride + at.head];
    }
    if constexpr (C::kBias == FmhaBias::elementwise) {
      const i64 step = g.bias_stride[2];
      const Bias* const bias = static_cast<const Bias*>(g.bias) +
                               token_offset(g.bias_stride, at.batch, at.head, at.first + i) +
                               key * g.bias_stride[3];
      return load_elements(bias, step, lanes_left(at.count - i));
    }
    return f32v{};
  }

  // All ones in the lanes of queries that see a key.
  static i32v seen_by(const Buffers& b, i64 key, i64 i) {
    const i32v at = splat(static_cast<int>(key));
    const i32v in_window = (at >= load<i32v>(b.begin + i)) & (at < load<i32v>(b.end + i));
    return in_window | (at < load<i32v>(b.sink + i));
  }

  static void draw(const FmhaArguments& g, const Queries& at, const FlashBlock& block, i64 rows,
                   const Buffers& b) {
    for (i64 i = 0; i < at.count; ++i) {
      const RandomBytes<kKeys> random(
          dropout_key(g), dropout_row(g, at.batch, at.head, at.first + i), block.first, rows);
      for (i64 j = 0; j < rows; ++j) b.kept[j * kQueries + i] = *random.of(j);
    }
  }
  static f32v kept_of(const FmhaArguments& g, const Buffers& b, i64 row, i64 i) {
    if constexpr (!C::kDropout) return splat(1.0F);
    const u16v pair = __builtin_convertvector(load<u8v>(b.kept + row * kQueries + i), u16v);
    const i32v byte = __builtin_convertvector(pair, i32v);
    return select(byte < splat(g.kept), splat(dropout_scale(g)), f32v{});
  }

  // The scores of a key and the queries from i on, from their products; `capped` as the soft cap
  // leaves them. With kExact each step is rounded, so that equal products give equal bits wherever
  // the function is compiled: a difference from lse is then 0 where it should be.
  template <bool kExact>
  static f32v score_of(const FmhaArguments& g, const Queries& at, i64 key, i64 i, f32v product,
                       f32v& capped) {
    f32v x = product * g.scale;
    if constexpr (C::kSoftCap) x = capped = tanh(x * (1 / g.soft_cap)) * g.soft_cap;
    if constexpr (kExact) asm("" : "+x"(x));
    if constexpr (C::kBias != FmhaBias::none) x = x + bias_of(g, at, key, i);
    if constexpr (kExact) asm("" : "+x"(x));
    return x;
  }

  // Makes weights, and gradients of the products of q and k or, for kOfScores, of the scores, from
  // the products of one key. kFar: whether a query has a log_sum.
  template <bool kOfScores, bool kFar>
  static void weigh_row(const FmhaArguments& g, const Queries& at, i64 key, i64 row,
                        const Buffers& b) {
    float *const weights = b.weights.row(row), *const scores = b.scores.row(row);
    for (i64 i = 0; i < at.count; i += kLanes) {
      f32v capped{};
      const f32v x = score_of<kFar>(g, at, key, i, load<f32v>(weights + i), capped);
      f32v power = x - load<f32v>(b.lse + i);
      if constexpr (kFar) power = power - load<f32v>(b.log_sum + i);
      f32v weight = exp(power);
      if constexpr (C::kMasked) weight = select(seen_by(b, key, i), weight, f32v{});
      const f32v kept = kept_of(g, b, row, i);
      f32v gradient = score_gradient(weight, kept, load<f32v>(scores + i), load<f32v>(b.delta + i));
      if constexpr (C::kSoftCap && !kOfScores) {
        gradient = gradient * cap_gradient(capped, splat(g.soft_cap));
      }
      store(weights + i, weight * kept);
      store(scores + i, gradient);
    }
  }

  // The products of the block's first `rows` keys and the queries.
  static void multiply_queries(const FmhaArguments& g, const Queries& at, i64 rows,
                               const Buffers& b) {
    const i64 depth = blocks_of(g.hdim, kPer);
    for (i64 r = 0; r < rows; r += kRows) {
      multiply_panels<Math, kRows, kVectors, false>(b.keys.from(r), b.queries, kWidth * depth,
                                                    depth, at.count, b.weights.from(r));
    }
  }

  // The weights and gradients of the block's first `rows` keys; zeros up to whole register blocks.
  template <bool kOfScores>
  static void weigh(const Arguments& a, const Queries& at, const FlashBlock& block, i64 rows,
                    const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const i64 depth_v = blocks_of(g.hdim_v, kPer);
    multiply_queries(g, at, rows, b);
    for (i64 r = 0; r < rows; r += kRows) {
      multiply_panels<Math, kRows, kVectors, false>(b.values.from(r), b.douts, kWidth * depth_v,
                                                    depth_v, at.count, b.scores.from(r));
    }
    if constexpr (C::kDropout) draw(g, at, block, rows, b);
    if (*b.far == 0) {
      for (i64 r = 0; r < rows; ++r) weigh_row<kOfScores, false>(g, at, block.first + r, r, b);
    } else {
      for (i64 r = 0; r < rows; ++r) weigh_row<kOfScores, true>(g, at, block.first + r, r, b);
    }
    clear_rows(b.weights, rows, rounded(rows, kRows), at.count);
    clear_rows(b.scores, rows, rounded(rows, kRows), at.count);
  }

  // ---- sums ----

  // The gradients of products with a row for each query; zeros up to whole register blocks.
  static void turn(i64 rows, i64 count, const Buffers& b) {
    for (i64 i = 0; i < count; i += kLanes) {
      for (i64 r = 0; r < rows; r += kLanes) {
        u32v square[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) {
          square[j] = r + j < rows ? load<u32v>(b.scores.row(r + j) + i) : u32v{};
        }
        transpose(square);
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) store(b.turned.row(i + j) + r, square[j]);
      }
    }
    clear_rows(b.turned, rounded(count, kLanes), rounded(count, kRows), rows);
  }

  // Adds what queries and keys give each other; `dq` are the rows of these queries.
  static void add(const Arguments& a, const Queries& at, i64 rows, const FloatRows& dq,
                  const Buffers& b) {
    const FmhaArguments& g = a.forward;
    turn(rows, at.count, b);
    if constexpr (kPer > 1) {
      round_rows(b.weights, rounded(rows, kRows), at.count);
      round_rows(b.scores, rounded(rows, kRows), at.count);
      round_rows(b.turned, rounded(at.count, kRows), rows);
    }
    const i64 queries = blocks_of(at.count, kPer), panel = kWidth * kQueries;
    for (i64 r = 0; r < rows; r += kRows) {
      multiply_panels<Math, kRows, kVectors, true>(b.weights.from(r), b.dout_panels, panel, queries,
                                                   g.hdim_v, b.dv.from(r));
      multiply_panels<Math, kRows, kVectors, true>(b.scores.from(r), b.query_panels, panel, queries,
                                                   g.hdim, b.dk.from(r));
    }
    for (i64 i = 0; i < at.count; i += kRows) {
      multiply_panels<Math, kRows, kVectors, true>(b.turned.from(i), b.key_panels, kWidth * kKeys,
                                                   blocks_of(rows, kPer), g.hdim, dq.from(i));
    }
  }
};

}  // namespace tessera::device
