// Random problems that ask for the gradients of attention, small enough to compute them plainly.
#pragma once

#include "host/fmha/fmha_problems.h"

namespace tessera::fmha {

// Up to `longest` queries and keys, heads of up to `widest` elements.
inline FmhaProblem random_backward(RandomFmhas& random, std::int64_t longest, std::int64_t widest) {
  FmhaProblem p = of_one_type(without_pages(random.problem(longest, widest)));
  p.kind = FmhaKind::backward;
  if (size_of(p.in) == 1) {
    const bool has_own = p.bias == FmhaBias::elementwise && size_of(p.dtype_bias) > 1;
    p.in = random.one_of(kTypes);
    if (!has_own) p.dtype_bias = p.in;
  }
  p.out = p.in;
  p.lse = p.random = false;
  p.num_splits = 0;
  p.dbias = p.bias != FmhaBias::none && random.coin();
  p.dlse = random.coin();
  if (p.dbias && p.bias == FmhaBias::elementwise && random.coin()) {
    for (std::int64_t& stride : p.bias_strides) stride = random.coin() ? 0 : kPacked;
  }
  // Gradients with heads before tokens, and gaps. What comes in may have elements in one place.
  if (random.coin()) return p;
  const FmhaProblem full = with_strides(p);
  const bool is_packed = p.lengths == FmhaLengths::packed;
  const std::int64_t gap = random.integer(0, 5);
  struct Tokens {
    FmhaStrides* strides;
    std::int64_t heads, tokens, hdim;
  };
  const std::int64_t q = is_packed ? full.tokens_q : p.seqlen_q;
  const std::int64_t k = is_packed ? full.tokens_k : p.seqlen_k;
  for (const auto& [strides, heads, tokens, hdim] :
       {Tokens{&p.dout_strides, p.heads, q, full.hdim_v}, Tokens{&p.dq_strides, p.heads, q, p.hdim},
        Tokens{&p.dk_strides, full.heads_kv, k, p.hdim},
        Tokens{&p.dv_strides, full.heads_kv, k, full.hdim_v}}) {
    const std::int64_t step = random.integer(0, 3) == 0 ? 2 : 1, row = step * hdim + gap;
    const std::int64_t head = std::max<std::int64_t>(tokens, 1) * row;
    *strides = {is_packed ? kPacked : heads * head + gap, head, row, step};
  }
  if (random.integer(0, 3) > 0) return p;
  for (std::int64_t& stride : p.dout_strides) stride = random.coin() ? 0 : stride;
  return p;
}

}  // namespace tessera::fmha
