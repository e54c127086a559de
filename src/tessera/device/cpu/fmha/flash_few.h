// The products of few rows of attention on a CPU, with keys and values where they lie. Memory sets
// the time of such rows, and packing would cost more than it saves: each key and value is read
// once and serves all rows from there.
#pragma once

#include "tessera/device/cpu/fmha/flash_block.h"
#include "tessera/device/cpu/fmha/flash_pack.h"

namespace tessera::device {

// Sums that grow side by side: as many as hide the latency of a multiplication.
inline constexpr int kChains = kLanes < 8 ? kLanes : 8;

// So many tokens before its use each one is asked for.
inline constexpr int kTokensAhead = 16;

// Places behind the last token of a run that are looked at for that. They hold any address.
inline constexpr int kTokensBehind = kTokensAhead + 16;

// Where the elements of keys or values begin. Behind them follows what is read next. Heads that are
// read together lie `step` elements apart.
template <class T>
struct TokenRun {
  const T* const* tokens;
  i64 count, hdim;  // hdim: whole vectors
  i64 heads, step;
};

// Lane i is the sum of the lanes of v[i % kChains].
template <int W = kLanes / 2, int... I>
[[gnu::always_inline]] inline f32v sums_of_each(f32v (&v)[kChains], Lanes<I...> all) {
#pragma GCC unroll 8
  for (int i = 0; i < (W < kChains ? W : kChains); ++i) {
    const f32v& other = v[W < kChains ? i + W : i];
    v[i] = __builtin_shufflevector(v[i], other, ((I & W) != 0 ? kLanes + I - W : I)...) +
           __builtin_shufflevector(v[i], other, ((I & W) != 0 ? kLanes + I : I + W)...);
  }
  if constexpr (W > 1) return sums_of_each<W / 2>(v, all);
  return v[0];
}

// Asks for a line that is read later, once for each line.
template <class T>
[[gnu::always_inline]] inline void ask(const T* token, i64 at) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(T));
  if (at % kLine == 0) __builtin_prefetch(token + at, 0, 2);
}

// ---- the first row, which brings tokens from memory, one behind the other ----

// c[k] = the product of the query and key k, for kChains keys that lie `skip` elements behind their
// places.
template <class T>
inline void multiply_first(const float* q, const T* const* places, i64 skip, i64 hdim, float* c) {
  f32v sums[kChains];
#pragma GCC unroll 8
  for (int k = 0; k < kChains; ++k) {
    const T* const key = places[k] + skip;
    const T* const next = places[k + kTokensAhead] + skip;
    f32v sum = {};
    for (i64 at = 0; at < hdim; at += kLanes) {
      ask(next, at);
      sum = sum + load<f32v>(q + at) * load_lanes(key + at, kLanes);
    }
    sums[k] = sum;
  }
  const f32v all = sums_of_each(sums, AllLanes{});
#pragma GCC unroll 8
  for (int k = 0; k < kChains; ++k) c[k] = all[k];
}

// Adds kVectors vectors of `count` weighted values to c.
template <int kVectors, class T>
[[gnu::always_inline]] inline void add_piece(const float* weights, const T* const* places, i64 skip,
                                             i64 count, float* c) {
  f32v sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sums[v] = load<f32v>(c + v * kLanes);
  for (i64 k = 0; k < count; ++k) {
    const T* const value = places[k] + skip;
    const T* const next = places[k + kTokensAhead] + skip;
    const f32v weight = splat(weights[k]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      ask(next, v * kLanes);
      sums[v] = sums[v] + weight * load_lanes(value + v * kLanes, kLanes);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) store(c + v * kLanes, sums[v]);
}

// c += the sum of weights[k] * value k, for up to kChains values.
template <int kVectors = 8, class T>
inline void add_first(const float* weights, const T* const* places, i64 skip, i64 count, i64 hdim,
                      float* c) {
  constexpr i64 kPiece = kVectors * kLanes;
  i64 at = 0;
  for (; at + kPiece <= hdim; at += kPiece) {
    add_piece<kVectors>(weights, places, skip + at, count, c + at);
  }
  if constexpr (kVectors > 1) {
    if (at < hdim) add_first<kVectors / 2>(weights, places, skip + at, count, hdim - at, c + at);
  }
}

// ---- the other rows, whose tokens are in L1 ----

// Adds the products of up to a vector of elements of kRows queries and the keys.
template <int kRows, class T>
[[gnu::always_inline]] inline void add_products(const FloatRows& q, const T* const* keys, i64 at,
                                                f32v (&sums)[kChains]) {
  constexpr int kKeys = kChains / kRows;
  f32v rows[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) rows[r] = load<f32v>(q.row(r) + at);
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
    const f32v key = load_lanes(keys[k] + at, kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r * kKeys + k] = sums[r * kKeys + k] + rows[r] * key;
  }
}

// c[r][k] = the product of query r and key k, for kRows queries and kChains / kRows keys.
template <int kRows, class T>
inline void multiply_keys(FloatRows q, const T* const* places, i64 skip, i64 hdim, FloatRows c) {
  constexpr int kKeys = kChains / kRows;
  const T* keys[kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) keys[k] = places[k] + skip;
  f32v sums[kChains] = {};
  for (i64 at = 0; at < hdim; at += kLanes) add_products<kRows>(q, keys, at, sums);
  const f32v all = sums_of_each(sums, AllLanes{});
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) c.row(r)[k] = all[r * kKeys + k];
  }
}

// Adds the weighted elements of kKeys values to a vector of sums of each of kRows rows.
template <int kRows, int kKeys, class T>
[[gnu::always_inline]] inline void add_weighted(const f32v (&weights)[kRows][kKeys],
                                                const T* const* values, i64 at,
                                                const FloatRows& c) {
  f32v sums[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = load<f32v>(c.row(r) + at);
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
    const f32v value = load_lanes(values[k] + at, kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r] = sums[r] + weights[r][k] * value;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) store(c.row(r) + at, sums[r]);
}

// c[r] += weights[r][k] * values[k] for kRows rows and kKeys values.
template <int kRows, int kKeys, class T>
inline void add_values(FloatRows weights, const T* const* places, i64 skip, i64 hdim, FloatRows c) {
  const T* values[kKeys];
  f32v factors[kRows][kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
    values[k] = places[k] + skip;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) factors[r][k] = splat(weights.row(r)[k]);
  }
  for (i64 at = 0; at < hdim; at += kLanes) add_weighted(factors, values, at, c);
}

// The products of all rows of a head and kChains keys.
template <class T>
inline void multiply_chain(const FloatRows& q, i64 rows, const T* const* tokens, i64 skip, i64 hdim,
                           const FloatRows& c) {
  multiply_first(q.row(0), tokens, skip, hdim, c.row(0));
  i64 row = 1;
  for (; row + 2 <= rows; row += 2) {
    for (i64 k = 0; k < kChains; k += kChains / 2) {
      multiply_keys<2>(q.from(row), tokens + k, skip, hdim, c.from(row, k));
    }
  }
  if (row < rows) multiply_keys<1>(q.from(row), tokens, skip, hdim, c.from(row));
}

// Adds up to kChains values to the sums of all rows of a head.
template <class T>
inline void add_chain(const FloatRows& weights, i64 rows, const T* const* tokens, i64 skip,
                      i64 count, i64 hdim, const FloatRows& c) {
  add_first(weights.row(0), tokens, skip, count, hdim, c.row(0));
  i64 row = 1;
  if (count == kChains) {
    for (; row + 2 <= rows; row += 2) {
      for (i64 k = 0; k < kChains; k += kChains / 2) {
        add_values<2, kChains / 2>(weights.from(row, k), tokens + k, skip, hdim, c.from(row));
      }
    }
    if (row < rows) add_values<1, kChains>(weights.from(row), tokens, skip, hdim, c.from(row));
    return;
  }
  for (; row < rows; ++row) {
    for (i64 k = 0; k < count; ++k) {
      add_values<1, 1>(weights.from(row, k), tokens + k, skip, hdim, c.from(row));
    }
  }
}

// ---- what kernels share as compiled code ----

// c[r][k] = the product of query r and key k, for `rows` rows of each head. Whole chains are
// written, and read, behind the last key. Keys go by in chains, so that they stay in L1 for all
// rows.
template <class T>
void multiply_few_keys(const FloatRows& q, i64 rows, const TokenRun<T>& keys, const FloatRows& c) {
  for (i64 key = 0; key < keys.count; key += kChains) {
    for (i64 head = 0; head < keys.heads; ++head) {
      multiply_chain(q.from(head * rows), rows, keys.tokens + key, head * keys.step, keys.hdim,
                     c.from(head * rows, key));
    }
  }
}

// c[r] += the sum of weights[r][k] * value k, likewise.
template <class T>
void add_few_values(const FloatRows& weights, i64 rows, const TokenRun<T>& values,
                    const FloatRows& c) {
  for (i64 key = 0; key < values.count; key += kChains) {
    const i64 count = values.count - key < kChains ? values.count - key : kChains;
    for (i64 head = 0; head < values.heads; ++head) {
      add_chain(weights.from(head * rows, key), rows, values.tokens + key, head * values.step,
                count, values.hdim, c.from(head * rows));
    }
  }
}

}  // namespace tessera::device
