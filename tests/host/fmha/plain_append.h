// Appending to a cache by the definition of spec/problem.h in plain loops, and what a launch may
// have left.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/fmha/plain_fmha.h"
#include "tessera/measure/operands.h"

namespace tessera::fmha {

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
  const std::int64_t x = 16 / size_of(kv_type(p)), hdim = of_k ? p.hdim : p.hdim_v;
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

// A head of keys or of values of a new token as it is stored in the cache, by visit(tensor, place,
// value), and its factor where tokens have one. element(d) is its element d.
template <class Element, class Visit>
void plain_stored(const FmhaProblem& p, const FmhaOperands& o, bool of_k, const PlainToken& t,
                  std::int64_t h, const Element& element, const Visit& visit) {
  const std::int64_t hdim = of_k ? p.hdim : p.hdim_v;
  const float* const factors = of_k ? o.descale_k : o.descale_v;
  long double factor = 1;
  if (p.qscale == FmhaQscale::per_tensor) factor = factors[0];
  if (p.qscale == FmhaQscale::per_head) factor = factors[h];
  const bool has_own = p.kv != FmhaKv::same;
  const long double most = max_finite(kv_type(p));
  if (p.qscale == FmhaQscale::per_token) {
    factor = 0;
    for (std::int64_t d = 0; d < hdim; ++d) factor = std::max(factor, std::abs(element(d)) / most);
    const std::int64_t room = p.pages == FmhaPages::none ? p.seqlen_k : p.page_size;
    visit(of_k ? "descale_k" : "descale_v", (t.part * p.heads_kv + h) * room + t.place, factor);
  }
  for (std::int64_t d = 0; d < hdim; ++d) {
    long double x = element(d);
    if (has_own) x = factor == 0 ? 0 : std::clamp(x / factor, -most, most);
    visit(of_k ? "k" : "v", cache_place(p, of_k, t, h, d), x);
  }
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
      const auto key = [&](std::int64_t d) {
        return plain_turned(p, o, t.position, d, [&](std::int64_t e) {
          return load(o.k_new, plain_place(p.k_new_strides, t.batch, h, t.token, e));
        });
      };
      const auto value = [&](std::int64_t d) {
        return load(o.v_new, plain_place(p.v_new_strides, t.batch, h, t.token, d));
      };
      plain_stored(p, o, true, t, h, key, visit);
      plain_stored(p, o, false, t, h, value, visit);
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

// ---- places of several tokens ----
//
// Sequences that share pages may append two tokens to one place. Either may stay there, for each
// element by itself: the answer has no certain bits then.

inline bool shares_places(const FmhaProblem& p, const FmhaOperands& o) {
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  const std::vector<PlainToken> tokens = placed_tokens(p, o);
  for (const PlainToken& t : tokens) places.insert({t.part, t.place});
  return places.size() != tokens.size();
}

// What an output holds, in its type.
inline long double held(const measure::OwnedOperands& owned, std::size_t output, std::int64_t at) {
  const Tensor& tensor = owned.tensors[owned.outputs[output]];
  const runtime::AlignedBuffer& buffer = owned.storage[owned.outputs[output]];
  const std::size_t guard = (buffer.size() - tensor.bytes()) / 2;
  return load_element(tensor.dtype, static_cast<const std::byte*>(buffer.data()) + guard, at);
}

// Between the numbers around zero, and a little more.
inline long double smallest_step(DType dtype) {
  return 1e-5L + static_cast<long double>(epsilon(dtype) * min_normal(dtype));
}

// Elements that are to be written and hold nothing that a token writes there, whose values are of a
// few units.
inline int held_of_no_token(const FmhaProblem& p, const measure::OwnedOperands& owned) {
  int wrong = 0;
  for (std::size_t i = 0; i < owned.outputs.size(); ++i) {
    const Tensor& tensor = owned.tensors[owned.outputs[i]];
    const long double step = epsilon(tensor.dtype);
    std::unordered_map<std::int64_t, bool> is_right;
    for_each_appended(p, std::get<FmhaOperands>(owned.operands),
                      [&](std::string_view name, std::int64_t at, long double value) {
                        if (name != tensor.name) return;
                        const long double error = std::abs(held(owned, i, at) - value);
                        bool& right = is_right[at];
                        right =
                            right || error <= step * std::abs(value) + smallest_step(tensor.dtype);
                      });
    for (const auto& [at, right] : is_right) wrong += right ? 0 : 1;
  }
  return wrong;
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
