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

// Where the elements of keys or values begin. Behind them follows what is read next.
template <class T>
struct TokenRun {
  const T* const* tokens;
  i64 count, hdim;  // hdim: whole vectors
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

// Asks for tokens that are read later, line by line and in their order, while others are
// multiplied. Many at once would fill the queue of the memory, and leave it empty afterwards.
template <class T>
struct Asked {
  const T* const* token;  // null: nothing is asked for
  i64 hdim, at;

  // As many lines as kTokens vectors have.
  template <int kTokens>
  [[gnu::always_inline]] void next() {
    constexpr int kLine = 64 / static_cast<int>(sizeof(T));
    constexpr int kLines = kTokens * kLanes > kLine ? kTokens * kLanes / kLine : 1;
    if (token == nullptr) return;
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) {
      __builtin_prefetch(*token + at, 0, 2);
      at += kLine;
      if (at >= hdim) at = 0, ++token;
    }
  }
};

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
inline void multiply_keys(FloatRows q, const T* const* places, i64 hdim, FloatRows c,
                          const T* const* later) {
  constexpr int kKeys = kChains / kRows;
  const T* keys[kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) keys[k] = places[k];
  f32v sums[kChains] = {};
  Asked<T> asked = {later, hdim, 0};
  for (i64 at = 0; at < hdim; at += kLanes) {
    asked.template next<kKeys>();
    add_products<kRows>(q, keys, at, sums);
  }
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
inline void add_values(FloatRows weights, const T* const* places, i64 hdim, FloatRows c,
                       const T* const* later) {
  const T* values[kKeys];
  f32v factors[kRows][kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
    values[k] = places[k];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) factors[r][k] = splat(weights.row(r)[k]);
  }
  Asked<T> asked = {later, hdim, 0};
  for (i64 at = 0; at < hdim; at += kLanes) {
    asked.template next<kKeys>();
    add_weighted(factors, values, at, c);
  }
}

// What the first row asks for while it is multiplied with the tokens from `at` on.
template <class T>
[[gnu::always_inline]] inline const T* const* later(const TokenRun<T>& run, i64 at, i64 row) {
  return row == 0 ? run.tokens + at + kTokensAhead : nullptr;
}

// ---- what kernels share as compiled code ----

// c[r][k] = the product of query r and key k. Whole chains are written, and read, behind the last
// key. Keys go by in chains, so that they stay in L1 for all rows.
template <class T>
void multiply_few_keys(const FloatRows& q, i64 rows, const TokenRun<T>& keys, const FloatRows& c) {
  for (i64 key = 0; key < keys.count; key += kChains) {
    const T* const* const tokens = keys.tokens + key;
    i64 row = 0;
    for (; row + 2 <= rows; row += 2) {
      for (i64 k = 0; k < kChains; k += kChains / 2) {
        multiply_keys<2>(q.from(row), tokens + k, keys.hdim, c.from(row, key + k),
                         later(keys, key + k, row));
      }
    }
    if (row == rows) continue;
    multiply_keys<1>(q.from(row), tokens, keys.hdim, c.from(row, key), later(keys, key, row));
  }
}

// c[r] += the sum of weights[r][k] * value k.
template <class T>
void add_few_values(const FloatRows& weights, i64 rows, const TokenRun<T>& values,
                    const FloatRows& c) {
  i64 key = 0;
  for (; key + kChains <= values.count; key += kChains) {
    const T* const* const tokens = values.tokens + key;
    i64 row = 0;
    for (; row + 2 <= rows; row += 2) {
      for (i64 k = 0; k < kChains; k += kChains / 2) {
        add_values<2, kChains / 2>(weights.from(row, key + k), tokens + k, values.hdim, c.from(row),
                                   later(values, key + k, row));
      }
    }
    if (row == rows) continue;
    add_values<1, kChains>(weights.from(row, key), tokens, values.hdim, c.from(row),
                           later(values, key, row));
  }
  for (; key < values.count; ++key) {
    for (i64 row = 0; row < rows; ++row) {
      add_values<1, 1>(weights.from(row, key), values.tokens + key, values.hdim, c.from(row),
                       later(values, key, row));
    }
  }
}

}  // namespace tessera::device
