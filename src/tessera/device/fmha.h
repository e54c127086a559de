// What attention of every backend and its reference share: the arguments, where a sequence and its
// pages lie, and which keys a query sees.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class FmhaLengths { equal, packed, padded };
enum class FmhaBias { none, elementwise, alibi };
enum class FmhaPages { none, table, list };
enum class FmhaCacheLayout { linear, vectorized };
enum class FmhaQscale { none, per_tensor, per_block, kv_block, per_head, per_token };

// Indices into strides.
enum { kTokenBatch, kTokenHead, kToken, kTokenElement, kTokenStrides };

// The one argument of every attention kernel. Plain C layout; a change here raises the family's ABI
// number (kAbi in src/tessera/families/fmha/fmha.h). Strides count elements.
struct FmhaArguments {
  const void *q, *k, *v;
  const void* bias;
  const float* slopes;
  const int *seqlens_q, *seqlens_k;
  void* out;
  float* lse;
  i64 batch, heads, heads_kv;
  i64 seqlen_q, seqlen_k;  // of the longest sequence
  i64 tokens_q, tokens_k;  // packed: of all sequences
  i64 hdim, hdim_v;
  i64 q_stride[kTokenStrides], k_stride[kTokenStrides], v_stride[kTokenStrides];
  i64 out_stride[kTokenStrides];
  i64 bias_stride[kTokenStrides];  // {batch, head, query, key}
  i64 lse_stride[3];               // {batch, head, query}
  i64 slope_stride;
  i64 window_left, window_right;  // -1: no end
  i64 sink;
  i64 skip_q;
  float scale, soft_cap;
  int at_end;  // whether the mask's diagonal ends at the last query and the last key
  // Dropout, see fmha_dropout.h.
  int kept;
  const unsigned long long* dropout_rng;  // {seed, offset}; null: the two that follow
  unsigned long long seed, offset;
  unsigned char* random_values;
  // Pages: k_stride and v_stride are {page, head, token of a page, element}.
  const int *page_table, *page_starts;
  int* bad_page;  // null: pages are not checked
  i64 page_size, num_pages;
  i64 max_pages, table_stride;  // table: entries of a sequence, their distance
  i64 page_entries;             // list: of all sequences
  // Factors of numbers of 8 bits, see fmha_scales.h.
  const float *descale_q, *descale_k, *descale_v, *scale_o;
  i64 block_q, block_k;    // queries and keys of a factor
  i64 blocks_q, blocks_k;  // factors of a head
  // Parts of the keys that were asked for; 0: as the kernel chooses; below 0: as many as a
  // sequence's own keys say, for split_work.h minus the steps of a part.
  i64 num_splits;
};

// Where a head's token lies.
inline i64 token_offset(const i64 (&stride)[kTokenStrides], i64 batch, i64 head, i64 token) {
  return batch * stride[kTokenBatch] + head * stride[kTokenHead] + token * stride[kToken];
}

// Queries and keys of one sequence: how many, and where the first one lies, in tokens. With pages,
// first_key is the place of the sequence's first entry in page_table.
struct FmhaSequence {
  i64 queries, keys;
  i64 first_query, first_key;
};

inline i64 clamped(i64 x, i64 least, i64 most) { return x < least ? least : x > most ? most : x; }

// `sums` are prefix sums; whatever they hold, the result lies within [0, tokens) and is no longer
// than `longest`.
inline void packed_part(const int* sums, i64 sequence, i64 tokens, i64 longest, i64& first,
                        i64& count) {
  first = clamped(sums[sequence], 0, tokens);
  count =
      clamped(sums[sequence + 1] - first, 0, longest < tokens - first ? longest : tokens - first);
}

// Where a sequence's entries begin in page_table, and how many of its keys have an entry.
template <FmhaPages kPages, class Arguments>
inline void paged_part(const Arguments& g, i64 sequence, i64& first, i64& keys) {
  i64 entries = g.max_pages;
  if constexpr (kPages == FmhaPages::table) first = sequence * g.table_stride;
  if constexpr (kPages == FmhaPages::list) {
    packed_part(g.page_starts, sequence, g.page_entries, g.page_entries, first, entries);
  }
  if (entries * g.page_size < keys) keys = entries * g.page_size;
}

// A sequence without queries is left out.
template <FmhaLengths kLengths, FmhaPages kPages = FmhaPages::none>
inline FmhaSequence sequence_of(const FmhaArguments& g, i64 batch) {
  constexpr bool kPaged = kPages != FmhaPages::none;
  FmhaSequence s = {g.seqlen_q, g.seqlen_k, 0, 0};
  if constexpr (kLengths == FmhaLengths::packed) {
    packed_part(g.seqlens_q, batch, g.tokens_q, g.seqlen_q, s.first_query, s.queries);
    if constexpr (!kPaged)
      packed_part(g.seqlens_k, batch, g.tokens_k, g.seqlen_k, s.first_key, s.keys);
  }
  if constexpr (kLengths == FmhaLengths::padded) {
    s.queries = clamped(g.seqlens_q[batch], 0, g.seqlen_q);
  }
  if constexpr (kLengths == FmhaLengths::padded || (kPaged && kLengths == FmhaLengths::packed)) {
    s.keys = clamped(g.seqlens_k[batch], 0, g.seqlen_k);
  }
  if constexpr (kPaged) paged_part<kPages>(g, batch, s.first_key, s.keys);
  if (s.queries <= g.skip_q) s.queries = 0;
  return s;
}

// ---- pages ----
//
// What reads a cache and what appends to it share these functions. Arguments have page_table,
// page_starts, bad_page, page_size, num_pages, max_pages, table_stride, page_entries, hdim_v,
// k_stride and v_stride, as FmhaArguments has them, and a sequence has first_key.

// Where a key lies: the entry of its page, and which token of the page it is.
struct FmhaSlot {
  i64 entry, token;
};
template <class Arguments>
inline FmhaSlot slot_of(const Arguments& g, i64 key) {
  const auto at = static_cast<unsigned>(key), size = static_cast<unsigned>(g.page_size);
  return {at / size, at % size};  // 64 bits take several times as long
}

// Whatever a table holds, the page is one of the cache.
template <class Arguments>
inline i64 page_in_cache(const Arguments& g, int page) {
  return clamped(page, 0, g.num_pages - 1);
}

// The page of a sequence's entry.
template <class Arguments, class Sequence>
inline i64 page_of(const Arguments& g, const Sequence& s, i64 entry) {
  return page_in_cache(g, g.page_table[s.first_key + entry]);
}

// Where coordinate x lies of which `run` neighbours lie together, and the next ones `far` elements
// on. The layout `vectorized` cuts the elements of k and the tokens of v into runs of 16 bytes.
inline i64 in_runs(i64 x, i64 run, i64 far) { return x / run * far + x % run; }

// Where a token of a page lies in k and in v. `run` are the elements of 16 bytes.
template <class Arguments>
inline i64 key_token(const Arguments& g, i64 page, i64 head, i64 token) {
  return page * g.k_stride[kTokenBatch] + head * g.k_stride[kTokenHead] +
         token * g.k_stride[kToken];
}
template <FmhaCacheLayout kLayout, class Arguments>
inline i64 value_token(const Arguments& g, i64 page, i64 head, i64 token, i64 run) {
  const i64 first = page * g.v_stride[kTokenBatch] + head * g.v_stride[kTokenHead];
  if constexpr (kLayout == FmhaCacheLayout::linear) return first + token * g.v_stride[kToken];
  return first + in_runs(token, run, run * g.hdim_v);
}

// Where an element lies from its token's first one on.
template <FmhaCacheLayout kLayout, class Arguments>
inline i64 key_element(const Arguments& g, i64 element, i64 run) {
  if constexpr (kLayout == FmhaCacheLayout::linear) return element * g.k_stride[kTokenElement];
  return in_runs(element, run, run * g.page_size);
}

// ---- the check of pages ----

// The entries [first_entry, entries_of) that the keys of a sequence need, and whether one of them
// is out of range.
inline i64 first_entry(const FmhaArguments&, const FmhaSequence&) { return 0; }
inline i64 entries_of(const FmhaArguments& g, const FmhaSequence& s) {
  return (s.keys + g.page_size - 1) / g.page_size;
}
template <class Arguments, class Sequence>
inline bool is_bad_page(const Arguments& g, const Sequence& s, i64 entry) {
  const int page = g.page_table[s.first_key + entry];
  return page < 0 || page >= g.num_pages;
}

// What bad_page says: {found, sequence, entry, index}.
struct FmhaBadPage {
  int found, sequence, entry, index;
};
inline FmhaBadPage no_bad_page() { return {0, -1, -1, -1}; }
template <class Arguments, class Sequence>
inline FmhaBadPage bad_page_at(const Arguments& g, const Sequence& s, i64 batch, i64 entry) {
  return {1, static_cast<int>(batch), static_cast<int>(entry), g.page_table[s.first_key + entry]};
}
inline void report(const FmhaBadPage& bad, int* to) {
  to[0] = bad.found, to[1] = bad.sequence, to[2] = bad.entry, to[3] = bad.index;
}

// sequence_at(batch) is sequence_of() of the problem's lengths and pages.
template <class Arguments, class SequenceAt>
inline FmhaBadPage first_bad_page(const Arguments& g, SequenceAt sequence_at) {
  for (i64 batch = 0; batch < g.batch; ++batch) {
    const auto s = sequence_at(batch);
    for (i64 entry = first_entry(g, s); entry < entries_of(g, s); ++entry) {
      if (is_bad_page(g, s, entry)) return bad_page_at(g, s, batch, entry);
    }
  }
  return no_bad_page();
}

// Whether the check has found a page, so that the rest of the launch has nothing to do.
template <class Arguments>
inline bool has_bad_page(const Arguments& g) {
  return g.bad_page != nullptr && g.bad_page[0] != 0;
}

// ---- masks and biases ----

// The keys that a query sees: [0, sink) and [begin, end), with sink <= begin <= end.
struct FmhaKeys {
  i64 sink, begin, end;
  bool has(i64 key) const { return key < sink || (key >= begin && key < end); }
};

template <bool kMasked>
inline FmhaKeys keys_of(const FmhaArguments& g, const FmhaSequence& s, i64 query) {
  if constexpr (!kMasked) return {0, 0, s.keys};
  const i64 diagonal = query + (g.at_end != 0 ? s.keys - s.queries : 0);
  const i64 end = g.window_right < 0 ? s.keys : clamped(diagonal + g.window_right + 1, 0, s.keys);
  const i64 begin = g.window_left < 0 ? 0 : clamped(diagonal - g.window_left, 0, end);
  const i64 sink = g.sink < begin ? g.sink : begin;
  return {sink, begin, end};
}

// What ALiBi adds to a score.
inline float alibi_of(float slope, const FmhaSequence& s, i64 query, i64 key) {
  const i64 distance = query + s.keys - s.queries - key;
  return -slope * static_cast<float>(distance < 0 ? -distance : distance);
}

}  // namespace tessera::device
