// Random problems that append to a cache and attend to it.
#pragma once

#include <algorithm>

#include "host/fmha/append_problems.h"

namespace tessera::fmha {

// Each entry has a page of its own, so that no two new tokens get one place.
inline void set_own_pages(RandomFmhas& random, FmhaProblem& p) {
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  if (p.pages == FmhaPages::none) return;
  const std::int64_t needed = pages_needed(p);
  p.num_pages = p.batch * needed + random.integer(1, 4);
  if (p.pages == FmhaPages::table && random.coin()) p.table_stride = needed + random.integer(0, 2);
}

// Caches and turned queries are written: no two elements share a place.
inline void set_extend_strides(RandomFmhas& random, FmhaProblem& p) {
  const FmhaProblem full = with_strides(p);
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const bool is_paged = p.pages != FmhaPages::none;
  const std::int64_t batch = is_packed ? 1 : p.batch;
  const std::int64_t tokens = is_packed ? full.tokens_q : p.seqlen_q;
  const std::int64_t parts = is_paged ? full.num_pages : p.batch;
  const std::int64_t room = is_paged ? p.page_size : p.seqlen_k;
  const std::int64_t kv = full.heads_kv, hdim_v = full.hdim_v;
  p.k_strides = p.v_strides = kPackedTokens;
  if (p.cache_layout == FmhaCacheLayout::linear) {
    if (random.coin()) spread(random, {parts, kv, room, p.hdim}, p.k_strides);
    if (random.coin()) spread(random, {parts, kv, room, hdim_v}, p.v_strides);
  }
  if (p.rotate_q && random.coin()) {
    spread(random, {batch, p.heads, tokens, p.hdim}, p.q_turned_strides);
  }
  if (random.coin()) spread(random, {batch, kv, tokens, p.hdim}, p.k_new_strides, true);
  if (random.coin()) spread(random, {batch, kv, tokens, hdim_v}, p.v_new_strides, true);
  if (!is_packed) return;
  for (FmhaStrides* strides : {&p.q_turned_strides, &p.k_new_strides, &p.v_new_strides}) {
    (*strides)[0] = kPacked;
  }
}

inline FmhaProblem random_extend(RandomFmhas& random, std::int64_t longest, std::int64_t widest) {
  FmhaProblem p = random.problem(longest, widest);
  p.kind = FmhaKind::extend;
  if (size_of(p.in) == 1) {
    p = of_one_type(p);
    p.in = p.out = p.dtype_bias = random.one_of(kTypes);
  }
  if (p.qscale == FmhaQscale::kv_block) p.qscale = FmhaQscale::per_token;
  p.qscale_block_k = kPacked;
  if (p.lengths == FmhaLengths::packed && p.pages == FmhaPages::none) {
    p.lengths = FmhaLengths::padded;
    p.tokens_q = kPacked;
    p.q_strides = p.out_strides = kPackedTokens;
  }
  p.tokens_k = kPacked;
  p.seqlen_k = std::max(p.seqlen_k, p.seqlen_q);
  p.bias_strides = kPackedTokens;
  if (p.cache_layout == FmhaCacheLayout::vectorized) {
    const std::int64_t run = 16 / size_of(kv_type(p));
    for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
    p.q_strides = kPackedTokens;
  }
  set_rotary(random, p);
  p.rotary_positions = p.rotary == FmhaRotary::none ? kPacked : p.seqlen_k + random.integer(0, 3);
  set_own_pages(random, p);
  set_extend_strides(random, p);
  return p;
}

}  // namespace tessera::fmha
