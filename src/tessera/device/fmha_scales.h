// The factors of attention's numbers of 8 bits: which one belongs to a query and to a key, and what
// the others add up to. Numbers without factors cost nothing.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// Whether blocks of queries, and of keys, have factors of their own.
constexpr bool scales_queries(FmhaQscale how) { return how == FmhaQscale::per_block; }
constexpr bool scales_keys(FmhaQscale how) {
  return how != FmhaQscale::none && how != FmhaQscale::per_tensor;
}

// What every score is multiplied by. Queries of type In have a factor where they have 8 bits.
template <FmhaQscale kQscale, class In>
inline float score_factor(const FmhaArguments& g) {
  constexpr bool kOfQueries =
      sizeof(In) == 1 && kQscale != FmhaQscale::none && kQscale != FmhaQscale::per_block;
  float factor = g.scale;
  if constexpr (kOfQueries) factor *= *g.descale_q;
  if constexpr (kQscale == FmhaQscale::per_tensor) factor *= *g.descale_k;
  return factor;
}

// What the scores of one query are multiplied by beside it. `query` counts in its sequence.
template <FmhaQscale kQscale>
inline float query_factor(const FmhaArguments& g, i64 batch, i64 head, i64 query) {
  if constexpr (scales_queries(kQscale)) {
    const auto block = static_cast<unsigned>(query) / static_cast<unsigned>(g.block_q);
    return g.descale_q[(batch * g.heads + head) * g.blocks_q + block];
  } else {
    return 1;
  }
}

// Which of the factors in descale_k and descale_v belongs to a key of a sequence.
template <FmhaQscale kQscale, FmhaPages kPages>
inline i64 key_factor_place(const FmhaArguments& g, const FmhaSequence& s, i64 batch, i64 head_kv,
                            i64 key) {
  if constexpr (kQscale == FmhaQscale::per_head) {
    return head_kv;
  } else if constexpr (kQscale == FmhaQscale::kv_block && kPages != FmhaPages::none) {
    return page_of(g, s, slot_of(g, key).entry) * g.heads_kv + head_kv;
  } else if constexpr (kQscale == FmhaQscale::per_token && kPages != FmhaPages::none) {
    const FmhaSlot slot = slot_of(g, key);
    return (page_of(g, s, slot.entry) * g.heads_kv + head_kv) * g.page_size + slot.token;
  } else {
    const auto block = static_cast<unsigned>(key) / static_cast<unsigned>(g.block_k);
    return (batch * g.heads_kv + head_kv) * g.blocks_k + block;
  }
}

// A result, or a vector of them, before it is rounded to Out.
template <FmhaQscale kQscale, class Out, class T>
inline T scaled_result(const FmhaArguments& g, T x) {
  if constexpr (kQscale == FmhaQscale::per_tensor) x = x * *g.descale_v;
  if constexpr (kQscale != FmhaQscale::none && sizeof(Out) == 1) x = x * *g.scale_o;
  return x;
}

}  // namespace tessera::device
