#include "peers/fmha_fields.h"

namespace tessera::peers {

bool has_known_fields(const FmhaProblem& p) {
  FmhaProblem known;
  known.in = p.in, known.out = p.out, known.dtype_bias = p.dtype_bias;
  known.lengths = p.lengths, known.skip_q = p.skip_q;
  known.batch = p.batch, known.heads = p.heads, known.heads_kv = p.heads_kv;
  known.seqlen_q = p.seqlen_q, known.seqlen_k = p.seqlen_k;
  known.tokens_q = p.tokens_q, known.tokens_k = p.tokens_k;
  known.hdim = p.hdim, known.hdim_v = p.hdim_v;
  known.q_strides = p.q_strides, known.k_strides = p.k_strides, known.v_strides = p.v_strides;
  known.out_strides = p.out_strides, known.bias_strides = p.bias_strides;
  known.mask = p.mask, known.sink = p.sink;
  known.window_left = p.window_left, known.window_right = p.window_right;
  known.bias = p.bias, known.slope_stride = p.slope_stride;
  known.num_splits = p.num_splits;  // says how, not what
  known.scale = p.scale, known.soft_cap = p.soft_cap, known.lse = p.lse;
  return with_strides(known) == with_strides(p);
}

}  // namespace tessera::peers
