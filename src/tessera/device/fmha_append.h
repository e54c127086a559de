// What appending to a cache of keys and values shares on every backend and in its reference: the
// arguments, where a new token goes, which elements are turned together, and by what. Pages are
// found by the functions of fmha.h.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

enum class FmhaRotary { none, interleaved, half };

// The one argument of the kernels that append. Plain C layout; a change here raises the family's
// ABI number. Strides count elements. Packed sequences are one run of tokens: the batch's strides
// of all but k and v are 0.
struct FmhaAppendArguments {
  const void *q, *k_new, *v_new;
  const float *cos, *sin;  // {positions, rotary_dim / 2}
  const int *seqlens_q, *seqlens_k;
  void *k, *v, *out;
  i64 batch, heads, heads_kv;
  i64 seqlen_q;  // new tokens of the longest sequence
  i64 tokens_q;  // packed: of all sequences
  // Keys of every sequence where seqlens_k is null, and whether these lengths count the new tokens.
  i64 seqlen_k, counts_new;
  i64 end;  // of the positions that are written: the cache's room, or the tables' rows
  i64 hdim, hdim_v, rotary_dim;
  i64 q_stride[kTokenStrides], k_new_stride[kTokenStrides], v_new_stride[kTokenStrides];
  i64 k_stride[kTokenStrides], v_stride[kTokenStrides], out_stride[kTokenStrides];
  // As in FmhaArguments.
  const int *page_table, *page_starts;
  int* bad_page;
  i64 page_size, num_pages;
  i64 max_pages, table_stride;
  i64 page_entries;
  float *descale_k, *descale_v;  // of a cache of 8 bits: written where tokens have factors
};

// The one argument of the kernels that append and then attend, whose arguments are `Attention`.
template <class Attention>
struct FmhaExtendArguments {
  Attention attention;
  FmhaAppendArguments append;
};

// The new tokens of a sequence: how many, where the first one lies, and its position in the cache.
struct FmhaNewTokens {
  i64 count, first, position;
};
// The same with pages: also the end of the positions that have an entry, and the place of the
// sequence's first entry in page_table.
struct FmhaPagedTokens {
  i64 count, first, position;
  i64 end, first_key;
};

template <FmhaLengths kLengths>
inline FmhaNewTokens new_tokens_of(const FmhaAppendArguments& g, i64 batch) {
  FmhaNewTokens s = {g.seqlen_q, 0, g.seqlens_k == nullptr ? g.seqlen_k : g.seqlens_k[batch]};
  if constexpr (kLengths == FmhaLengths::packed) {
    packed_part(g.seqlens_q, batch, g.tokens_q, g.seqlen_q, s.first, s.count);
  }
  if constexpr (kLengths == FmhaLengths::padded) {
    s.count = clamped(g.seqlens_q[batch], 0, g.seqlen_q);
  }
  if (g.counts_new != 0) s.position -= s.count;
  return s;
}
template <FmhaLengths kLengths, FmhaPages kPages>
inline auto sequence_of(const FmhaAppendArguments& g, i64 batch) {
  const FmhaNewTokens s = new_tokens_of<kLengths>(g, batch);
  if constexpr (kPages == FmhaPages::none) {
    return s;
  } else {
    FmhaPagedTokens paged = {s.count, s.first, s.position, g.end, 0};
    paged_part<kPages>(g, batch, paged.first_key, paged.end);
    return paged;
  }
}

// Whether a token of this position is written at all, whatever the lengths hold.
inline bool has_place(const FmhaAppendArguments& g, const FmhaNewTokens&, i64 position) {
  return position >= 0 && position < g.end;
}
inline bool has_place(const FmhaAppendArguments&, const FmhaPagedTokens& s, i64 position) {
  return position >= 0 && position < s.end;
}

// The entries [first_entry, entries_of) that the new tokens need; the former may be larger.
inline i64 first_entry(const FmhaAppendArguments& g, const FmhaPagedTokens& s) {
  return s.position < 0 ? 0 : s.position / g.page_size;
}
inline i64 entries_of(const FmhaAppendArguments& g, const FmhaPagedTokens& s) {
  const i64 end = s.position + s.count < s.end ? s.position + s.count : s.end;
  return s.count == 0 || end <= 0 ? 0 : (end - 1) / g.page_size + 1;
}

// How far runs of elements are apart; nothing where there are none.
template <FmhaCacheLayout kLayout>
struct FmhaRunDistance {
  constexpr explicit FmhaRunDistance(i64 /*elements*/) {}
};
template <>
struct FmhaRunDistance<FmhaCacheLayout::vectorized> {
  i64 elements;
};

// One head of a new token: what moves where, the elements that are turned first. In a vectorized
// cache the elements of a run are to_stride apart, and runs to_far.
template <class T, FmhaCacheLayout kLayout, class To = T>
struct FmhaAppendRow {
  static constexpr FmhaCacheLayout kTo = kLayout;
  const T* from;
  To* to;
  i64 from_stride, to_stride;  // of elements
  i64 count, turned;
  [[no_unique_address]] FmhaRunDistance<kLayout> to_far;
  To* to_element(i64 element) const {
    if constexpr (kLayout == FmhaCacheLayout::linear) {
      return to + element * to_stride;
    } else {
      constexpr i64 kRun = 16 / static_cast<i64>(sizeof(To));
      return to + element / kRun * to_far.elements + element % kRun * to_stride;
    }
  }
};

// A token's rows: its heads of keys, of values, and of queries where these are turned.
inline i64 rows_of_token(const FmhaAppendArguments& g, bool rotates_q) {
  return 2 * g.heads_kv + (rotates_q ? g.heads : 0);
}

// Where a head of a new token goes in k and in v, in elements.
struct FmhaAppendPlaces {
  i64 key, value;
};
template <FmhaPages kPages, FmhaCacheLayout kLayout, class Sequence>
inline FmhaAppendPlaces append_places(const FmhaAppendArguments& g, const Sequence& s, i64 batch,
                                      i64 head, i64 position, i64 run) {
  if constexpr (kPages == FmhaPages::none) {
    return {token_offset(g.k_stride, batch, head, position),
            token_offset(g.v_stride, batch, head, position)};
  } else {
    const FmhaSlot slot = slot_of(g, position);
    const i64 page = page_of(g, s, slot.entry);
    return {key_token(g, page, head, slot.token),
            value_token<kLayout>(g, page, head, slot.token, run)};
  }
}

// C: types, lengths, pages and layout of the kernel. Rows of keys and of values go to a cache of
// type Kv, rows of queries to one of the queries' own.
template <class C>
using FmhaAppendRowOf = FmhaAppendRow<typename C::In, C::kCacheLayout, typename C::Kv>;
template <class C>
using FmhaQueryRowOf = FmhaAppendRow<typename C::In, C::kCacheLayout>;

template <class C, class Sequence>
inline FmhaQueryRowOf<C> query_row(const FmhaAppendArguments& g, const Sequence& s, i64 batch,
                                   i64 token, i64 query) {
  using T = typename C::In;
  constexpr i64 kRun = 16 / static_cast<i64>(sizeof(T));
  const i64 from = s.first + token;
  return {static_cast<const T*>(g.q) + token_offset(g.q_stride, batch, query, from),
          static_cast<T*>(g.out) + token_offset(g.out_stride, batch, query, from),
          g.q_stride[kTokenElement],
          g.out_stride[kTokenElement],
          g.hdim,
          g.rotary_dim,
          FmhaRunDistance<C::kCacheLayout>{kRun * g.out_stride[kTokenElement]}};
}

// Row 0 is the first of a token's heads of keys, those of values follow.
template <class C, class Sequence>
inline FmhaAppendRowOf<C> append_row(const FmhaAppendArguments& g, const Sequence& s, i64 batch,
                                     i64 token, i64 row) {
  using T = typename C::In;
  using To = typename C::Kv;
  using Far = FmhaRunDistance<C::kCacheLayout>;
  constexpr i64 kRun = 16 / static_cast<i64>(sizeof(To));
  const auto places = [&](i64 head) {
    return append_places<C::kPages, C::kCacheLayout>(g, s, batch, head, s.position + token, kRun);
  };
  const i64 from = s.first + token;
  if (row < g.heads_kv) {
    return {static_cast<const T*>(g.k_new) + token_offset(g.k_new_stride, batch, row, from),
            static_cast<To*>(g.k) + places(row).key,
            g.k_new_stride[kTokenElement],
            g.k_stride[kTokenElement],
            g.hdim,
            g.rotary_dim,
            Far{kRun * g.page_size}};
  }
  const i64 head = row - g.heads_kv;
  return {static_cast<const T*>(g.v_new) + token_offset(g.v_new_stride, batch, head, from),
          static_cast<To*>(g.v) + places(head).value,
          g.v_new_stride[kTokenElement],
          g.v_stride[kTokenElement],
          g.hdim_v,
          0,
          Far{kRun * g.v_stride[kTokenElement]}};
}

// ---- caches of 8 bits ----

// The factor of a row of keys or values of a new token.
template <FmhaQscale kQscale, FmhaPages kPages, class Sequence>
inline float* factor_of_row(const FmhaAppendArguments& g, const Sequence& s, i64 batch,
                            i64 position, i64 row) {
  float* const factors = row < g.heads_kv ? g.descale_k : g.descale_v;
  const i64 head = row < g.heads_kv ? row : row - g.heads_kv;
  if constexpr (kQscale == FmhaQscale::per_tensor) return factors;
  if constexpr (kQscale == FmhaQscale::per_head) return factors + head;
  if constexpr (kPages == FmhaPages::none) {
    return factors + (batch * g.heads_kv + head) * g.seqlen_k + position;
  } else {
    const FmhaSlot slot = slot_of(g, position);
    const i64 page = page_of(g, s, slot.entry);
    return factors + (page * g.heads_kv + head) * g.page_size + slot.token;
  }
}

// By what elements are multiplied in place of a division by their factor.
inline float inverse_of_factor(float factor) { return factor == 0 ? 0.0F : 1.0F / factor; }

// Two elements that are turned together, and the pair that an element belongs to.
struct FmhaPair {
  i64 index, first, second;
};
inline FmhaPair pair_of(FmhaRotary rotary, i64 element, i64 rotary_dim) {
  if (rotary == FmhaRotary::interleaved) return {element / 2, element / 2 * 2, element / 2 * 2 + 1};
  const i64 half = rotary_dim / 2;
  const i64 index = element < half ? element : element - half;
  return {index, index, index + half};
}

// The turn of a pair (x, y) by an angle, of numbers or of vectors of them. Su et al., "RoFormer",
// 2021, equation 34.
template <class Number>
struct FmhaTurned {
  Number x, y;
};
template <class Number>
inline FmhaTurned<Number> turned(Number x, Number y, Number cos, Number sin) {
  return {x * cos - y * sin, y * cos + x * sin};
}

// ---- how a GPU's block shares out rows ----

// Threads of a row and rows of a token that a block takes at a time, both powers of two; the
// block's other threads take further tokens.
struct FmhaAppendBlock {
  int thread_bits, row_bits, tokens;
};

constexpr int bits_for(i64 count, int most) {
  int bits = 0;
  while (bits < most && (i64{1} << bits) < count) ++bits;
  return bits;
}

// The pieces of `vector` elements of a row; a piece of the pairs i and i + half has two of them.
constexpr i64 append_pieces(FmhaRotary rotary, i64 count, i64 rotary_dim, int vector) {
  const i64 firsts = rotary == FmhaRotary::half ? rotary_dim / 2 : rotary_dim;
  return (firsts + vector - 1) / vector + (count - rotary_dim + vector - 1) / vector;
}

inline FmhaAppendBlock append_block(const FmhaAppendArguments& g, FmhaRotary rotary, bool rotates_q,
                                    int vector, int thread_bits) {
  const i64 of_key = append_pieces(rotary, g.hdim, g.rotary_dim, vector);
  const i64 of_value = append_pieces(rotary, g.hdim_v, 0, vector);
  const int threads = bits_for(of_key > of_value ? of_key : of_value, 5);
  const int rows = bits_for(rows_of_token(g, rotates_q), thread_bits - threads);
  return {threads, rows, 1 << (thread_bits - threads - rows)};
}

}  // namespace tessera::device
