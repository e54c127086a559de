// Random problems that append to a cache, and the definition of spec/problem.h in plain loops.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "host/fmha/plain_fmha.h"
#include "tessera/measure/operands.h"

namespace tessera::fmha {

// ---- problems ----

// Dimensions in any order with gaps between some of them; {batch, head, token, element}.
inline void spread(RandomFmhas& random, const std::array<std::int64_t, 4>& sizes,
                   FmhaStrides& strides) {
  std::array<std::size_t, 4> order = {3, 1, 2, 0};
  for (std::size_t i = 3; i > 0 && random.integer(0, 2) == 0; --i) {
    std::swap(order[i], order[static_cast<std::size_t>(random.integer(0, std::int64_t(i)))]);
  }
  std::int64_t span = 1;
  for (const std::size_t dimension : order) {
    if (span > 1 && random.integer(0, 2) == 0) span += random.integer(1, 9);
    strides[dimension] = span;
    span *= std::max<std::int64_t>(sizes[dimension], 1);
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
    const std::int64_t run = 16 / size_of(p.in);
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
  if (random.coin()) spread(random, {batch, kv, tokens, p.hdim}, p.k_new_strides);
  if (random.coin()) spread(random, {batch, kv, tokens, hdim_v}, p.v_new_strides);
  if (p.rotate_q && random.coin()) {
    spread(random, {batch, p.heads, tokens, p.hdim}, p.q_strides);
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

// ---- the definition ----

// A new token that has a place: the batch and the token of its tensors, its position, and the part
// and the token of the cache that it becomes.
struct PlainToken {
  std::int64_t batch, token, position, part, place;
};

// The index of the page that a position lies in, in the order of the tokens of a sequence; -1: the
// sequence has no such entry.
inline std::int64_t plain_page(const FmhaProblem& p, const FmhaOperands& o, std::int64_t b,
                               std::int64_t position) {
  const std::int64_t entry = position / p.page_size;
  std::int64_t first = b * p.table_stride, entries = p.max_pages;
  if (p.pages == FmhaPages::list) {
    first = o.page_starts[b], entries = std::int64_t{o.page_starts[b + 1]} - first;
  }
  if (entry >= entries) return -1;
  return std::clamp<std::int64_t>(o.page_table[first + entry], 0, p.num_pages - 1);
}

inline std::vector<PlainToken> placed_tokens(const FmhaProblem& p, const FmhaOperands& o) {
  std::vector<PlainToken> tokens;
  const bool is_packed = p.lengths == FmhaLengths::packed;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    std::int64_t first = 0, count = p.seqlen_q;
    if (p.lengths == FmhaLengths::padded) count = o.seqlens_q[b];
    if (is_packed) first = o.seqlens_q[b], count = o.seqlens_q[b + 1] - first;
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t position = std::int64_t{o.seqlens_k[b]} + t;
      const bool has_angle = p.rotary == FmhaRotary::none || position < p.rotary_positions;
      if (position < 0 || position >= p.seqlen_k || !has_angle) continue;
      const bool is_paged = p.pages != FmhaPages::none;
      const std::int64_t part = is_paged ? plain_page(p, o, b, position) : b;
      if (part < 0) continue;
      const std::int64_t place = is_paged ? position % p.page_size : position;
      tokens.push_back({is_packed ? 0 : b, first + t, position, part, place});
    }
  }
  return tokens;
}

inline std::int64_t plain_place(const FmhaStrides& s, std::int64_t batch, std::int64_t head,
                                std::int64_t token, std::int64_t element) {
  return (batch == 0 ? 0 : batch * s[0]) + head * s[1] + token * s[2] + element * s[3];
}

// Where element `d` of a head of a token of the cache lies.
inline std::int64_t cache_place(const FmhaProblem& p, bool of_k, const PlainToken& t,
                                std::int64_t h, std::int64_t d) {
  if (p.cache_layout == FmhaCacheLayout::linear) {
    return plain_place(of_k ? p.k_strides : p.v_strides, t.part, h, t.place, d);
  }
  const std::int64_t x = 16 / size_of(p.in), hdim = of_k ? p.hdim : p.hdim_v;
  const std::int64_t first = (t.part * p.heads_kv + h) * hdim * p.page_size;
  if (of_k) return first + (d / x * p.page_size + t.place) * x + d % x;
  return first + (t.place / x * hdim + d) * x + t.place % x;
}

// Element `d` of a head, whose element e is at(e), turned by a position.
template <class At>
long double plain_turned(const FmhaProblem& p, const FmhaOperands& o, std::int64_t position,
                         std::int64_t d, const At& at) {
  if (p.rotary == FmhaRotary::none || d >= p.rotary_dim) return at(d);
  const std::int64_t half = p.rotary_dim / 2;
  const bool is_half = p.rotary == FmhaRotary::half;
  const std::int64_t pair = is_half ? d % half : d / 2;
  const std::int64_t x = is_half ? pair : 2 * pair, y = is_half ? pair + half : 2 * pair + 1;
  const long double cos = o.cos[position * half + pair], sin = o.sin[position * half + pair];
  return d == x ? at(x) * cos - at(y) * sin : at(y) * cos + at(x) * sin;
}

// Calls visit(tensor, place, value) for each element that is to be written. The problem has its
// strides.
template <class Visit>
void for_each_appended(const FmhaProblem& p, const FmhaOperands& o, const Visit& visit) {
  const auto load = [&](const void* data, std::int64_t at) {
    return static_cast<long double>(load_element(p.in, data, at));
  };
  for (const PlainToken& t : placed_tokens(p, o)) {
    for (std::int64_t h = 0; h < p.heads_kv; ++h) {
      for (std::int64_t d = 0; d < p.hdim; ++d) {
        visit("k", cache_place(p, true, t, h, d),
              plain_turned(p, o, t.position, d, [&](std::int64_t e) {
                return load(o.k_new, plain_place(p.k_new_strides, t.batch, h, t.token, e));
              }));
      }
      for (std::int64_t d = 0; d < p.hdim_v; ++d) {
        visit("v", cache_place(p, false, t, h, d),
              load(o.v_new, plain_place(p.v_new_strides, t.batch, h, t.token, d)));
      }
    }
    for (std::int64_t h = 0; p.rotate_q && h < p.heads; ++h) {
      for (std::int64_t d = 0; d < p.hdim; ++d) {
        visit("out", plain_place(p.out_strides, t.batch, h, t.token, d),
              plain_turned(p, o, t.position, d, [&](std::int64_t e) {
                return load(o.q, plain_place(p.q_strides, t.batch, h, t.token, e));
              }));
      }
    }
  }
}

// Elements of the outputs that are not to be written and do not hold what they held.
inline int changed_elsewhere(const FmhaProblem& p, const measure::OwnedOperands& owned) {
  int changed = 0;
  for (std::size_t i = 0; i < owned.outputs.size(); ++i) {
    const Tensor& tensor = owned.tensors[owned.outputs[i]];
    if (tensor.is_report) continue;
    std::vector<bool> is_written(static_cast<std::size_t>(tensor.elements()), false);
    for_each_appended(p, std::get<FmhaOperands>(owned.operands),
                      [&](std::string_view name, std::int64_t at, long double) {
                        if (name == tensor.name) is_written[static_cast<std::size_t>(at)] = true;
                      });
    const runtime::AlignedBuffer& buffer = owned.storage[owned.outputs[i]];
    const auto* const now = static_cast<const std::byte*>(buffer.data());
    const auto* const before = static_cast<const std::byte*>(owned.originals[i].data());
    const auto width = static_cast<std::size_t>(size_of(tensor.dtype));
    const std::size_t guard = (buffer.size() - tensor.bytes()) / 2;
    for (std::size_t at = 0; at < is_written.size(); ++at) {
      if (is_written[at]) continue;
      for (std::size_t byte = guard + at * width; byte < guard + (at + 1) * width; ++byte) {
        const std::byte was = before == nullptr ? std::byte{0xff} : before[byte];
        changed += now[byte] != was ? 1 : 0;
      }
    }
  }
  return changed;
}

}  // namespace tessera::fmha
