// The rows of a tile of attention with split keys: which queries they are, where these lie, and
// which keys they see.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/cuda/fmha/split_merge.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/device/cuda/fmha/token_rows.h"
#include "tessera/device/cuda/vectors.h"
#include "tessera/device/fmha.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// Keys as a range of a masked row: [0, sink) and [begin, end).
struct SplitKeys {
  int sink, begin, end;
  __device__ __forceinline__ bool has(int key) const {
    return key < sink || (key >= begin && key < end);
  }
};

// One row: a query of one head.
struct SplitRow {
  int query;
  i64 head;
  SplitKeys keys;
  float slope;
  float scale;  // of its products, where keys have 8 bits
};

// Rows of one key-value head of one sequence: the queries of all its heads, query by query.
template <class C>
struct SplitTile {
  using In = typename C::In;
  using Kv = typename C::Kv;
  static constexpr bool kBytes = sizeof(Kv) == 1;
  static constexpr bool kKeyFactors = splits_factors(C::kQscale);
  const FmhaArguments& g;
  FmhaSequence s;
  i64 batch, head_kv;
  int group;      // heads of the key-value head
  int first_row;  // of the tile
  int rows;

  __device__ __forceinline__ int query_of(int r) const { return (first_row + r) / group; }
  __device__ __forceinline__ i64 head_of(int r) const {
    return head_kv * group + (first_row + r) % group;
  }

  // A head's token in this sequence.
  template <class T>
  __device__ __forceinline__ T* token(const void* base, const i64 (&stride)[kTokenStrides],
                                      i64 head, i64 index) const {
    const i64 sequence = C::kLengths == FmhaLengths::packed ? 0 : batch * stride[kTokenBatch];
    return static_cast<T*>(const_cast<void*>(base)) + sequence + head * stride[kTokenHead] +
           index * stride[kToken];
  }

  // ---- keys and values, from the sequence's first token on ----

  template <bool kOfKeys>
  __device__ __forceinline__ const Kv* cache() const {
    return static_cast<const Kv*>(kOfKeys ? g.k : g.v);
  }
  // Whether a block of keys lies in one page.
  __device__ __forceinline__ bool has_whole_blocks(int keys) const {
    return static_cast<int>(g.page_size) % keys == 0;
  }
  // The page of a key; 0 without pages.
  __device__ __forceinline__ i64 page_of(int key) const {
    if constexpr (C::kPages == FmhaPages::none) return 0;
    return device::page_of(g, s, slot_of(g, key).entry);
  }
  // Tokens with the distance of tokens in the block from `key` on, which lies in `page`.
  template <bool kOfKeys>
  __device__ __forceinline__ StridedTokens<Kv> strided(int key, i64 page) const {
    const i64(&stride)[kTokenStrides] = kOfKeys ? g.k_stride : g.v_stride;
    if constexpr (C::kPages == FmhaPages::none) {
      return {token<const Kv>(cache<kOfKeys>(), stride, head_kv, s.first_key), stride[kToken], 1};
    }
    const i64 ahead = slot_of(g, key).token - key;
    return {cache<kOfKeys>() + page * stride[kTokenBatch] + head_kv * stride[kTokenHead] +
                ahead * stride[kToken],
            stride[kToken], 1};
  }
  template <bool kOfKeys>
  __device__ __forceinline__ PagedTokens<Kv, FmhaCacheLayout::linear, kOfKeys> paged() const {
    return {g, s, head_kv, 0};
  }

  // Row r; behind the last row the last one again.
  __device__ __forceinline__ SplitRow row(int r) const {
    if (r >= rows) r = rows - 1;
    SplitRow x = {query_of(r), head_of(r), {}, 0, 0};
    const FmhaKeys keys = keys_of<C::kMasked>(g, s, x.query);
    x.keys = {static_cast<int>(keys.sink), static_cast<int>(keys.begin),
              static_cast<int>(keys.end)};
    if constexpr (C::kBias == FmhaBias::alibi) x.slope = g.slopes[batch * g.slope_stride + x.head];
    return x;
  }

  // The keys that all rows see.
  __device__ __forceinline__ SplitKeys seen_by_all() const {
    const FmhaKeys low = keys_of<C::kMasked>(g, s, query_of(0));
    const FmhaKeys high = keys_of<C::kMasked>(g, s, query_of(rows - 1));
    return {static_cast<int>(low.sink), static_cast<int>(high.begin), static_cast<int>(low.end)};
  }

  // What all products of a row are multiplied by, where keys have 8 bits.
  __device__ __forceinline__ float scale_of(const SplitRow& r) const {
    float factor = score_factor<C::kQscale, In>(g);
    if constexpr (C::kQscale == FmhaQscale::per_head) factor *= g.descale_k[head_kv];
    return factor * query_factor<C::kQscale>(g, batch, r.head, r.query);
  }
  // And all results.
  __device__ __forceinline__ float scaled(float x) const {
    if constexpr (C::kQscale == FmhaQscale::per_head) x *= g.descale_v[head_kv];
    return scaled_result<C::kQscale, typename C::Out>(g, x);
  }

  // The score of a row and a key whose product, times the key's factor, is x.
  __device__ __forceinline__ float score(float x, const SplitRow& r, int key) const {
    x *= kBytes ? r.scale : g.scale;
    if constexpr (C::kSoftCap) x = g.soft_cap * tanh_fast(x * (1.0F / g.soft_cap));
    if constexpr (C::kBias == FmhaBias::alibi) x += alibi_of(r.slope, s, r.query, key);
    if constexpr (C::kBias == FmhaBias::elementwise) {
      const i64 place = batch * g.bias_stride[0] + r.head * g.bias_stride[1] +
                        r.query * g.bias_stride[2] + key * g.bias_stride[3];
      x += to_float(static_cast<const typename C::Bias*>(g.bias)[place]);
    }
    return x;
  }

  // Stores four outputs of row r from `column` on, and its lse.
  __device__ __forceinline__ void finish(int r, int column, const SplitSums& x) const {
    using Out = typename C::Out;
    const i64 query = s.first_query + query_of(r), head = head_of(r);
    Out* const out = token<Out>(g.out, g.out_stride, head, query);
    const i64 stride = g.out_stride[kTokenElement];
    const int left = static_cast<int>(g.hdim_v) - column;
    const float factor = x.total == 0 ? 0.0F : 1.0F / x.total;
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = scaled(factor == 0 ? 0.0F : x.x[i] * factor);
    if (sizeof(Out) > 1 && stride == 1) {
      const bool aligned = reinterpret_cast<u64>(out + column) % (4 * sizeof(Out)) == 0;
      if constexpr (sizeof(Out) > 1) store_floats<Out>(out + column, aligned, left, y);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i < left) out[(column + i) * stride] = rounded_output<Out>(y[i]);
      }
    }
    if (C::kLse && column == 0) {
      g.lse[batch * g.lse_stride[0] + head * g.lse_stride[1] + query * g.lse_stride[2]] =
          x.total == 0 ? minus_infinity() : x.most + logf(x.total);
    }
  }
};

// What a block computes: part `index` of the keys of a tile of rows.
template <class C>
struct SplitItem {
  int number, index;  // number: of the tile among all
  int batch, head_kv, group, first_row, rows;
  FmhaSequence s;

  template <class Arguments>
  __device__ __forceinline__ explicit SplitItem(const Arguments& a)
      : number(static_cast<int>(blockIdx.x) / a.parts),
        index(static_cast<int>(blockIdx.x) % a.parts) {
    const FmhaArguments& g = a.fmha;
    const int heads = static_cast<int>(g.heads_kv), pair = number / a.tiles;
    group = static_cast<int>(g.heads) / heads;
    batch = pair / heads, head_kv = pair % heads;
    first_row = number % a.tiles * C::kTileM;
    s = sequence_of<C::kLengths, C::kPages>(g, batch);
    rows = static_cast<int>(clamped(s.queries * group - first_row, 0, C::kTileM));
  }

  __device__ __forceinline__ SplitTile<C> tile(const FmhaArguments& g) const {
    return {g, s, batch, head_kv, group, first_row, rows};
  }
};

}  // namespace tessera::device
