// What attention of every backend and its reference share: the arguments, where a sequence lies,
// and which keys a query sees.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class FmhaLengths { equal, packed, padded };
enum class FmhaBias { none, elementwise, alibi };

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
};

// Queries and keys of one sequence: how many, and where the first one lies, in tokens.
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

// A sequence without queries is left out.
template <FmhaLengths kLengths>
inline FmhaSequence sequence_of(const FmhaArguments& g, i64 batch) {
  FmhaSequence s = {g.seqlen_q, g.seqlen_k, 0, 0};
  if constexpr (kLengths == FmhaLengths::packed) {
    packed_part(g.seqlens_q, batch, g.tokens_q, g.seqlen_q, s.first_query, s.queries);
    packed_part(g.seqlens_k, batch, g.tokens_k, g.seqlen_k, s.first_key, s.keys);
  }
  if constexpr (kLengths == FmhaLengths::padded) {
    s.queries = clamped(g.seqlens_q[batch], 0, g.seqlen_q);
    s.keys = clamped(g.seqlens_k[batch], 0, g.seqlen_k);
  }
  if (s.queries <= g.skip_q) s.queries = 0;
  return s;
}

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
