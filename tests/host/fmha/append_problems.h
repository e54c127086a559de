// Random problems that append to a cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "host/fmha/fmha_problems.h"

namespace tessera::fmha {

// Dimensions in any order with gaps between some of them; {batch, head, token, element}. Inputs may
// have all elements of a dimension in one place.
inline void spread(RandomFmhas& random, const std::array<std::int64_t, 4>& sizes,
                   FmhaStrides& strides, bool may_share = false) {
  std::array<std::size_t, 4> order = {3, 1, 2, 0};
  for (std::size_t i = 3; i > 0 && random.integer(0, 2) == 0; --i) {
    std::swap(order[i], order[static_cast<std::size_t>(random.integer(0, std::int64_t(i)))]);
  }
  std::int64_t span = 1;
  for (const std::size_t dimension : order) {
    if (span > 1 && random.integer(0, 2) == 0) span += random.integer(1, 9);
    const bool shares = may_share && random.integer(0, 7) == 0;
    strides[dimension] = shares ? 0 : span;
    if (!shares) span *= std::max<std::int64_t>(sizes[dimension], 1);
  }
}

inline void set_rotary(RandomFmhas& random, FmhaProblem& p) {
  p.rotary = static_cast<FmhaRotary>(random.integer(0, 2));
  if (p.rotary == FmhaRotary::none) return;
  if (p.hdim % 2 == 1 || random.coin()) p.rotary_dim = random.integer(0, p.hdim / 2) * 2;
  if (p.hdim % 2 == 1 && p.rotary_dim == 0) p.rotary = FmhaRotary::none;
  if (p.rotary == FmhaRotary::none) return;
  if (random.coin()) p.rotary_positions = random.integer(0, p.seqlen_k + 5);
  p.rotate_q = random.coin();
}

// Half of all problems. Mostly each entry can have a page of its own.
inline void set_append_pages(RandomFmhas& random, FmhaProblem& p) {
  if (random.coin()) return;
  p.pages = random.coin() ? FmhaPages::table : FmhaPages::list;
  p.page_size = random.coin() ? random.integer(1, 20) : random.one_of(std::array{1, 16, 64, 1024});
  if (random.coin()) {
    const std::int64_t run = 16 / size_of(kv_type(p));
    p.cache_layout = FmhaCacheLayout::vectorized;
    for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
  }
  const std::int64_t needed = pages_needed(p);
  if (random.coin()) p.num_pages = random.integer(1, p.batch * needed + 4);
  if (p.pages == FmhaPages::table && random.coin()) {
    p.max_pages = needed + random.integer(0, 2),
    p.table_stride = p.max_pages + random.integer(0, 2);
  }
  if (p.pages == FmhaPages::list && random.coin()) {
    p.page_entries = random.integer(0, p.batch * needed);
  }
  p.check_pages = random.coin();
}

inline void set_append_strides(RandomFmhas& random, FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const FmhaProblem full = with_strides(p);
  const std::int64_t batch = is_packed ? 1 : p.batch;
  const std::int64_t tokens = is_packed ? full.tokens_q : p.seqlen_q;
  const std::int64_t kv = full.heads_kv, hdim_v = full.hdim_v;
  const bool is_paged = p.pages != FmhaPages::none;
  const std::int64_t parts = is_paged ? full.num_pages : p.batch;
  const std::int64_t room = is_paged ? p.page_size : p.seqlen_k;
  if (p.cache_layout == FmhaCacheLayout::linear) {
    if (random.coin()) spread(random, {parts, kv, room, p.hdim}, p.k_strides);
    if (random.coin()) spread(random, {parts, kv, room, hdim_v}, p.v_strides);
  }
  if (random.coin()) spread(random, {batch, kv, tokens, p.hdim}, p.k_new_strides, true);
  if (random.coin()) spread(random, {batch, kv, tokens, hdim_v}, p.v_new_strides, true);
  if (p.rotate_q && random.coin()) {
    spread(random, {batch, p.heads, tokens, p.hdim}, p.q_strides, true);
    spread(random, {batch, p.heads, tokens, p.hdim}, p.out_strides);
  }
  if (!is_packed) return;
  for (FmhaStrides* strides : {&p.q_strides, &p.k_new_strides, &p.v_new_strides, &p.out_strides}) {
    (*strides)[0] = kPacked;
  }
}

// Up to `longest` new tokens of each sequence and some room more, heads of up to `widest` elements.
inline FmhaProblem random_append(RandomFmhas& random, std::int64_t longest, std::int64_t widest) {
  FmhaProblem p{.kind = FmhaKind::append};
  p.in = p.out = p.dtype_bias = random.one_of(kTypes);
  if (random.integer(0, 2) == 0) {
    using enum FmhaQscale;
    p.kv = random.coin() ? FmhaKv::fp8 : FmhaKv::bf8;
    p.qscale = random.one_of(std::array{none, per_tensor, per_head, per_token});
  }
  p.batch = random.integer(1, 4);
  const std::int64_t group = random.integer(1, 4);
  p.heads = group * random.integer(1, 3);
  if (group > 1 || random.coin()) p.heads_kv = p.heads / group;
  p.seqlen_q = random.integer(0, 9) == 0 ? random.integer(0, 1) : random.integer(1, longest);
  p.seqlen_k = random.integer(0, 9) == 0 ? random.integer(0, 3) : random.integer(1, 2 * longest);
  p.hdim = random.coin() ? random.integer(1, widest) : (random.integer(8, widest + 7) / 8) * 8;
  if (random.coin()) p.hdim_v = random.integer(1, widest);
  p.lengths = static_cast<FmhaLengths>(random.integer(0, 2));
  if (p.lengths == FmhaLengths::packed && random.coin()) {
    p.tokens_q = random.integer(0, p.batch * p.seqlen_q + 5);
  }
  set_append_pages(random, p);
  set_rotary(random, p);
  set_append_strides(random, p);
  return p;
}

}  // namespace tessera::fmha
