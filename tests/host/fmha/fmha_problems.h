// Random problems of attention over all fields, small enough to compute them plainly.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "tessera/spec/problem.h"

namespace tessera::fmha {

inline constexpr std::array kTypes = {DType::fp32, DType::fp16, DType::bf16};
inline constexpr std::array kEightBits = {DType::fp8, DType::bf8};

// One head of one sequence, in fp32.
inline FmhaProblem small_problem(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t hdim) {
  FmhaProblem p;
  p.heads = 1;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.hdim = hdim;
  p.lse = true;
  return p;
}

// The same attention of keys that lie one behind the other.
inline FmhaProblem without_pages(FmhaProblem p) {
  if (p.pages == FmhaPages::none) return p;
  p.pages = FmhaPages::none, p.cache_layout = FmhaCacheLayout::linear;
  p.check_pages = false, p.page_size = 0;
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  p.k_strides = p.v_strides = kPackedTokens;
  return p;
}

// The same attention of keys of the queries' type, without factors.
inline FmhaProblem of_one_type(FmhaProblem p) {
  p.kv = FmhaKv::same;
  p.qscale = FmhaQscale::none;
  p.qscale_block_q = p.qscale_block_k = kPacked;
  return p;
}

class RandomFmhas {
 public:
  explicit RandomFmhas(std::uint64_t seed) : engine_(seed) {}

  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool coin() { return integer(0, 1) == 1; }
  double normal() { return std::normal_distribution<double>()(engine_); }
  template <class List>
  auto one_of(const List& list) {
    return list[static_cast<std::size_t>(integer(0, std::ssize(list) - 1))];
  }

  // Sequences of up to `longest` queries and keys, heads of up to `widest` elements.
  FmhaProblem problem(std::int64_t longest, std::int64_t widest);

 private:
  using Sizes = std::array<std::int64_t, 4>;  // {batch, head, token, element}

  void set_types(FmhaProblem& p);
  void set_mask(FmhaProblem& p, std::int64_t longest);
  void set_lengths(FmhaProblem& p);
  void set_bias(FmhaProblem& p);
  void set_pages(FmhaProblem& p);
  void set_scales(FmhaProblem& p);
  void set_strides(FmhaProblem& p);
  void spread_out(FmhaStrides& strides, const Sizes& sizes, bool may_share);

  std::mt19937_64 engine_;
};

inline void RandomFmhas::set_types(FmhaProblem& p) {
  p.in = one_of(kTypes);
  p.out = coin() ? p.in : one_of(kTypes);
  if (integer(0, 2) == 0) {
    p.in = one_of(kEightBits);
    if (coin()) p.out = one_of(kEightBits);
  }
  if (integer(0, 3) == 0 && size_of(p.in) > 1) p.kv = coin() ? FmhaKv::fp8 : FmhaKv::bf8;
  p.dtype_bias = p.in;
}

inline void RandomFmhas::set_mask(FmhaProblem& p, std::int64_t longest) {
  p.mask = static_cast<FmhaMask>(integer(0, 2));
  if (p.mask == FmhaMask::none || coin()) return;
  p.window_left = integer(-1, longest);
  p.window_right = integer(-1, longest);
  if (coin()) p.sink = integer(0, longest);
}

inline void RandomFmhas::set_lengths(FmhaProblem& p) {
  p.lengths = static_cast<FmhaLengths>(integer(0, 2));
  if (p.lengths == FmhaLengths::equal) return;
  if (coin()) p.skip_q = integer(0, p.seqlen_q);
  if (p.lengths != FmhaLengths::packed || coin()) return;
  p.tokens_q = integer(0, p.batch * p.seqlen_q + 5);
  p.tokens_k = integer(0, p.batch * p.seqlen_k + 5);
}

inline void RandomFmhas::set_bias(FmhaProblem& p) {
  p.bias = static_cast<FmhaBias>(integer(0, 2));
  if (p.bias == FmhaBias::alibi && coin()) p.slope_stride = p.heads + integer(0, 3);
  if (p.bias != FmhaBias::elementwise) return;
  if (coin()) p.dtype_bias = one_of(kTypes);
  if (coin()) spread_out(p.bias_strides, {p.batch, p.heads, p.seqlen_q, p.seqlen_k}, true);
}

// Dimensions in any order with gaps between some of them. Inputs may have all elements of a
// dimension in one place, mostly batches or heads.
inline void RandomFmhas::spread_out(FmhaStrides& strides, const Sizes& sizes, bool may_share) {
  std::array<std::size_t, 4> order = {3, 2, 1, 0};
  if (coin()) std::shuffle(order.begin(), order.end(), engine_);
  std::int64_t span = 1;
  for (const std::size_t dimension : order) {
    if (span > 1 && integer(0, 2) == 0) span += integer(1, 5);
    strides[dimension] = span;
    if (may_share && integer(0, dimension < 2 ? 4 : 14) == 0) {
      strides[dimension] = 0;
    } else {
      span *= std::max<std::int64_t>(sizes[dimension], 1);
    }
  }
}

// Half of all problems. Sizes of pages are those that are usual, and any.
inline void RandomFmhas::set_pages(FmhaProblem& p) {
  if (coin()) return;
  p.pages = coin() ? FmhaPages::table : FmhaPages::list;
  p.page_size = coin() ? integer(1, 40) : one_of(std::array{1, 16, 64, 1024});
  p.tokens_k = kPacked;
  if (coin()) {
    const std::int64_t run = 16 / size_of(kv_type(p));
    p.cache_layout = FmhaCacheLayout::vectorized;
    for (std::int64_t* size : {&p.page_size, &p.hdim}) *size = (*size + run - 1) / run * run;
  }
  const std::int64_t needed = pages_needed(p);
  if (coin()) p.num_pages = integer(1, p.batch * needed + 4);
  if (p.pages == FmhaPages::table && coin()) p.max_pages = needed + integer(0, 3);
  if (p.pages == FmhaPages::table && coin()) p.table_stride = integer(0, 2 * needed + 3);
  if (p.pages == FmhaPages::list && p.lengths != FmhaLengths::equal && coin()) {
    p.page_entries = integer(0, p.batch * needed);
  }
  p.check_pages = coin();
}

inline void RandomFmhas::set_scales(FmhaProblem& p) {
  if (size_of(kv_type(p)) != 1) return;
  p.qscale = static_cast<FmhaQscale>(integer(0, 5));
  if (p.qscale == FmhaQscale::per_block && size_of(p.in) > 1) p.qscale = FmhaQscale::kv_block;
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  if (of_queries && coin()) p.qscale_block_q = integer(1, 40);
  const bool of_keys = p.qscale == FmhaQscale::kv_block && p.pages == FmhaPages::none;
  if ((of_queries || of_keys) && coin()) p.qscale_block_k = integer(1, 40);
}

inline void RandomFmhas::set_strides(FmhaProblem& p) {
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const FmhaProblem full = with_strides(p);
  const std::int64_t batch = is_packed ? 1 : p.batch;
  const std::int64_t q = is_packed ? full.tokens_q : p.seqlen_q;
  const bool is_paged = p.pages != FmhaPages::none;
  const std::int64_t parts = is_paged ? full.num_pages : batch;
  const std::int64_t k = is_paged ? p.page_size : is_packed ? full.tokens_k : p.seqlen_k;
  if (coin()) spread_out(p.q_strides, {batch, p.heads, q, p.hdim}, true);
  if (p.cache_layout == FmhaCacheLayout::linear) {
    if (coin()) spread_out(p.k_strides, {parts, full.heads_kv, k, p.hdim}, true);
    if (coin()) spread_out(p.v_strides, {parts, full.heads_kv, k, full.hdim_v}, true);
  }
  if (coin()) spread_out(p.out_strides, {batch, p.heads, q, full.hdim_v}, false);
  if (!is_packed) return;
  for (FmhaStrides* strides : {&p.q_strides, &p.out_strides}) (*strides)[0] = coin() ? kPacked : 0;
  if (is_paged) return;
  for (FmhaStrides* strides : {&p.k_strides, &p.v_strides}) (*strides)[0] = coin() ? kPacked : 0;
}

inline FmhaProblem RandomFmhas::problem(std::int64_t longest, std::int64_t widest) {
  FmhaProblem p;
  set_types(p);
  p.batch = integer(1, 3);
  const std::int64_t group = integer(1, 3);
  p.heads = group * integer(1, 2);
  if (group > 1 || coin()) p.heads_kv = p.heads / group;
  p.seqlen_q = integer(0, 9) == 0 ? integer(0, 1) : integer(1, longest);
  p.seqlen_k = integer(0, 9) == 0 ? integer(0, 1) : integer(1, longest);
  p.hdim = integer(1, widest);
  if (coin()) p.hdim_v = integer(1, widest);
  set_mask(p, longest);
  set_lengths(p);
  set_bias(p);
  if (coin()) p.scale = static_cast<float>(normal());
  if (coin()) p.soft_cap = static_cast<float>(integer(1, 8)) / 2;
  p.lse = coin();
  if (coin()) p.num_splits = coin() ? -1 : integer(1, 5);
  if (integer(0, 2) == 0) {
    p.p_drop = static_cast<float>(integer(1, 999)) / 1000;
    p.random = coin();
  }
  set_pages(p);
  set_scales(p);
  set_strides(p);
  return p;
}

}  // namespace tessera::fmha
